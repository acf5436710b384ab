"""What speaks against a fit to observational data: Gaussian data and other answers.

Linear effects with Gaussian noise make Gaussian data, and no axes of a Gaussian differ from others:
whatever is found there means nothing. Close to that, several answers explain the data equally well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crlearn.likelihood import Fit
from crlearn.result import CLOSE, SAME_ANSWER, Alternative, Check

_NOT_GAUSSIAN = "data are not Gaussian"
_ONLY_THE_SPAN = (
    "effects may be linear, and then latents and layers cannot be recovered from observational "
    "data; only the span can"
)


def luck_of_a_gaussian(n_latents: int) -> float:
    """Return the gain in nats that Gaussian data may reach, as axes are chosen for them.

    A likelihood gains half a chi-squared by each of the p angles that are chosen; this is its mean
    plus four standard deviations and five nats.
    """
    half = n_latents * (n_latents - 1) / 4
    return half + 4 * np.sqrt(half) + CLOSE


def nonlinearity_check(fit: Fit) -> Check:
    """Check that the fit explains more than Gaussian data, whose axes mean nothing, would allow."""
    name, n = _NOT_GAUSSIAN, len(fit.H)
    if n == 1:
        return Check(name, None, "a single latent has no mechanism to show")
    needed = luck_of_a_gaussian(n)
    gained = f"mechanisms gain {fit.score:.1f} nats over a Gaussian, and {needed:.1f} may be luck"
    if fit.score >= needed:
        return Check(name, True, gained)
    return Check(name, False, f"{gained}: {_ONLY_THE_SPAN}")


def determination_check(fit: Fit, alternatives: Sequence[Alternative]) -> Check:
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
        f"{CLOSE:.0f} are asked for; the fit is {fit.score:.1f} nats better than a Gaussian"
    )
    if best.is_close:
        return Check(name, False, f"{detail}; see result_.alternatives")
    return Check(name, True, detail)
