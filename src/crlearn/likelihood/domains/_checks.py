"""Whether environments do what their targets say, on the latents that were found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from crlearn.likelihood.domains._start import Domains, rises
from crlearn.result import Check

Matrix = NDArray[np.floating]

# Two-sided p-value above which a target has not visibly changed.
_INVISIBLE = 0.01


def domain_checks(
    domains: Domains,
    unmixing: Matrix,
    labels: NDArray[Any],
    names: Sequence[str] | None = None,
) -> tuple[Check, ...]:
    """Check that every latent is a target somewhere, and that targets visibly change."""
    names = [f"z{j}" for j in range(domains.targets.shape[1])] if names is None else names
    never = np.flatnonzero(~domains.targets.any(axis=0))
    if domains.doses is None:
        what = "environments in which the target is like elsewhere: "
        hidden = [
            f"{labels[e]} (latent {names[int(j)]})"
            for e, j in zip(*np.nonzero(domains.targets), strict=True)
            if not _is_visible(domains, unmixing[j], int(e), int(j))
        ]
    else:
        what = "latents that are alike at all doses: "
        rise, noise = rises(unmixing, domains)
        still = np.abs(rise) <= norm.isf(_INVISIBLE / 2) * np.sqrt(noise)
        alike = np.flatnonzero(still & domains.targets.any(axis=0))
        hidden = [names[j] for j in alike.tolist()]
    return (
        Check(
            "every latent is a target",
            len(never) == 0,
            "latents that no environment intervenes on: "
            + (", ".join(names[j] for j in never.tolist()[:8]) or "none"),
        ),
        Check(
            "interventions are visible",
            not hidden,
            what + (", ".join(hidden[:8]) or "none"),
        ),
    )


def sign_check(domains: Domains, unmixing: Matrix) -> Check:
    """Say for which latents interventions move the mean, which is what sets a sign.

    Variances do not know it: with these alone signs are arbitrary, and nothing else is lost.
    """
    rise, noise = rises(unmixing, domains)
    hit = domains.targets.any(axis=0)
    open_ones = np.flatnonzero(hit & (np.abs(rise) <= norm.isf(_INVISIBLE / 2) * np.sqrt(noise)))
    detail = "latents whose interventions move no mean, which would set their sign: "
    listed = ", ".join(f"z{j}" for j in open_ones[:8]) or "none"
    advice = "; compare these up to sign only" if len(open_ones) else ""
    return Check("signs are determined", not len(open_ones), detail + listed + advice)


def _is_visible(domains: Domains, row: Matrix, domain: int, latent: int) -> bool:
    """Whether mean or variance of a target differ from where nothing moves it.

    If every environment moves it, through its causes, it has to differ from each of them.
    """
    still = np.flatnonzero(~domains.moved[:, latent])
    others = still if len(still) else np.flatnonzero(~domains.targets[:, latent])
    if not len(others):
        return True
    means = domains.means @ row
    variances = np.einsum("i,eij,j->e", row, domains.covariances, row)
    noise = np.maximum(variances / domains.sizes, 1e-300)
    by_mean = np.abs(means[domain] - means[others]) / np.sqrt(noise[domain] + noise[others])
    ratio = np.log(np.maximum(variances[domain], 1e-300) / np.maximum(variances[others], 1e-300))
    by_variance = np.abs(ratio) / np.sqrt(2 / domains.sizes[domain] + 2 / domains.sizes[others])
    return bool((np.maximum(by_mean, by_variance) > norm.isf(_INVISIBLE / 4)).all())
