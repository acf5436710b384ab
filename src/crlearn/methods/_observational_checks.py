"""What speaks against a fit to observational data: Gaussian data, and noise that is not Gaussian.

Linear effects with Gaussian noise make Gaussian data, and no axes of a Gaussian differ from others:
whatever is found there means nothing. Noise of another shape is taken for an effect.
"""

from __future__ import annotations

import numpy as np

from crlearn.likelihood import Fit
from crlearn.result import Check

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
    return half + 4 * np.sqrt(half) + 5


def nonlinearity_check(fit: Fit) -> Check:
    """Check that the fit explains more than Gaussian data, whose axes mean nothing, would allow."""
    name, n = _NOT_GAUSSIAN, len(fit.H)
    if n == 1:
        return Check(name, True, "a single latent has no mechanism to show")
    needed = luck_of_a_gaussian(n)
    gained = f"mechanisms gain {fit.score:.1f} nats over a Gaussian, and {needed:.1f} may be luck"
    if fit.score >= needed:
        return Check(name, True, gained)
    return Check(name, False, f"{gained}: {_ONLY_THE_SPAN}")
