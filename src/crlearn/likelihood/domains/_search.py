"""The unmixing of domains with known graph and targets: closed forms, then a search from them.

The criterion of the search says what fits. With an observational domain the likelihood of the same
conditions then has the last word: it is sharper where shifts are small or columns nearly alike.
Without one it changes nothing that can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._start import (
    Domains,
    Invariance,
    rotation_by_shifts,
    rotation_by_spreads,
    unmixing_by_steps,
    with_signs,
)

Matrix = NDArray[np.floating]

# The criterion counts moments as if they were Gaussian; they vary up to about this much more.
_INFLATION = 2.0
_UNLIKELY = 1e-4
# Base means are taken for zero unless the data say otherwise this strongly.
_NOT_ZERO = 1e-6
_MOST_STARTS = 40
# The likelihood takes the cube of this in time; beyond, the criterion's minimum is the answer.
_MOST_PARAMETERS = 800


@dataclass(frozen=True, eq=False)
class Unmixing:
    """What was found.

    Attributes
    ----------
    matrix
        One row a latent; the columns of its inverse have unit norm.
    value, freedom
        Of the criterion `Invariance`.
    zero_base
        Whether the means of latents without intervention were taken for zero.
    zero_base_fits
        Whether the data allow that; None if an observational domain shows these means.
    start
        Which start it was reached from.
    shift
        How far the smallest shift of a target's mean stands out from chance, in standard errors.
    """

    matrix: Matrix
    value: float
    freedom: int
    zero_base: bool
    zero_base_fits: bool | None
    start: str
    shift: float

    @property
    def fits(self) -> bool:
        """Whether moments are as the graph and the targets say, up to chance."""
        return self.value <= _limit(self.freedom)


def find_unmixing(domains: Domains, rng: np.random.Generator, *, orthogonal: bool) -> Unmixing:
    """Find the unmixing that makes the domains' moments agree with the graph and the targets.

    Parameters
    ----------
    domains
        Moments and what is known about them.
    rng
        For starts at random, which are tried while none of the closed forms fits.
    orthogonal
        Whether the columns of the mixing are orthogonal. If not, an observational domain is needed.
    """
    if len(domains.observational):
        found = _search(domains, rng, orthogonal, zero_base=False, zero_base_fits=None)
        return _sharpened(domains, found, orthogonal) if found.fits else found
    simple = _search(domains, rng, orthogonal, zero_base=True, zero_base_fits=True)
    if simple.fits:
        return simple
    free = _search(domains, rng, orthogonal, zero_base=False, zero_base_fits=False, first=simple)
    gain = simple.value - free.value
    return free if gain > _INFLATION * chi2.isf(_NOT_ZERO, domains.n_latents) else simple


def _search(
    domains: Domains,
    rng: np.random.Generator,
    orthogonal: bool,
    *,
    zero_base: bool,
    zero_base_fits: bool | None,
    first: Unmixing | None = None,
) -> Unmixing:
    criterion = Invariance(domains, zero_base=zero_base)
    freedom = criterion.freedom
    shifts, standing_out = rotation_by_shifts(domains)
    best: Unmixing | None = None
    for name, start in _starts(domains, rng, orthogonal, shifts, first):
        minimise = criterion.best_rotation if orthogonal else criterion.best_unmixing
        matrix, value = minimise(start)
        if best is None or value < best.value:
            matrix = with_signs(matrix, domains)
            best = Unmixing(matrix, value, freedom, zero_base, zero_base_fits, name, standing_out)
        is_last_closed_form = name == "spreads"
        if (is_last_closed_form or name == "random") and best.value <= freedom * _INFLATION:
            break
    assert best is not None
    return best


def _sharpened(domains: Domains, found: Unmixing, orthogonal: bool) -> Unmixing:
    """Return what was found with the most likely matrix near it."""
    likelihood = DomainLikelihood(domains, orthogonal=orthogonal)
    if likelihood.n_parameters > _MOST_PARAMETERS:
        return found
    starts = [found.matrix]
    if not orthogonal:  # nearly singular ones have several optima
        starts += [rotation_by_shifts(domains)[0], rotation_by_spreads(domains)]
    best = min((likelihood.best(start) for start in starts), key=lambda answer: answer[1])
    return replace(found, matrix=best[0])


def _starts(
    domains: Domains,
    rng: np.random.Generator,
    orthogonal: bool,
    shifts: Matrix,
    first: Unmixing | None,
) -> Iterator[tuple[str, Matrix]]:
    if first is not None:
        yield first.start, first.matrix
    if not orthogonal:
        yield "steps", unmixing_by_steps(domains)
    yield "shifts", shifts
    yield "spreads", rotation_by_spreads(domains)
    n = domains.n_latents
    for _ in range(_MOST_STARTS):
        yield "random", np.linalg.qr(rng.standard_normal((n, n)))[0]


def _limit(freedom: int) -> float:
    return float(_INFLATION * chi2.isf(_UNLIKELY, freedom))
