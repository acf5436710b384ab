"""Noise of any shape for linear latents: a fit that starts from the Gaussian one.

Latent j is a linear function of its parents plus noise whose density, in each pool, is fitted as in
`core._density`. Covariances are no longer all that matters: noise that is not
Gaussian tells more about the encoder, as in independent component analysis.

With C the rows of I - B, residuals r = C z and scores psi_j = -(log f_j)'(r_j), the derivative of
the log-likelihood of a row by D in (I + D) H is -(C'psi) z', and by the coefficient of z_i in
mechanism j it is psi_j z_i. Steps are those of Fisher's scoring with the scatter of these
derivatives as information; after each the densities are fitted anew. Every step raises the
likelihood, so the answer is never worse than the Gaussian one.

Time grows linearly in the rows, and there are about ten steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._density import Density, fit_density
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._newton import moved

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
Densities = dict[tuple[int, int], Density]

_MOST_STEPS = 12
_LEAST_GAIN = 0.5  # of the log-likelihood of all rows, in nats
_STEPS_WITH_NEW_SHAPES = 3
_MOST_TRIES = 8
_LONGEST_STEP = 0.5
_BLOCK = 4096
_MOST_ROWS = 20_000  # of an environment, for the information
_MOST_PRODUCTS = 3e10
_GAUSSIAN = 0.5 * (1 + np.log(2 * np.pi))  # what F leaves out, for each latent


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """Encoder, mechanisms and densities of the noise.

    Attributes
    ----------
    H
        Encoder, with rows of unit length.
    coefficients
        ``coefficients[j, p, i]`` is that of latent i in the mechanism of latent j in pool p.
    densities
        Of the noise of latent j in pool p, by (j, p), around its mean.
    value
        Mean negative log-likelihood, up to the same constant as the Gaussian F.
    """

    H: Matrix
    coefficients: Matrix
    densities: Densities
    value: float

    @property
    def is_gaussian(self) -> bool:
        """Whether all noise is taken for Gaussian."""
        return all(density.freedom == 0 for density in self.densities.values())


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """The likelihood of some rows, for parents that are given.

    Attributes
    ----------
    rows
        Of each environment, in the coordinates of the moments.
    moments
        Of these rows.
    pool
        ``pool[j, e]`` is the pool of environment e for latent j.
    pools
        Of the moments.
    masks
        Which parents each latent has in which pool, ``(n, P, n)``.
    """

    rows: tuple[Matrix, ...]
    moments: Moments
    pool: IntMatrix
    pools: Pools
    masks: Matrix

    @classmethod
    def of(cls, rows: Sequence[Matrix], pool: IntMatrix, masks: Matrix) -> NoiseModel:
        """Form moments and pools of the rows."""
        moments = Moments.of(rows)
        return cls(tuple(rows), moments, pool, Pools.of(moments, pool), masks)

    def fit(
        self, start: NoiseFit, *, max_steps: int = _MOST_STEPS, new_shapes: bool = True
    ) -> NoiseFit:
        """Raise the likelihood: a step, then densities of the residuals, and so on.

        `new_shapes`: whether to choose anew how smooth densities are, in the first few steps.
        """
        now = start
        for step in range(max_steps):
            if now.is_gaussian:
                break
            stepped = self.step(now)
            again = new_shapes and step < _STEPS_WITH_NEW_SHAPES
            found = self.refitted(stepped, keep_penalties=not again)
            if again and self.bic(found) > self.bic(stepped):
                found = self.refitted(stepped, keep_penalties=True)
            found = min(stepped, found, key=self.bic)
            gained = self.bic(now) - self.bic(found)
            if gained > 0:
                now = found
            if gained < _LEAST_GAIN and not again:
                break
        return now

    def bic(self, fit: NoiseFit) -> float:
        """Return the negative log-likelihood of all rows, with half of what BIC asks for."""
        freedom = (self.masks > 0).sum() + sum(each.freedom for each in fit.densities.values())
        return float(fit.value * self.n_samples + 0.5 * np.log(self.n_samples) * freedom)

    @property
    def n(self) -> int:
        """Number of latents."""
        return len(self.pool)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.moments.n_samples

    @property
    def used(self) -> Iterator[tuple[int, int]]:
        """The pools of all latents."""
        for j, p in np.argwhere(self.pools.shares > 0):
            yield int(j), int(p)

    def gaussian(self, H: Matrix) -> NoiseFit:
        """Return the Gaussian fit."""
        H = H / np.linalg.norm(H, axis=1, keepdims=True)
        coefficients = np.zeros(self.masks.shape)
        densities: Densities = {}
        for j, p in self.used:
            covariance = H @ self.pools.covariances[j, p] @ H.T
            parents = np.flatnonzero(self.masks[j, p])
            among = covariance[np.ix_(parents, parents)]
            b = np.linalg.solve(among, covariance[parents, j])
            coefficients[j, p, parents] = b
            variance = covariance[j, j] - b @ covariance[parents, j]
            densities[j, p] = Density.gaussian(float(np.sqrt(variance)))
        fit = NoiseFit(H, coefficients, densities, np.inf)
        return replace(fit, value=self.value(fit))

    def start(self, H: Matrix) -> NoiseFit:
        """Return the Gaussian fit with densities of its residuals."""
        return self.refitted(self.gaussian(H))

    def refitted(self, fit: NoiseFit, *, keep_penalties: bool = False) -> NoiseFit:
        """Fit the densities to the residuals."""
        densities = {
            (j, p): fit_density(
                self.residuals(fit, j, p),
                fit.densities[j, p].penalty if keep_penalties else None,
            )
            for j, p in self.used
        }
        found = replace(fit, densities=densities)
        return replace(found, value=self.value(found))

    def residuals(self, fit: NoiseFit, j: int, p: int) -> Matrix:
        """Return the residuals of latent j in a pool, around their mean."""
        row = fit.H[j] - fit.coefficients[j, p] @ fit.H
        found = np.concatenate([self.rows[e] @ row for e in np.flatnonzero(self.pool[j] == p)])
        return found - found.mean()

    def value(self, fit: NoiseFit) -> float:
        """Return the mean negative log-likelihood."""
        total = sum(
            float(density.log_density(self.residuals(fit, j, p)).sum())
            for (j, p), density in fit.densities.items()
        )
        return float(-np.linalg.slogdet(fit.H)[1] - total / self.n_samples - self.n * _GAUSSIAN)

    def step(self, fit: NoiseFit) -> NoiseFit:
        """Take one step of Fisher's scoring, shorter if need be."""
        gradient, information = self.gradient(fit), self.information(fit)
        size = np.sqrt(np.maximum(np.diag(information), 1e-12))
        curvature, axes = np.linalg.eigh(information / np.outer(size, size))
        slope = axes.T @ (gradient / size)
        step = axes @ (slope / np.maximum(curvature, 1e-6)) / size
        n_moved = self.n * (self.n - 1)
        longest = np.abs(step[:n_moved]).max(initial=0.0)
        step = step * min(1.0, _LONGEST_STEP / max(longest, 1e-300))
        for _ in range(_MOST_TRIES):
            coefficients = fit.coefficients.copy()
            coefficients[self.masks > 0] += step[n_moved:]
            found = replace(fit, H=moved(fit.H, step[:n_moved]), coefficients=coefficients)
            value = self.value(found)
            if value < fit.value:
                return replace(found, value=value)
            step = step / 3
        return fit

    def gradient(self, fit: NoiseFit) -> Matrix:
        """Return the gradient of the log-likelihood of all rows: by D, then by coefficients."""
        n = self.n
        by_D, by_mechanism = np.zeros((n, n)), np.zeros(self.masks.shape)
        for e, rows in enumerate(self.rows):
            C, centres, p = self._inside(fit, e)
            sums = np.zeros((n, n))  # of psi_j (z_i - centre)
            for start in range(0, len(rows), _BLOCK):
                z, psi = _scores(fit, rows[start : start + _BLOCK], C, centres, p)
                sums += psi.T @ z - psi.sum(axis=0)[:, None] * centres
            by_D -= C.T @ sums
            by_mechanism[np.arange(n), p] += sums
        kept = ~np.eye(n, dtype=bool)
        return np.concatenate([by_D[kept], by_mechanism[self.masks > 0]])

    def information(self, fit: NoiseFit) -> Matrix:
        """Return the scatter of the parts of the gradient, from some of the rows."""
        n, kept = self.n, ~np.eye(self.n, dtype=bool).ravel()
        among = np.argwhere(self.masks > 0)
        n_moved, n_parameters = n * (n - 1), n * (n - 1) + len(among)
        most = int(np.clip(_MOST_PRODUCTS / n_parameters**2 / len(self.rows), 1000, _MOST_ROWS))
        information = np.zeros((n_parameters, n_parameters))
        for e, rows in enumerate(self.rows):
            C, centres, p = self._inside(fit, e)
            offsets = np.einsum("jk,jl->jkl", C, centres).reshape(n, n * n)[:, kept]
            own = np.flatnonzero(p[among[:, 0]] == among[:, 1])  # coefficients at work here
            j, i = among[own, 0], among[own, 2]
            some = rows[:: -(-len(rows) // most)]
            share = len(rows) / len(some)
            for start in range(0, len(some), _BLOCK):
                z, psi = _scores(fit, some[start : start + _BLOCK], C, centres, p)
                moving = (psi @ C)[:, :, None] * z[:, None, :]
                parts = np.zeros((len(z), n_parameters))
                parts[:, :n_moved] = psi @ offsets - moving.reshape(len(z), -1)[:, kept]
                parts[:, n_moved + own] = psi[:, j] * (z[:, i] - centres[j, i])
                information += share * (parts.T @ parts)
        return information

    def _inside(self, fit: NoiseFit, e: int) -> tuple[Matrix, Matrix, NDArray[np.intp]]:
        """Return I - B in an environment, the means of z in each latent's pool, and the pools."""
        p, sizes = self.pool[:, e], self.moments.sizes
        members = (self.pool == p[:, None]) * sizes
        centres = members @ (self.moments.means @ fit.H.T) / members.sum(axis=1)[:, None]
        return np.eye(self.n) - fit.coefficients[np.arange(self.n), p], centres, p


def _scores(
    fit: NoiseFit, rows: Matrix, C: Matrix, centres: Matrix, p: NDArray[np.intp]
) -> tuple[Matrix, Matrix]:
    """Return the latents of some rows, and the scores of their noise."""
    z = rows @ fit.H.T
    residuals = z @ C.T - np.einsum("jk,jk->j", C, centres)
    columns = [fit.densities[j, int(p[j])].score(residuals[:, j]) for j in range(len(p))]
    return z, np.column_stack(columns)
