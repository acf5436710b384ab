"""What speaks against a fit to observational data: Gaussian data and rivals.

Linear effects with Gaussian noise make Gaussian data, and no axes of a Gaussian differ from others:
whatever is found there means nothing. Close to that, several answers explain the data equally well.
"""

from __future__ import annotations

import numpy as np

from crlearn.likelihood import ObservationalFit, Rival
from crlearn.result import Check

# A rival whose noises agree less than this with those of the best is another answer.
_SAME_ANSWER = 0.9
# Nats that the best must be better than any other answer.
_ENOUGH_NATS = 5.0
_NOT_GAUSSIAN = "data are not Gaussian"
_ONLY_THE_SPAN = (
    "effects may be linear, and then latents and layers cannot be recovered from observational "
    "data; only the span can"
)


def best_other_answer(fit: ObservationalFit) -> Rival | None:
    """Return the best rival whose noises are not those of the fit."""
    others = [rival for rival in fit.rivals if rival.agreement < _SAME_ANSWER]
    return min(others, key=lambda rival: rival.evidence_gap, default=None)


def luck_of_a_gaussian(n_latents: int) -> float:
    """Return the gain in nats that Gaussian data may reach, as axes are chosen for them.

    A likelihood gains half a chi-squared by each of the p angles that are chosen; this is its mean
    plus four standard deviations and five nats.
    """
    half = n_latents * (n_latents - 1) / 4
    return half + 4 * np.sqrt(half) + _ENOUGH_NATS


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


def determination_check(fit: ObservationalFit, other: Rival | None) -> Check:
    """Check that no other answer explains the data as well."""
    name = "structure is determined by the data"
    if len(fit.H) == 1:
        return Check(name, None, "a single latent has no structure")
    if other is None:
        return Check(name, True, f"all {len(fit.rivals)} rivals that were kept are the same answer")
    passed = bool(other.evidence_gap >= _ENOUGH_NATS)
    detail = (
        f"the best rival with another answer (agreement of noises {other.agreement:.2f}, below "
        f"{_SAME_ANSWER}) is {other.evidence_gap:.1f} nats worse, and {_ENOUGH_NATS:.0f} are "
        f"asked for; the fit is {fit.gain:.1f} nats better than a Gaussian"
    )
    return Check(name, passed, detail if passed else f"{detail}; see result_.details['rivals']")
