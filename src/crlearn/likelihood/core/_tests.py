"""Tests of the Gaussian model that hold for other noise, too.

The Gaussian likelihood estimates well whatever the noise is, but its likelihood ratios follow
chi-square distributions only if rows are Gaussian. In general a ratio is a sum of squares of
independent normal variables with weights, the eigenvalues of a product of two matrices: how much
moments scatter, and how much Gaussian ones would (Satorra and Bentler 1994; Asparouhov and Muthen
2010 for the form with mean and variance). Heavy tails have weights above one.

In an environment with whitened rows y, let t be the vector of `quadratic_features`, and A its
second moments, the identity for Gaussian rows. The score of any parameter of the model is a linear
function q't; Q has these columns for all parameters. With shares s_e,

    information I = sum_e s_e Q_e'Q_e,    scatter of scores J = sum_e s_e Q_e'A_e Q_e,

estimates have covariance I^-1 J I^-1 / N, and the weights of the goodness of fit are the
eigenvalues of (1 - P) A with P = Q I^-1 Q', the projector on what the model can explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, kurtosis, skew

from crlearn.likelihood.core._moments import Moments, Pools

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
Edge = Sequence[int] | NDArray[np.intp]

_SMALLEST_INFORMATION = 1e-10
_SMALLEST_WEIGHT = 0.05


@dataclass(frozen=True)
class Weights:
    """Mean and mean square of the weights in a likelihood ratio; both are 1 for Gaussian rows."""

    mean: float = 1.0
    mean_square: float = 1.0

    @classmethod
    def of(cls, total: float, total_square: float, freedom: float) -> Weights:
        """Form the means; a mean square is never below the square of the mean."""
        mean = max(total / freedom, _SMALLEST_WEIGHT)
        return cls(mean, max(total_square / freedom, mean**2))

    def calibrated(self, ratio: float, freedom: int) -> float:
        """Shift and scale a ratio to the mean and variance of a chi-square variable."""
        excess = ratio - self.mean * freedom
        return max(0.0, freedom + excess / float(np.sqrt(self.mean_square)))


def overall_weights(moments: Moments) -> Weights:
    """Return the weights of all moments of all environments: a guess that needs no model."""
    A = moments.quadratic_moments
    if A is None:
        return Weights()
    total = float(np.einsum("heii->", A)) / 2
    return Weights.of(total, float((A[0] * A[1]).sum()), A.shape[1] * A.shape[2])


@dataclass(frozen=True, eq=False)
class Linearised:
    """The model around a fit: how scores depend on the features of the rows.

    Attributes
    ----------
    scores
        Q, ``(E, m, parameters)``: first the off-diagonal entries of D in (I + D) H, then the
        intercept, the variance and the coefficients of each latent in each of its pools.
    edges
        For each i -> j with a coefficient, where its coefficients stand among the parameters.
    moments
        Of the environments.
    """

    scores: Matrix
    edges: dict[tuple[int, int], list[int]]
    moments: Moments

    @classmethod
    def at(
        cls, H: Matrix, moments: Moments, pools: Pools, pool: IntMatrix, masks: Matrix
    ) -> Linearised:
        """Linearise the model with these masks at its best encoder."""
        n, n_environments = len(H), len(moments.sizes)
        roots = H @ np.linalg.cholesky(moments.covariances)  # z = means + roots y
        means = (moments.means - moments.shares @ moments.means) @ H.T
        mechanisms, variances = mechanisms_at(H, pools, masks)
        own = mechanisms[np.arange(n), pool.T]  # (E, n, n): rows of I - B in each environment
        noise = own @ roots / variances[np.arange(n), pool.T][:, :, None]
        moving = -(np.swapaxes(own, 1, 2) @ noise)
        k, i = np.nonzero(~np.eye(n, dtype=bool))
        # Each parameter's score is (left y) (right y + offset).
        factors = [(moving[:, k], roots[:, i], means[:, i])]
        edges: dict[tuple[int, int], list[int]] = {}
        n_columns = len(k)
        for j, p in zip(*np.nonzero(pools.shares > 0), strict=True):
            parents = np.flatnonzero(masks[j, p])
            residual = noise[:, j] * (pool[j] == p)[:, None]
            right = np.concatenate([0 * noise[:, [j]], noise[:, [j]], roots[:, parents]], axis=1)
            offset = np.concatenate(
                [np.ones((n_environments, 1)), np.zeros((n_environments, 1)), means[:, parents]],
                axis=1,
            )
            factors.append((np.broadcast_to(residual[:, None], right.shape), right, offset))
            for place, parent in enumerate(parents, start=n_columns + 2):
                edges.setdefault((int(parent), int(j)), []).append(place)
            n_columns += 2 + len(parents)
        scores = _scores(*(np.concatenate(parts, axis=1) for parts in zip(*factors, strict=True)))
        return cls(scores[:, n:] if moments.free_means else scores, edges, moments)

    def behind_noise(self, measured: Moments) -> Linearised:
        """Return the model where rows are measured with noise that does not depend on it.

        In units of the covariances C without noise and S with it, a change of the covariance is
        R'QR for one that is Q, with R the root of C over that of S.
        """
        n = measured.n_variables
        linear = np.zeros((len(measured.sizes), n, self.scores.shape[-1]))
        if not measured.free_means:
            linear = self.scores[:, :n]
        products = self.scores[:, self.scores.shape[1] - n * (n + 1) // 2 :]
        ratio = np.linalg.solve(
            np.linalg.cholesky(measured.covariances), np.linalg.cholesky(self.moments.covariances)
        )
        changed = ratio[:, None] @ _symmetric(products, n) @ np.swapaxes(ratio, 1, 2)[:, None]
        scores = [ratio @ linear, _entries(changed)]
        scores = np.concatenate(scores[1:] if measured.free_means else scores, axis=1)
        return Linearised(scores, self.edges, measured)

    @property
    def rank(self) -> int:
        """Number of directions of the parameters that the data say something about."""
        return self._known_directions.shape[1]

    @cached_property
    def inverse_information(self) -> Matrix:
        """I^-1; directions that the data say nothing about are left out."""
        return self._known_directions @ self._known_directions.T

    @cached_property
    def _known_directions(self) -> Matrix:
        flat = np.sqrt(self.moments.shares)[:, None, None] * self.scores
        flat = flat.reshape(-1, self.scores.shape[-1])
        unit = np.maximum(np.linalg.norm(flat, axis=0), 1e-150)
        size, axes = np.linalg.eigh((flat / unit).T @ (flat / unit))
        known = size > _SMALLEST_INFORMATION * size.max()
        return axes[:, known] / np.sqrt(size[known]) / unit[:, None]

    @cached_property
    def covariance(self) -> Matrix:
        """I^-1 J I^-1, the covariance of the estimates for one row."""
        return self.inverse_information @ self._scatter.sum(axis=0) @ self.inverse_information / 2

    def weights_of_fit(self) -> Weights:
        """Return the weights in the likelihood ratio to the saturated model."""
        A = self.moments.quadratic_moments
        if A is None:
            return Weights()
        shares, Q = self.moments.shares[:, None, None], self.scores
        inverse, (one, other) = self.inverse_information, self._scatter
        half, rest = A[0] @ Q, A[1] @ Q
        crossed = (shares * (np.swapaxes(half, 1, 2) @ rest)).sum(axis=0)
        total = np.einsum("heii->", A) / 2 - (inverse * (one + other)).sum() / 2
        squares = (
            (A[0] * A[1]).sum()
            - 2 * (inverse * crossed).sum()
            + ((inverse @ one) * (inverse @ other).T).sum()
        )
        explained = (inverse * (shares * (np.swapaxes(Q, 1, 2) @ Q)).sum(axis=0)).sum()
        freedom = A.shape[1] * A.shape[2] - explained
        if freedom < 0.5:
            return Weights()
        return Weights.of(float(total), float(squares), float(freedom))

    def weights_of_encoder(self) -> Matrix:
        """Return by what the variances of the off-diagonal entries of D are larger."""
        n = self.moments.n_variables
        if self.moments.quadratic_moments is None:
            return np.ones(n * (n - 1))
        usual = np.diag(self.inverse_information)[: n * (n - 1)]
        actual = np.diag(self.covariance)[: n * (n - 1)]
        return np.where(usual > 0, actual / np.where(usual > 0, usual, 1.0), 1.0)

    def coefficients_of_edge(self, edge: Edge) -> int:
        """Return the number of coefficients of an edge, one for each pool that it matters in."""
        i, j = edge
        return len(self.edges[int(i), int(j)])

    def weight_of_edge(self, edge: Edge) -> float:
        """Return the mean weight in the likelihood ratio of the model without an edge."""
        if self.moments.quadratic_moments is None:
            return 1.0
        i, j = edge
        among = self.edges[int(i), int(j)]
        places = np.ix_(among, among)
        ratios = np.linalg.pinv(self.inverse_information[places]) @ self.covariance[places]
        return max(float(np.trace(ratios)) / len(ratios), _SMALLEST_WEIGHT)

    @cached_property
    def _scatter(self) -> Matrix:
        """J in each half of the rows."""
        A = self.moments.quadratic_moments
        assert A is not None
        shares, Q = self.moments.shares[:, None, None], self.scores
        return np.stack([(shares * (np.swapaxes(Q, 1, 2) @ (half @ Q))).sum(axis=0) for half in A])


def mechanisms_at(H: Matrix, pools: Pools, masks: Matrix) -> tuple[Matrix, Matrix]:
    """Return the row of I - B of each latent in each pool, and its residual variance."""
    j = np.arange(len(H))
    covariances = H @ pools.covariances @ H.T
    among = covariances * masks[..., :, None] * masks[..., None, :]
    among[..., j, j] += 1 - masks
    rows = -np.linalg.solve(among, (masks * covariances[j, :, j])[..., None])[..., 0]
    rows[j, :, j] = 1.0
    variances = (rows[..., None, :] @ covariances @ rows[..., None])[..., 0, 0]
    return rows, variances


def _symmetric(entries: Matrix, n: int) -> Matrix:
    """Return the matrices ``(E, P, n, n)`` whose products with y y' have these coefficients."""
    a, b = np.triu_indices(n)
    matrices = np.zeros((len(entries), entries.shape[-1], n, n))
    matrices[..., a, b] = matrices[..., b, a] = np.swapaxes(entries, 1, 2)
    i = np.arange(n)
    matrices[..., i, i] *= np.sqrt(2)
    return matrices


def _entries(matrices: Matrix) -> Matrix:
    """Return the coefficients ``(E, m, P)`` of symmetric matrices on products of features."""
    a, b = np.triu_indices(matrices.shape[-1])
    entries = matrices[..., a, b].copy()
    entries[..., a == b] /= np.sqrt(2)
    return np.swapaxes(entries, 1, 2)


def _scores(left: Matrix, right: Matrix, offset: Matrix) -> Matrix:
    """Return the coefficients of each (left y) (right y + offset) on the features, ``(E, m, P)``.

    The factors are ``(E, P, n)``, offsets ``(E, P)``.
    """
    a, b = np.triu_indices(left.shape[-1])
    products = left[..., a] * right[..., b] + left[..., b] * right[..., a]
    products[..., a == b] /= np.sqrt(2)
    return np.concatenate([left * offset[..., None], products], axis=-1).swapaxes(1, 2)


def gaussian_p_values(noises: Matrix) -> Matrix:
    """Test skewness and kurtosis of each of some noises (Jarque and Bera 1980), all together."""
    statistics = len(noises) * (skew(noises) ** 2 / 6 + kurtosis(noises) ** 2 / 24)
    return np.minimum(noises.shape[1] * chi2.sf(statistics, 2), 1.0)
