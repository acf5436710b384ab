"""What speaks against a fit to observational data: Gaussian data, other answers, no layers.

Linear effects with Gaussian noise make Gaussian data, and no axes of a Gaussian differ from others:
whatever is found there means nothing. Close to that, several answers explain the data equally well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from crlearn.likelihood import ObservationalFit
from crlearn.methods._score_layers import LayerRecovery
from crlearn.result import CLOSE, SAME_ANSWER, Alternative, Check

Matrix = NDArray[np.floating]

# Level of the tests for Gaussian data.
_GAUSSIAN = 0.01
_NOT_GAUSSIAN = "data are not Gaussian"
_ONLY_THE_SPAN = (
    "effects may be linear, and then latents and layers cannot be recovered from observational "
    "data; only the span can"
)


# Of the likelihood


def luck_of_a_gaussian(n_latents: int) -> float:
    """Return the gain in nats that Gaussian data may reach, as axes are chosen for them.

    A likelihood gains half a chi-squared by each of the p angles that are chosen; this is its mean
    plus four standard deviations and five nats.
    """
    half = n_latents * (n_latents - 1) / 4
    return half + 4 * np.sqrt(half) + CLOSE


def nonlinearity_check(fit: ObservationalFit) -> Check:
    """Check that the fit explains more than Gaussian data, whose axes mean nothing, would allow."""
    name, n = _NOT_GAUSSIAN, len(fit.H)
    if n == 1:
        return Check(name, None, "a single latent has no mechanism to show")
    needed = luck_of_a_gaussian(n)
    gained = f"mechanisms gain {fit.gain:.1f} nats over a Gaussian, and {needed:.1f} may be luck"
    if fit.gain >= needed:
        return Check(name, True, gained)
    return Check(name, False, f"{gained}: {_ONLY_THE_SPAN}")


def determination_check(fit: ObservationalFit, alternatives: Sequence[Alternative]) -> Check:
    """Check that no other answer explains the data as well."""
    name = "structure is determined by the data"
    if len(fit.H) == 1:
        return Check(name, None, "a single latent has no structure")
    others = [other for other in alternatives if other.is_another_answer]
    if not others:
        same = f"all {len(alternatives)} competing structures that were kept are the same answer"
        return Check(name, True, same)
    best = min(others, key=lambda other: other.gap)
    detail = (
        "the best competing structure with another answer (agreement of noises "
        f"{best.agreement:.2f}, below {SAME_ANSWER}) is {best.gap:.1f} nats behind, and "
        f"{CLOSE:.0f} are asked for; the fit is {fit.gain:.1f} nats better than a Gaussian"
    )
    if best.is_close:
        return Check(name, False, f"{detail}; see result_.alternatives")
    return Check(name, True, detail)


# Of the published algorithm


def normality_check(rows: Matrix) -> Check:
    """Check that whitened rows are not Gaussian, by their third and fourth moments (Mardia)."""
    name, (n_rows, n) = _NOT_GAUSSIAN, rows.shape
    if n == 1:
        return Check(name, None, "a single latent has no mechanism to show")
    third = [(rows * column[:, None]).T @ rows / n_rows for column in rows.T]
    skewness = n_rows * (np.array(third) ** 2).sum() / 6
    p_of_skewness = float(chi2.sf(skewness, n * (n + 1) * (n + 2) / 6))
    kurtosis = ((rows**2).sum(axis=1) ** 2).mean() - n * (n + 2)
    p_of_kurtosis = 2 * float(norm.sf(abs(kurtosis) / np.sqrt(8 * n * (n + 2) / n_rows)))
    p_value = min(1.0, 2 * min(p_of_skewness, p_of_kurtosis))
    if p_value < _GAUSSIAN:
        return Check(name, True, f"skewness and kurtosis, p = {p_value:.2g}")
    moments = f"skewness and kurtosis are those of a Gaussian, p = {p_value:.2g}"
    return Check(name, False, f"{moments}: {_ONLY_THE_SPAN}")


def visibility_check(found: LayerRecovery, *, tested: bool) -> Check:
    """Check that the scores tell leaves from other latents."""
    name, n_layers = "layers show in the scores", len(found.layers)
    if len(found.encoder) == 1:
        return Check(name, None, "there is one latent only")
    if not tested:
        return Check(name, None, "the published tolerance always finds a leaf and is no test")
    if n_layers > 1:
        p_value = found.diagnostics["next_p_values"][0]
        return Check(name, True, f"{n_layers} layers; that more are leaves has p = {p_value:.2g}")
    p_value = found.diagnostics["p_values"][0]
    return Check(
        name,
        False,
        f"that all {len(found.encoder)} latents are leaves has p = {p_value:.2g}: effects may be "
        "linear, or the scores too noisy, and then there is no order to be recovered",
    )


# Of both


def environment_checks(y: NDArray[Any] | None) -> tuple[Check, ...]:
    """Say that labels were not used; numbers with a fraction are no labels."""
    if y is None or y.dtype.kind == "f":
        return ()
    n_labels = len(set(y.tolist()))
    if n_labels < 2:
        return ()
    return (
        Check(
            "one environment",
            False,
            f"y has {n_labels} labels and was not used: all rows were taken for observational data "
            "of one environment. If labels are interventions, LinearInterventionCRL and "
            "MultiNodeCRL use them; else leave y out",
        ),
    )
