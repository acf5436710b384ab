"""The unmixing of domains with known graph and targets: closed forms, then a search from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._precision import Optimum
from crlearn.likelihood.domains._start import (
    Domains,
    rotation_by_shifts,
    rotation_by_spreads,
)
from crlearn.result import SAME_ANSWER

Matrix = NDArray[np.floating]

_UNLIKELY = 1e-3  # level of the tests whether it fits, and whether means are zero
_MOST_STARTS = 10  # at random; enough in worlds like those of wu2026-harder, seeds 0 to 9
# Starts at random after one fits, to look for other answers, and the steps after which it is seen
# where they lead: with four latents 30 of the 30 to 100 that they take to the end.
_PROBES, _FEW_STEPS = 2, 30
# Nats within which another answer is followed to its end, and a reason to look for more; several
# times what is asked for.
_NEAR = 40.0


@dataclass(frozen=True, eq=False)
class Rival:
    """An optimum with other latents.

    Attributes
    ----------
    matrix
        As that of `Unmixing`.
    gap
        Nats of log-likelihood by which it is behind.
    agreement
        Mean absolute correlation of its latents with those of the answer, inside domains.
    """

    matrix: Matrix
    gap: float
    agreement: float


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
        Whether the data allow that; None if a domain, or different doses, show these means.
    start
        Which start it was reached from.
    shift
        How far the smallest shift of a target's mean stands out from chance, in standard errors.
    inflation
        How much more the value varies than if rows were Gaussian; 1 unless that could matter.
    mixed_shares
        Share of each latent's variance that is expected to be that of others, by the width of the
        optimum.
    rivals
        Optima with another answer that other starts reached, within 40 nats, the best first.
    """

    matrix: Matrix
    value: float
    freedom: int
    zero_base: bool
    zero_base_fits: bool | None
    start: str
    shift: float
    inflation: float
    mixed_shares: Matrix
    rivals: tuple[Rival, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether moments are as the graph and the targets say, up to chance."""
        return self.value <= self.inflation * _limit(self.freedom)


def find_unmixing(domains: Domains, rng: np.random.Generator, *, orthogonal: bool) -> Unmixing:
    """Find the unmixing that makes the domains' moments agree with the graph and the targets.

    Parameters
    ----------
    domains
        Moments and what is known about them.
    rng
        For starts at random: some always, more while none fits or another answer is near.
    orthogonal
        Whether the columns of the mixing are orthogonal. If not, an observational domain is needed.
    """
    if domains.shows_base:
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
    likely = _limit(freedom)
    shifts, standing_out = rotation_by_shifts(domains)
    optima: list[_Found] = []
    best, rivals, n_probes = None, (), 0
    for name, start in _starts(domains, rng, shifts, first):
        if name == "random" and best is not None and best.value <= likely:
            if n_probes >= _PROBES and not rivals:
                break
            n_probes += 1
            found, value = likelihood.best(start, _FEW_STEPS)
            if value > best.value + 2 * _NEAR or _is_same(domains, found, best.matrix):
                continue
            start = found
        optima.append(_Found(name, *likelihood.best(start)))
        best = min(optima, key=lambda optimum: optimum.value)
        rivals = _rivals(domains, best, optima)
    assert best is not None
    around = Optimum.of(likelihood, best.matrix)
    return Unmixing(
        best.matrix,
        best.value,
        freedom,
        zero_base,
        zero_base_fits,
        best.start,
        standing_out,
        around.inflation(rng) if best.value > likely else 1.0,
        around.mixed_shares(),
        rivals,
    )


class _Found(NamedTuple):
    start: str
    matrix: Matrix
    value: float


def _rivals(domains: Domains, best: _Found, optima: Sequence[_Found]) -> tuple[Rival, ...]:
    """Return the optima that are near and have another answer, each once."""
    found: list[Rival] = []
    for each in sorted(optima, key=lambda optimum: optimum.value):
        gap = (each.value - best.value) / 2  # values are twice a log-ratio
        known = [best.matrix, *(rival.matrix for rival in found)]
        if gap < _NEAR and not any(_is_same(domains, each.matrix, other) for other in known):
            found.append(Rival(each.matrix, gap, agreement(domains, best.matrix, each.matrix)))
    return tuple(found)


def _is_same(domains: Domains, one: Matrix, other: Matrix) -> bool:
    return agreement(domains, one, other) >= SAME_ANSWER


def agreement(domains: Domains, one: Matrix, other: Matrix) -> float:
    """Return the mean absolute correlation of latents of two unmixings inside domains.

    Graph and targets name the latents: they are not matched, each is compared with its own.
    """
    share = domains.sizes / domains.sizes.sum()
    covariance = np.einsum("e,eij->ij", share, domains.covariances)
    between = np.einsum("ji,ik,jk->j", one, covariance, other)
    scales = [np.einsum("ji,ik,jk->j", each, covariance, each) for each in (one, other)]
    return float(np.mean(np.abs(between) / np.sqrt(scales[0] * scales[1])))


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
    """Return what the value hardly ever exceeds if rows are Gaussian."""
    return float(chi2.isf(_UNLIKELY, freedom))
