"""The unmixing of domains with known graph and targets: closed forms, then a search from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._start import (
    Domains,
    rotation_by_shifts,
    rotation_by_spreads,
)

Matrix = NDArray[np.floating]

# The likelihood counts moments as if they were Gaussian; they vary up to about this much more.
_INFLATION = 2.0
_UNLIKELY = 1e-4  # level of the tests whether it fits, and whether means are zero
_MOST_STARTS = 10  # at random; enough in worlds like those of wu2026-harder, seeds 0 to 9


@dataclass(frozen=True, eq=False)
class Unmixing:
    """What was found.

    Attributes
    ----------
    matrix
        One row a latent; the columns of its inverse have unit norm.
    value, freedom
        Of `DomainLikelihood`.
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
        return _search(domains, rng, orthogonal, zero_base=False, zero_base_fits=None)
    simple = _search(domains, rng, orthogonal, zero_base=True, zero_base_fits=True)
    if simple.fits:
        return simple
    free = _search(domains, rng, orthogonal, zero_base=False, zero_base_fits=False, first=simple)
    gain = simple.value - free.value
    return free if gain > _limit(domains.n_latents) else simple


def _search(
    domains: Domains,
    rng: np.random.Generator,
    orthogonal: bool,
    *,
    zero_base: bool,
    zero_base_fits: bool | None,
    first: Unmixing | None = None,
) -> Unmixing:
    likelihood = DomainLikelihood(domains, orthogonal=orthogonal, zero_base=zero_base)
    freedom = likelihood.freedom
    likely = chi2.isf(_UNLIKELY, freedom)  # if moments were Gaussian
    shifts, standing_out = rotation_by_shifts(domains)
    best: Unmixing | None = None
    for name, start in _starts(domains, rng, shifts, first):
        matrix, value = likelihood.best(start)
        if best is None or value < best.value:
            best = Unmixing(matrix, value, freedom, zero_base, zero_base_fits, name, standing_out)
        if name in ("spreads", "random") and best.value <= likely:
            break
    assert best is not None
    return best


def _starts(
    domains: Domains,
    rng: np.random.Generator,
    shifts: Matrix,
    first: Unmixing | None,
) -> Iterator[tuple[str, Matrix]]:
    if first is not None:
        yield first.start, first.matrix
    yield "shifts", shifts
    yield "spreads", rotation_by_spreads(domains)
    n = domains.n_latents
    for _ in range(_MOST_STARTS):
        yield "random", np.linalg.qr(rng.standard_normal((n, n)))[0]


def _limit(freedom: int) -> float:
    return float(_INFLATION * chi2.isf(_UNLIKELY, freedom))
