"""Noise of any shape with nonlinear mechanisms: the last fit of an encoder whose graph is known.

As in `nodes._any_noise`, with the features of `nodes._basis` in place of
the parents. With psi the scores of the noise and S the slopes of the mechanisms, the derivative of
a row's log-likelihood by D in (I + D) H is -(psi - S'psi) z', and by the coefficients of mechanism
j it is psi_j times the features. The form of the features stays as it was at the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._density import Density, fit_density
from crlearn.likelihood.core._newton import moved
from crlearn.likelihood.nodes._basis import Basis

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
Graph = Sequence[tuple[int, ...]]
Key = tuple[int, int]

_MOST_STEPS = 30
_MOST_ROUNDS = 4
_LEAST_GAIN = 1.0
_MOST_TRIES = 6
_LONGEST_STEP = 0.3
_BLOCK = 2048
_ROWS_FOR_INFORMATION = 4_000  # of an environment
_ROWS_FOR_FEATURES = 12_000  # of all environments
_RIDGE = 1e-5
_GAUSSIAN = 0.5 * (1 + np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class _Fit:
    """Encoder, coefficients of the features, and densities, by latent and pool."""

    H: Matrix
    coefficients: dict[Key, Matrix]
    densities: dict[Key, Density]
    value: float = np.inf

    @property
    def freedom(self) -> float:
        return sum(density.freedom for density in self.densities.values())


@dataclass(frozen=True, eq=False)
class CurvedFit:
    """An encoder for noise of any shape.

    Attributes
    ----------
    H
        Encoder.
    bic
        Negative log-likelihood with the cost of features and densities, in nats.
    is_gaussian
        Whether all noise is taken for Gaussian.
    """

    H: Matrix
    bic: float
    is_gaussian: bool


def fit_noise_nonlinear(
    rows: Sequence[Matrix], pool: IntMatrix, graph: Graph, H: Matrix, *, hard: bool
) -> CurvedFit:
    """Fit encoder, mechanisms and densities, from an encoder that was fitted for Gaussian noise.

    Parameters
    ----------
    rows
        Of each environment, reduced to as many dimensions as there are latents.
    pool
        ``pool[j, e]`` is the pool of environment e for latent j.
    graph
        Parents of each latent.
    H
        Encoder to start from.
    hard
        Whether latents have parents in pool 0 only, or in every pool.
    """
    best: CurvedFit | None = None
    for _ in range(_MOST_ROUNDS):  # the form of the features is fitted anew in each
        model = _Model.of(rows, pool, graph, H if best is None else best.H, hard=hard)
        start = model.gaussian(H if best is None else best.H)
        found = _raised(model, model.refitted(start))
        fit = CurvedFit(found.H, model.bic(found), found.freedom == 0)
        if best is not None and fit.bic > best.bic - _LEAST_GAIN:
            break
        best = fit
        if fit.is_gaussian:
            break
    assert best is not None
    return best


def _raised(model: _Model, start: _Fit) -> _Fit:
    """Raise the likelihood: a step, then densities of the residuals, and so on."""
    now = start
    for step in range(_MOST_STEPS):
        if now.freedom == 0:
            break
        stepped = model.step(now)
        again = step % 3 == 0
        found = min(stepped, model.refitted(stepped, keep_penalties=not again), key=model.bic)
        gained = model.bic(now) - model.bic(found)
        if gained > 0:
            now = found
        if gained < _LEAST_GAIN and not again:
            break
    return now


@dataclass(frozen=True, eq=False)
class _Model:
    rows: tuple[Matrix, ...]
    pool: IntMatrix
    parents: dict[Key, list[int]]
    bases: dict[Key, Basis]
    covariance: Matrix

    @classmethod
    def of(
        cls, rows: Sequence[Matrix], pool: IntMatrix, graph: Graph, H: Matrix, *, hard: bool
    ) -> _Model:
        everything = np.concatenate(rows)
        mean = everything.mean(axis=0)
        covariance = np.cov(everything.T, bias=True)
        keys = [(j, int(p)) for j in range(len(pool)) for p in np.unique(pool[j])]
        parents = {(j, p): list(graph[j]) if p == 0 or not hard else [] for j, p in keys}
        centred = tuple(each - mean for each in rows)
        model = cls(centred, pool, parents, {}, np.atleast_2d(covariance))
        H = model.scaled(H)
        every = -(-len(everything) // _ROWS_FOR_FEATURES)
        for key, columns in parents.items():
            if columns:
                z = np.concatenate(list(model.latents(H, key)))[::every].astype(np.float32)
                child = z[:, key[0]] + np.float32(H[key[0]] @ mean)  # from its own origin
                basis = Basis.plain(len(columns)).fitted_to([(z[:, columns], child)])
                model.bases[key] = basis
        return model

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return sum(map(len, self.rows))

    def scaled(self, H: Matrix) -> Matrix:
        """Give every latent unit variance over all rows: the features expect it."""
        return H / np.sqrt(np.einsum("ja,ab,jb->j", H, self.covariance, H))[:, None]

    def bic(self, fit: _Fit) -> float:
        """Return the negative log-likelihood with the cost of features and densities."""
        cost = fit.freedom + sum(map(len, fit.coefficients.values()))
        return fit.value * self.n_samples + 0.5 * np.log(self.n_samples) * cost

    def features(self, key: Key, z: Matrix) -> Matrix:
        """Return the features of the parents; a constant if there are none."""
        if not self.parents[key]:
            return np.ones((len(z), 1))
        return self.bases[key](z[:, self.parents[key]].astype(np.float32)).values

    def latents(self, H: Matrix, key: Key) -> Iterator[Matrix]:
        """Yield the latents in a pool, block by block."""
        for e in np.flatnonzero(self.pool[key[0]] == key[1]):
            yield from _blocks(self.rows[e], H)

    def gaussian(self, H: Matrix) -> _Fit:
        """Regress by least squares."""
        H = self.scaled(H)
        coefficients: dict[Key, Matrix] = {}
        densities: dict[Key, Density] = {}
        for key in self.parents:
            gram, crossed = 0.0, 0.0
            for z in self.latents(H, key):
                values = self.features(key, z).astype(float)
                gram, crossed = gram + values.T @ values, crossed + values.T @ z[:, key[0]]
            gram = np.atleast_2d(gram)
            ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
            coefficients[key] = np.linalg.solve(gram + ridge, np.atleast_1d(crossed))
        fit = _Fit(H, coefficients, densities)
        for key in self.parents:
            densities[key] = Density.gaussian(float(self.residuals(fit, key).std()))
        return replace(fit, value=self.value(fit))

    def residuals(self, fit: _Fit, key: Key) -> Matrix:
        """Return the residuals of a latent in a pool."""
        beta = fit.coefficients[key]
        return np.concatenate(
            [z[:, key[0]] - self.features(key, z) @ beta for z in self.latents(fit.H, key)]
        )

    def value(self, fit: _Fit) -> float:
        """Return the mean negative log-likelihood, up to the constant of the Gaussian F."""
        total = sum(
            float(density.log_density(self.residuals(fit, key)).sum())
            for key, density in fit.densities.items()
        )
        return float(-np.linalg.slogdet(fit.H)[1] - total / self.n_samples - len(fit.H) * _GAUSSIAN)

    def refitted(self, fit: _Fit, *, keep_penalties: bool = False) -> _Fit:
        """Fit the densities to the residuals, whose means become part of the mechanisms."""
        coefficients, densities = dict(fit.coefficients), {}
        for key, density in fit.densities.items():
            residuals = self.residuals(fit, key)
            mean = residuals.mean()
            constant = np.zeros(len(coefficients[key]))
            constant[0] = mean  # the first feature is 1
            coefficients[key] = coefficients[key] + constant
            densities[key] = fit_density(
                residuals - mean, density.penalty if keep_penalties else None
            )
        found = replace(fit, coefficients=coefficients, densities=densities)
        return replace(found, value=self.value(found))

    def step(self, fit: _Fit) -> _Fit:
        """Take one step of Fisher's scoring, shorter if need be."""
        gradient, information = self.scatter(fit)
        size = np.sqrt(np.maximum(np.diag(information), 1e-12))
        scaled = information / np.outer(size, size) + _RIDGE * np.eye(len(size))
        step = np.linalg.solve(scaled, gradient / size) / size
        n_moved = len(fit.H) * (len(fit.H) - 1)
        step = step * min(1.0, _LONGEST_STEP / max(np.abs(step[:n_moved]).max(), 1e-300))
        for _ in range(_MOST_TRIES):
            parts = np.split(step[n_moved:], self._ends(fit)[:-1])
            coefficients = {
                key: beta + part
                for (key, beta), part in zip(fit.coefficients.items(), parts, strict=True)
            }
            found = replace(fit, H=moved(fit.H, step[:n_moved]), coefficients=coefficients)
            value = self.value(found)
            if value < fit.value:
                return replace(found, value=value)
            step = step / 3
        return fit

    def scatter(self, fit: _Fit) -> tuple[Matrix, Matrix]:
        """Return the gradient of the log-likelihood of all rows, and the scatter of its parts."""
        n, ends = len(fit.H), self._ends(fit)
        n_moved = n * (n - 1)
        starts = dict(zip(fit.coefficients, n_moved + np.append(0, ends[:-1]), strict=True))
        n_parameters = n_moved + int(ends[-1])
        kept = ~np.eye(n, dtype=bool).ravel()
        gradient, information = np.zeros(n_parameters), np.zeros((n_parameters, n_parameters))
        for e, rows in enumerate(self.rows):
            seen, share = 0, len(rows) / min(len(rows), _ROWS_FOR_INFORMATION)
            for z in _blocks(rows, fit.H):
                parts = np.zeros((len(z), n_parameters))
                moving = np.zeros(z.shape)
                for j in range(n):
                    key = (j, int(self.pool[j, e]))
                    psi = self._scores(fit, key, z, parts[:, starts[key] :], moving)
                    moving[:, j] += psi
                products = (moving[:, :, None] * z[:, None, :]).reshape(len(z), -1)
                parts[:, :n_moved] = -products[:, kept]
                gradient += parts.sum(axis=0)
                some = parts[: max(0, _ROWS_FOR_INFORMATION - seen)]
                information += share * (some.T @ some)
                seen += len(z)
        return gradient, information

    def _scores(self, fit: _Fit, key: Key, z: Matrix, parts: Matrix, moving: Matrix) -> Matrix:
        """Return the scores of a latent's noise; write what they mean for its mechanism."""
        j, beta, parents = key[0], fit.coefficients[key], self.parents[key]
        if not parents:
            psi = fit.densities[key].score(z[:, j] - beta[0])
            parts[:, 0] = psi
            return psi
        features = self.bases[key](z[:, parents].astype(np.float32))
        psi = fit.densities[key].score(z[:, j] - features.values @ beta)
        parts[:, : len(beta)] = psi[:, None] * features.values
        moving[:, parents] -= psi[:, None] * features.slope(beta.astype(np.float32))
        return psi

    def _ends(self, fit: _Fit) -> NDArray[np.intp]:
        return np.cumsum([len(beta) for beta in fit.coefficients.values()])


def _blocks(rows: Matrix, H: Matrix) -> Iterator[Matrix]:
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK] @ H.T
