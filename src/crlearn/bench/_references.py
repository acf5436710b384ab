"""References that know the truth: what no method can do better than. They are no methods.

A study gives them the truth of its world by ``truth = "$truth"`` among their parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.graph import layers, topological_order
from crlearn.inputs import read_environments
from crlearn.methods import MechanismNoisePosterior, MechanismsPosterior, PosteriorEncoder
from crlearn.result import Guarantee, LinearDecoder, LinearEncoder, Result

if TYPE_CHECKING:
    from crlearn.data import SCM, Mixing, Truth

Matrix = NDArray[np.floating]

_ROWS_AT_ONCE = 2000
# How far beyond the observations latents are looked for, in standard deviations of the noise.
_MARGIN = 5.0
_SMALLEST_VARIANCE = 1e-12  # of the noise, where there is none


class ExactPosterior(BaseCRL):
    """The posterior mean of the latents, given the truth: the floor for squared errors.

    Knows the structural causal models, the mixing and the measurement noise of the world, and
    integrates over a grid, by messages along the graph. Every latent has at most one parent, and
    the columns of the mixing are orthogonal. Cost: O(N n G^2) for G points of the grid.

    Parameters
    ----------
    truth
        Of a `crlearn.data.Dataset`.
    n_grid
        Points of the grid.
    random_state
        Not used.
    """

    _requires_y: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        truth: Truth | None = None,
        n_grid: int = 300,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.truth = truth
        self.n_grid = n_grid
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        mixing, _ = _measurement(self.truth)
        self.labels_ = read_environments(y, fewest=1).labels
        return Result(
            encoder=LinearEncoder(np.linalg.pinv(mixing), np.zeros(len(mixing))),
            decoder=LinearDecoder(mixing, np.zeros(len(mixing))),
            guarantee=Guarantee("none", "none", "a reference that was given the truth"),
            adjacency=None,
        )

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Matrix:
        """Return the posterior means of the latents of rows with environment labels `y`."""
        check_is_fitted(self)
        if y is None:
            raise ValueError("The exact posterior needs the environment label of each row in y.")
        mixing, noise_sd = _measurement(self.truth)
        assert self.truth is not None
        assert self.truth.scms is not None
        noisy = self.result_.encoder(np.asarray(X, dtype=float))
        sds = noise_sd / np.linalg.norm(mixing, axis=0)
        means = np.empty_like(noisy)
        for scm, label in zip(self.truth.scms, self.labels_, strict=True):
            rows = np.flatnonzero(np.asarray(y) == label)
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                part = rows[start : start + _ROWS_AT_ONCE]
                means[part] = posterior_means(scm, noisy[part], sds, self.n_grid)
        return means


class KnowsTruth(BaseCRL):
    """Base class of references that take the truth and nothing else."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        truth: Truth | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.truth = truth
        self.random_state = random_state


class GaussianPosterior(KnowsTruth):
    """Posterior means of the latents, given the truth but for the shape of their distribution.

    Knows the mixing, and of the rows that it is fitted to the means and covariances of latents and
    noise in each environment. No linear map is better for these rows, where noise is the same in
    all environments; where it differs, features are weighted by the noise of all together.

    Parameters
    ----------
    truth
        Of the `crlearn.data.Dataset` that it is fitted to.
    random_state
        Not used.
    """

    _requires_y: ClassVar[bool] = True

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        truth = self.truth
        if truth is None or not _is_affine(truth.mixing) or len(truth.Z) != len(X):
            raise ValueError("'truth' must be that of these rows, with a linear mixing.")
        environments = read_environments(y)
        offset = truth.mixing(np.zeros((1, truth.n_latents)))[0]
        matrix = (truth.mixing(np.eye(truth.n_latents)) - offset).T
        errors = X - truth.mixing(truth.Z)
        pooled = np.maximum(errors.var(axis=0), _SMALLEST_VARIANCE * X.var())
        weighted = matrix.T / pooled
        encoder = np.linalg.inv(weighted @ matrix) @ weighted
        inside = [environments.codes == e for e in range(len(environments))]
        noise = np.array([errors[rows].var(axis=0) for rows in inside])
        parts = [truth.Z[rows] for rows in inside]
        n = matrix.shape[1]
        return Result(
            encoder=PosteriorEncoder(
                encoder,
                offset,
                encoder @ (noise[:, :, None] * encoder.T),
                np.array([part.mean(axis=0) for part in parts]),
                np.array([np.cov(part.T).reshape(n, n) for part in parts]),
                truth.Z.mean(axis=0),
                np.cov(truth.Z.T).reshape(n, n),
                (encoder * pooled) @ encoder.T,
            ),
            decoder=LinearDecoder(matrix, offset),
            guarantee=Guarantee("none", "none", "a reference that was given the truth"),
            adjacency=None,
            environments=environments.names,
        )

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Matrix:
        """Return the posterior means of the latents of rows with environment labels `y`."""
        check_is_fitted(self)
        encoder = self.result_.encoder
        assert isinstance(encoder, PosteriorEncoder)
        codes = None if y is None else read_environments(np.asarray(y)).codes
        return encoder.posterior(np.asarray(X, dtype=float), codes).mean


class NoisePosterior(KnowsTruth):
    """Posterior means of latents and exogenous noises of one environment, given the truth.

    Knows the structural causal model, the mixing and the measurement noise of the world, and
    averages over draws of the latter.

    Parameters
    ----------
    truth
        Of a `crlearn.data.Dataset` with one environment.
    random_state
        Not used.
    """

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        truth = self.truth
        matrix = None if truth is None else truth.mixing.matrix
        if truth is None or matrix is None or truth.scms is None or len(truth.scms) != 1:
            raise ValueError(
                "'truth' must be that of a world with one environment, known models and a linear "
                "mixing."
            )
        assert truth.graph is not None
        offset = truth.mixing(np.zeros((1, matrix.shape[1])))[0]
        sd = truth.measurement_noise or _SMALLEST_VARIANCE
        signal = TrueSignal(truth.scms[0])
        posterior = MechanismsPosterior(
            LinearEncoder(np.linalg.pinv(matrix), offset),
            sd**2 * np.linalg.inv(matrix.T @ matrix),
            signal,
            np.ones(matrix.shape[1]),
        )
        return Result(
            encoder=posterior,
            decoder=LinearDecoder(matrix, offset),
            guarantee=Guarantee("none", "none", "a reference that was given the truth"),
            noise_encoder=MechanismNoisePosterior(posterior),
            layers=tuple(tuple(layer.tolist()) for layer in layers(truth.graph)),
        )


@dataclass(frozen=True, eq=False)
class TrueSignal:
    """The true distribution of latents: what `crlearn.likelihood.SignalPrior` is of a fit."""

    scm: SCM

    def latents(self, signal: Matrix) -> Matrix:
        """Return the latents, which the signal is."""
        return signal

    def noises(self, signal: Matrix) -> Matrix:
        """Return what the mechanisms leave of the latents."""
        left = signal.copy()
        for j, node in enumerate(self.scm.nodes):
            left[:, j] -= np.asarray(node.without_noise(signal[:, list(self.scm.parents(j))]))
        return left

    def log_density(self, signal: Matrix) -> NDArray[np.floating]:
        """Return the log-density of latents."""
        return self.scm.log_density(signal)


def posterior_means(
    scm: SCM, noisy: Matrix, noise_sds: NDArray[np.floating], n_grid: int
) -> Matrix:
    """Return E[z | z + noise] under a model in which no latent has two parents."""
    if scm.graph.sum(axis=0).max(initial=0) > 1:
        raise ValueError("The exact posterior needs a graph in which no latent has two parents.")
    low, high = noisy.min(axis=0), noisy.max(axis=0)
    grids = np.linspace(low - _MARGIN * noise_sds, high + _MARGIN * noise_sds, n_grid).T
    likelihood = {
        j: np.exp(-0.5 * ((noisy[:, [j]] - grids[j]) / noise_sds[j]) ** 2)
        for j in range(len(grids))
    }
    transition = {j: _transition(scm, j, grids) for j in range(len(grids))}
    children = {j: np.flatnonzero(scm.graph[j]).tolist() for j in range(len(grids))}
    order = topological_order(scm.graph).tolist()
    # From the leaves up: what the rows say of a latent through its effects.
    below: dict[int, Matrix] = {}
    to_parent: dict[int, Matrix] = {}
    for j in order[::-1]:
        below[j] = _scaled(_product([likelihood[j], *(to_parent[k] for k in children[j])]))
        if scm.parents(j):
            to_parent[j] = _scaled(below[j] @ transition[j].T)
    # From the roots down: what they say of it through its cause.
    means = np.empty_like(noisy)
    above: dict[int, Matrix] = {}
    for j in order:
        prior = transition[j][0] if not scm.parents(j) else above[j] @ transition[j]
        density = prior * below[j]
        means[:, j] = density @ grids[j] / density.sum(axis=1)
        for k in children[j]:
            others = [to_parent[i] for i in children[j] if i != k]
            above[k] = _scaled(prior * _product([likelihood[j], *others]))
    return means


def _transition(scm: SCM, latent: int, grids: Matrix) -> Matrix:
    """Return the density of a latent on its grid, one row for each point of its parent's."""
    parents = scm.parents(latent)
    at = grids[list(parents)].T if parents else np.zeros((1, 0))
    node = scm.nodes[latent]
    expected = np.broadcast_to(np.asarray(node.without_noise(at)), len(at))
    return np.exp(np.asarray(node.noise.log_density(grids[latent] - expected[:, None])))


def _product(factors: list[Matrix]) -> Matrix:
    return reduce(np.multiply, factors)


def _scaled(rows: Matrix) -> Matrix:
    """Bring the largest entry of each row to one: only ratios matter, and products underflow."""
    return rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-300)


def _is_affine(mixing: Mixing) -> bool:
    return all(layer.activation == "identity" for layer in mixing.layers)


def _measurement(truth: Truth | None) -> tuple[Matrix, float]:
    """Return the mixing and the measurement noise, or say why there is no exact posterior."""
    matrix = None if truth is None else truth.mixing.matrix
    if truth is None or truth.scms is None or matrix is None or not truth.measurement_noise:
        raise ValueError(
            "'truth' must be that of a world with known models, a linear mixing and measurement "
            f"noise. Got {truth if truth is None else 'one without'}."
        )
    inner = matrix.T @ matrix
    if np.abs(inner - np.diag(np.diag(inner))).max() > 1e-8 * np.abs(inner).max():
        raise ValueError("The exact posterior needs a mixing with orthogonal columns.")
    return matrix, truth.measurement_noise


def truth_parameters(truth: Truth) -> Mapping[str, Any]:
    """Return what a study may give of the truth to a row that is marked as knowing it."""
    return {
        "$truth": truth,
        "$true_mixing": truth.mixing.matrix,
        "$true_noise_variance": truth.measurement_noise**2,
    }
