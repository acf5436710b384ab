"""Where mechanisms vanish: the one function that many segments have in common.

A flow knows a latent up to a function h of its predecessors, which every segment's regression takes
along. Where the mechanism vanishes the regression is h itself, and so the same in all these
segments, while others have functions of their own. The functions of all segments differ in a few
directions (`factors`); among their coordinates there, those of segments without a mechanism are one
point, those of the others a Gaussian: a mixture that expectation maximisation finds (`vanishing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

Matrix = NDArray[np.floating]
Float3 = NDArray[np.floating]  # a matrix for each segment

_RIDGE = 1e-3
_TINY = 1e-9
_STEPS_OF_FACTORS = 60  # of expectation maximisation
_STEPS_OF_MIXTURE = 100
_MOST_FACTORS = 8
_FEWEST_IN_COMMON = 3  # segments; two functions are close to each other by chance
_SAME_FUNCTION = 0.05  # difference of functions, as a share of the variance of the latent
_FIRST_SHARE = 0.3  # of segments without mechanism, before anything is known
_PRIOR_SEGMENTS = 2.0  # that the covariance of mechanisms has seen before the data
_PRIOR_VARIANCE = 0.02  # in them; factors have variance one


class SegmentFunctions(NamedTuple):
    """The regression functions of one latent, as far as each segment knows its own.

    The coefficients of segment u have the precision matrix ``precisions[u]``, and their estimate
    times it is ``informations[u]``.
    """

    precisions: Float3
    informations: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Segments and features."""
        return self.informations.shape[0], self.informations.shape[1]

    def log_likelihoods(self, coefficients: Matrix) -> Matrix:
        """Return those of each segment under common coefficients, up to a constant."""
        squares = np.einsum("i,uij,j->u", coefficients, self.precisions, coefficients)
        return self.informations @ coefficients - 0.5 * squares

    def estimates(self) -> Matrix:
        """Return the coefficients of each segment."""
        ridge = _RIDGE * np.einsum("uii->ui", self.precisions) + _TINY
        regular = self.precisions + ridge[:, None] * np.eye(self.shape[1])
        return np.linalg.solve(regular, self.informations[..., None])[..., 0]


def functions_of(features: Sequence[Matrix], values: Sequence[Matrix]) -> SegmentFunctions:
    """Regress values on features, whose rows are given for every segment, with mean 0 there."""
    precisions, informations = [], []
    for x, t in zip(features, values, strict=True):
        gram, moments = x.T @ x, x.T @ t
        regular = gram + np.diag(_RIDGE * gram.diagonal() + _TINY)
        solution = np.linalg.solve(regular, moments)
        squares = float(t @ t - 2 * solution @ moments + solution @ gram @ solution)
        variance = max(squares, _TINY) / max(len(t) - x.shape[1], 1)
        precisions.append(gram / variance)
        informations.append(moments / variance)
    return SegmentFunctions(np.array(precisions), np.array(informations))


class Factors(NamedTuple):
    """Coefficients are ``mean + directions @ a``, with a standard Gaussian a in each segment."""

    mean: Matrix
    directions: Matrix
    log_likelihood: float

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.directions.shape[1]


def factors(functions: SegmentFunctions) -> Factors:
    """Return in how many directions the functions of the segments differ, and in which.

    Directions are added while the Bayesian information criterion rises.
    """
    n_segments, n_features = functions.shape
    most = min(_MOST_FACTORS, n_features, max(n_segments - 2, 0))
    price = 0.5 * n_features * np.log(n_segments)
    best = _with_rank(functions, 0)
    for rank in range(1, most + 1):
        more = _with_rank(functions, rank)
        if more.log_likelihood - best.log_likelihood < price:
            break
        best = more
    return best


def _with_rank(functions: SegmentFunctions, rank: int) -> Factors:
    """Fit a factor model by expectation maximisation, from the principal directions."""
    n_segments, n_features = functions.shape
    precisions, informations = functions
    total = precisions.sum(axis=0)
    ridge = np.diag(_RIDGE * total.diagonal() / n_segments + _TINY)
    mean = np.linalg.solve(total + ridge, informations.sum(axis=0))
    if not rank:
        return Factors(mean, np.zeros((n_features, 0)), functions.log_likelihoods(mean).sum())
    around = np.linalg.solve(precisions + ridge, (informations - precisions @ mean)[..., None])
    _, sizes, right = np.linalg.svd(around[..., 0], full_matrices=False)
    directions = right[:rank].T * sizes[:rank] / np.sqrt(n_segments)
    prior = np.kron(np.eye(rank + 1), _RIDGE * ridge)
    for _ in range(_STEPS_OF_FACTORS):
        a, covariance, _ = _posterior(functions, mean, directions)
        a = np.concatenate([np.ones((n_segments, 1)), a], axis=1)
        squares = a[:, :, None] * a[:, None]
        squares[:, 1:, 1:] += covariance
        system = np.einsum("uab,uij->aibj", squares, precisions).reshape(prior.shape)
        response = np.einsum("ua,ui->ai", a, informations).ravel()
        solution = np.linalg.solve(system + prior, response).reshape(rank + 1, n_features)
        mean, directions = solution[0], solution[1:].T
    return Factors(mean, directions, _posterior(functions, mean, directions)[2])


def _posterior(
    functions: SegmentFunctions, mean: Matrix, directions: Matrix
) -> tuple[Matrix, Float3, float]:
    """Return means and covariances of the coordinates, and the log-likelihood."""
    precisions, informations = functions
    shift = (informations - precisions @ mean) @ directions
    system = np.eye(directions.shape[1]) + _between(directions, precisions)
    a = np.linalg.solve(system, shift[..., None])[..., 0]
    explained = 0.5 * (shift * a).sum(axis=1) - 0.5 * np.linalg.slogdet(system)[1]
    return a, np.linalg.inv(system), float((explained + functions.log_likelihoods(mean)).sum())


def _between(directions: Matrix, precisions: Float3) -> Float3:
    return directions.T @ (precisions @ directions)


@dataclass(frozen=True, eq=False)
class Vanishing:
    """Where the mechanism of a latent vanishes.

    Attributes
    ----------
    coefficients
        Of the function that these segments have in common; None if there is none.
    probabilities
        For each segment, that the mechanism vanishes in it.
    evidence
        Nats by which a common function explains the segments better than none.
    gap
        Nats by which it explains them better than another function that segments may have in
        common, and that leaves other latents.
    rank
        In how many directions the functions of the segments differ; 0: they do not.
    """

    coefficients: Matrix | None
    probabilities: Matrix
    evidence: float
    gap: float
    rank: int


def vanishing(
    functions: SegmentFunctions, covariance: Matrix, places: Matrix | None = None
) -> Vanishing:
    """Find the function that segments without a mechanism have in common.

    Parameters
    ----------
    functions
        What each segment knows of its own function.
    covariance
        Of the features over all segments, for values of variance one: functions that differ by
        little variance are the same answer.
    places
        Where segments lie that change smoothly from place to place. Neighbours are alike then,
        whether mechanisms vanish or not, and say less than they would if each stood for itself.
    """
    n_segments, _ = functions.shape
    found = factors(functions)
    if not found.rank:
        return Vanishing(found.mean, np.ones(n_segments), np.inf, np.inf, 0)
    coordinates = _coordinates(functions, found)
    mixtures = _Mixtures.started(coordinates).settled(coordinates)
    log_likelihoods, belongs = mixtures.outcome(coordinates)
    log_likelihoods[belongs.sum(axis=1) < _FEWEST_IN_COMMON] = -np.inf
    best = int(log_likelihoods.argmax())
    if not np.isfinite(log_likelihoods[best]):
        return Vanishing(None, np.zeros(n_segments), -np.inf, 0.0, found.rank)
    off = (mixtures.points - mixtures.points[best]) @ found.directions.T
    others = log_likelihoods[((off @ covariance) * off).sum(axis=1) > _SAME_FUNCTION]
    price = 0.5 * (found.rank + 1) * np.log(n_segments)
    without = _without_common_function(coordinates)
    independent = 1.0 if places is None else _independent_share(coordinates, places)
    return Vanishing(
        found.mean + found.directions @ mixtures.points[best],
        belongs[best],
        independent * float(log_likelihoods[best] - without - price),
        independent * float(log_likelihoods[best] - others.max(initial=-np.inf)),
        found.rank,
    )


def _independent_share(coordinates: SegmentFunctions, places: Matrix) -> float:
    """Return how many independent segments say as much as one of these.

    Coordinates that neighbours share by r, and other segments by powers of r in every direction of
    their places, have means of as many independent ones as ((1 - r) / (1 + r)) to the power of the
    number of directions.
    """
    a = coordinates.estimates()
    a = (a - a.mean(axis=0)) / (a.std(axis=0) + _TINY)
    nearest = NearestNeighbors(n_neighbors=1).fit(places).kneighbors(return_distance=False)[:, 0]
    r = float(np.clip((a * a[nearest]).mean(), 0, 1 - _TINY))
    return ((1 - r) / (1 + r)) ** places.shape[1]


def _coordinates(functions: SegmentFunctions, found: Factors) -> SegmentFunctions:
    """Return the functions in the directions in which they differ.

    What is left of them outside says how much more they differ than regressions know of: that the
    flow is not exact, say. Precisions are lowered by as much.
    """
    precisions, informations = functions
    n_features, rank = found.directions.shape
    inside = SegmentFunctions(
        _between(found.directions, precisions),
        (informations - precisions @ found.mean) @ found.directions,
    )
    everything = 0.5 * (functions.estimates() * informations).sum(axis=1)
    explained = 0.5 * (inside.estimates() * inside.informations).sum(axis=1)
    left = everything - explained - functions.log_likelihoods(found.mean)
    inflation = max(float(np.median(2 * left)) / max(n_features - rank, 1), 1.0)
    return SegmentFunctions(inside.precisions / inflation, inside.informations / inflation)


class _Mixtures(NamedTuple):
    """Mixtures of a point and a Gaussian, one for each start."""

    points: Matrix
    shares: Matrix
    means: Matrix
    covariances: Float3

    @classmethod
    def started(cls, coordinates: SegmentFunctions) -> _Mixtures:
        """Return one mixture for each segment, whose function is the point."""
        n_segments, rank = coordinates.shape
        shrunken = coordinates.precisions + np.eye(rank)
        a = np.linalg.solve(shrunken, coordinates.informations[..., None])[..., 0]
        covariance = np.cov(a.T).reshape(rank, rank) + _PRIOR_VARIANCE * np.eye(rank)
        return cls(
            a,
            np.full(n_segments, _FIRST_SHARE),
            np.tile(a.mean(axis=0), (n_segments, 1)),
            np.tile(covariance, (n_segments, 1, 1)),
        )

    def settled(self, coordinates: SegmentFunctions) -> _Mixtures:
        """Return what expectation maximisation makes of the mixtures."""
        mixtures = self
        for _ in range(_STEPS_OF_MIXTURE):
            mixtures = mixtures.improved(coordinates)
        return mixtures

    def improved(self, coordinates: SegmentFunctions) -> _Mixtures:
        n_segments, rank = coordinates.shape
        _, belongs = self.outcome(coordinates)
        precision = np.einsum("su,uij->sij", belongs, coordinates.precisions)
        information = belongs @ coordinates.informations
        points = np.linalg.solve(precision + _TINY * np.eye(rank), information[..., None])[..., 0]
        means, covariances = _gaussian_step(self.means, self.covariances, coordinates, 1 - belongs)
        shares = (belongs.sum(axis=1) + 0.5) / (n_segments + 1)
        return _Mixtures(points, shares, means, covariances)

    def outcome(self, coordinates: SegmentFunctions) -> tuple[Matrix, Matrix]:
        """Return log-likelihoods, and the probabilities of segments to belong to the point."""
        precisions, informations = coordinates
        squares = np.einsum("si,uij,sj->su", self.points, precisions, self.points)
        at_point = self.points @ informations.T - 0.5 * squares
        elsewhere, _, _ = _gaussian_posterior(self.means, self.covariances, coordinates)
        at_point += np.log(self.shares)[:, None]
        total = np.logaddexp(at_point, elsewhere + np.log1p(-self.shares)[:, None])
        return total.sum(axis=1), np.exp(at_point - total)


def _gaussian_posterior(
    means: Matrix, covariances: Float3, coordinates: SegmentFunctions
) -> tuple[Matrix, Float3, NDArray[np.floating]]:
    """Return log-likelihoods of segments under Gaussians, and what they say of coordinates."""
    precisions, informations = coordinates
    inverse = np.linalg.inv(covariances)
    from_prior = (inverse @ means[..., None])[..., 0]
    system = precisions + inverse[:, None]
    right = informations + from_prior[:, None]
    posterior = np.linalg.solve(system, right[..., None])[..., 0]
    log_determinants = np.linalg.slogdet(system)[1] + np.linalg.slogdet(covariances)[1][:, None]
    constant = (means * from_prior).sum(axis=1)[:, None]
    log_likelihoods = 0.5 * ((right * posterior).sum(axis=-1) - constant - log_determinants)
    return log_likelihoods, posterior, np.linalg.inv(system)


def _gaussian_step(
    means: Matrix, covariances: Float3, coordinates: SegmentFunctions, weights: Matrix
) -> tuple[Matrix, Float3]:
    """Return Gaussians that suit segments better, which count as much as their weights."""
    _, posterior, spread = _gaussian_posterior(means, covariances, coordinates)
    total = weights.sum(axis=1) + _TINY
    means = np.einsum("su,sui->si", weights, posterior) / total[:, None]
    around = posterior - means[:, None]
    squares = np.einsum("su,sui,suj->sij", weights, around, around)
    squares += np.einsum("su,suij->sij", weights, spread)
    squares += _PRIOR_SEGMENTS * _PRIOR_VARIANCE * np.eye(means.shape[1])
    return means, squares / (total + _PRIOR_SEGMENTS)[:, None, None]


def _without_common_function(coordinates: SegmentFunctions) -> float:
    """Return the log-likelihood if every segment has a function of its own."""
    n_segments, rank = coordinates.shape
    means, covariances = np.zeros((1, rank)), np.eye(rank)[None]
    for _ in range(_STEPS_OF_MIXTURE):
        means, covariances = _gaussian_step(
            means, covariances, coordinates, np.ones((1, n_segments))
        )
    return float(_gaussian_posterior(means, covariances, coordinates)[0].sum())
