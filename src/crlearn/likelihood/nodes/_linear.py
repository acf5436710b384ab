"""The Gaussian profile likelihood of an encoder, from covariances alone.

With z = H x, latent j is a linear function of its parents plus Gaussian noise, in each of its pools
(see `core._moments`) with coefficients of its own. Mechanisms and noise variances are
profiled out, and what is left is a function of H,

    F(H) = -log|det H| + 1/2 sum_{j, p} s_jp log rss_jp,

the mean negative log-likelihood up to a constant; s_jp is the share of the rows in pool p and
rss_jp the residual variance of z_j given its parents there. Which parents a latent has in which
pool is a mask, and the masks are the model:

- no order: none in pool 0, all other latents in the others;
- hard interventions: the predecessors in pool 0, none in the others;
- soft interventions, in coordinates of the noise: none in pool 0, the ancestors in the others.

As log rss is a difference of two log-determinants of submatrices of H S H', gradient and Hessian
are exact and cost one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import Graph, adjacency_of
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood._price import edge_prior, parameter_price
from crlearn.likelihood.core._encoder import (
    LONGEST_STEP,
    in_free_entries,
    log_volume,
    moved,
    unit_rows,
)
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._newton import Expansion, descend
from crlearn.likelihood.core._tests import Linearised, overall_weights
from crlearn.likelihood.nodes._protocol import Key
from crlearn.result import GoodnessOfFit

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Masks = NDArray[np.floating]

_MOST_STEPS = 100
_TOLERANCE = 1e-11  # of F, which is of order one
_WORST_VARIANCE = 1e100
ENOUGH_TRIES = 6  # before a calibrated test may end it, too
HOPELESS = 4  # beyond so many times its expectation, a ratio is no local optimum's


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Linear mechanisms with Gaussian noise; latents are regressed on their parents in each pool.

    Attributes
    ----------
    moments
        Of the environments, in whitened coordinates; environment 0 is observational.
    pool
        ``pool[j, e]`` is 0 where environment e leaves latent j alone.
    hard
        Whether interventions cut a latent off its parents.
    """

    moments: Moments
    pool: NDArray[np.intp]
    hard: bool

    @cached_property
    def pools(self) -> Pools:
        """Covariances of the pools."""
        return Pools.of(self.moments, self.pool)

    @property
    def n(self) -> int:
        """Number of latents."""
        return len(self.pool)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.moments.n_samples

    @property
    def covered(self) -> NDArray[np.bool_]:
        """The latents that some environment intervenes on."""
        return np.asarray(self.pool.any(axis=1))

    def masks(self, graph: Graph) -> Masks:
        """Return the masks of a graph: parents matter where the intervention leaves them."""
        return self.masks_of(adjacency_of(graph).T)

    def masks_of(self, parents: BoolMatrix) -> Masks:
        """Return the masks ``(..., P, n)`` of latents with these parents ``(..., n)``."""
        masks = np.zeros((*parents.shape[:-1], self.pools.n_pools, self.n))
        if self.hard:
            masks[..., 0, :] = parents
        else:
            masks[..., 1:, :] = parents[..., None, :]
        return masks

    def masks_without_order(self) -> Masks:
        """Return the masks of the model in which every latent may depend on all others."""
        masks = np.zeros((self.n, self.pools.n_pools, self.n))
        masks[:, 1:] = 1 - np.eye(self.n)[:, None, :]
        return masks

    def values(self, H: Matrix, wanted: Sequence[Key]) -> Matrix:
        """Return the values of nodes at an encoder."""
        parents = np.zeros((len(wanted), self.n), dtype=bool)
        rows = np.repeat(np.arange(len(wanted)), [len(among) for _, among in wanted])
        parents[rows, [i for _, among in wanted for i in among]] = True
        latents = np.array([j for j, _ in wanted], dtype=np.intp)
        return alternatives(H, self.pools, latents, self.masks_of(parents))[0]

    @cached_property
    def edge_price(self) -> Matrix:
        """What each edge i -> j must gain, in nats: its coefficients, and the prior over graphs.

        A coefficient sharpens with the rows of its pool, not with all.
        """
        rows = np.maximum(self.n_rows * self.pools.shares, 1)
        rows = rows[:, :1] if self.hard else rows[:, 1:]
        price = parameter_price(rows).sum(axis=1) + edge_prior(self.n)
        return np.tile(price, (self.n, 1))

    def fitted(
        self, H: Matrix, graph: Graph, max_steps: int = _MOST_STEPS, least: float = -np.inf
    ) -> Fit:
        """Fit the encoder of a graph; given up where it is not to reach a log-likelihood."""
        goal = -least / self.n_rows
        H, value = minimise(H, self.pools, self.masks(graph), max_steps=max_steps, goal=goal)
        price = float(self.edge_price[adjacency_of(graph)].sum())
        return Fit(H, graph, -self.n_rows * value, price, self.pool)

    def linearised(self, fit: Fit) -> Linearised:
        """Return the model around a fit; that of the last fit is known."""
        key = fit.H.tobytes(), fit.graph
        if key not in self._around:
            at = Linearised.at(fit.H, self.moments, self.pools, self.pool, self.masks(fit.graph))
            self._around.clear()
            self._around[key] = at
        return self._around[key]

    def _anywhere(self, masks: Masks) -> Linearised:
        """Return the model around parameters drawn at random, at the moments that they imply."""
        rng, free = np.random.default_rng(0), self.moments.free_means
        each, own = np.arange(self.n), self.pool.T  # the pool of each latent in each environment
        shape = (self.n, self.pools.n_pools)
        rows = np.eye(self.n)[:, None] - masks * rng.uniform(0.5, 1.5, (*shape, self.n))
        effects = np.linalg.inv(rows[each, own])
        variances = rng.uniform(0.5, 1.5, shape)[each, own]
        means = (effects @ rng.normal(size=shape)[each, own][..., None])[..., 0] * (not free)
        covariances = (effects * variances[:, None]) @ np.swapaxes(effects, 1, 2)
        moments = Moments(np.ones(len(own), dtype=np.intp), means, covariances, free_means=free)
        return Linearised.at(
            np.eye(self.n), moments, Pools.of(moments, self.pool), self.pool, masks
        )

    @cached_property
    def _around(self) -> dict[tuple[bytes, Graph], Linearised]:
        return {}

    def goodness_of_fit(self, fit: Fit, *, quick: bool = False) -> GoodnessOfFit:
        """Compare a fit with the saturated model, a Gaussian of its own for every environment.

        The `quick` one is calibrated by what all moments have in common: good enough for a search.
        """
        weights = overall_weights(self.moments) if quick else self.linearised(fit).weights_of_fit()
        freedom = self.freedom(self.masks(fit.graph))
        ratio = weights.calibrated(self.ratio(-fit.log_likelihood / self.n_rows), freedom)
        return GoodnessOfFit(ratio, freedom, float(chi2.sf(ratio, max(freedom, 1))), weights.mean)

    def is_good(self, value: float, masks: Masks, n_tries: int) -> bool:
        """Whether nothing better is to be expected after so many tries.

        If noise is not Gaussian, only large differences show in the fit: one try is not enough.
        """
        freedom, ratio = self.freedom(masks), self.ratio(value)
        if chi2.sf(ratio, max(freedom, 1)) > FITS:
            return True
        calibrated = overall_weights(self.moments).calibrated(ratio, freedom)
        return n_tries >= ENOUGH_TRIES and bool(chi2.sf(calibrated, max(freedom, 1)) > FITS)

    def ratio(self, value: float) -> float:
        """Return the likelihood ratio to the saturated model as it is."""
        return max(0.0, 2 * self.n_rows * (value - self.moments.saturated))

    def freedom(self, masks: Masks) -> int:
        """Return the parameters that the saturated model has more.

        Where latents are not intervened on, some parameters say the same: those of two without
        parents may be rotated, say. What is left of them is counted anywhere but at a fit, whose
        moments are not quite those of the model.
        """
        if not self.covered.all():
            at = self._anywhere(masks)
            return at.scores.shape[0] * at.scores.shape[1] - at.rank
        n, n_environments = self.n, len(self.moments.sizes)
        used = self.pools.shares > 0
        covariances, means = n_environments * n * (n + 1) // 2, n_environments * n
        variances = intercepts = int(used.sum())
        coefficients = n * (n - 1) + int((masks.sum(axis=-1) * used).sum())
        of_means = 0 if self.moments.free_means else means - intercepts
        return covariances - variances - coefficients + of_means


def objective(H: Matrix, pools: Pools, masks: Masks) -> Matrix:
    """Return F(H) for each of the masks ``(..., n, P, n)``."""
    return -np.linalg.slogdet(H)[1] + latent_costs(H, pools, masks).sum(axis=-1)


def latent_costs(H: Matrix, pools: Pools, masks: Masks) -> Matrix:
    """Return what each latent adds to F(H) for each of the masks, ``(..., n)``."""
    residual = _positive(_residual_variances(H @ pools.covariances @ H.T, masks))
    return 0.5 * (pools.shares * np.log(residual)).sum(axis=-1)


def alternatives(
    H: Matrix, pools: Pools, latents: NDArray[np.intp], masks: Masks
) -> tuple[Matrix, Matrix]:
    """Return what single latents ``(B,)`` add to F with masks ``(B, P, n)``, and its gradient in D.

    With r the coefficients of a residual, d rss = 2 r' dD C r: the regression is at its optimum.
    """
    covariances = (H @ pools.covariances @ H.T)[latents]
    each = np.arange(len(latents))
    inside = covariances * masks[..., :, None] * masks[..., None, :]
    i = np.arange(len(H))
    inside[..., i, i] += 1 - masks
    given = masks * covariances[each, :, latents]
    residual = -np.linalg.solve(inside, given[..., None])[..., 0]
    residual[each, :, latents] = 1.0
    along = (covariances @ residual[..., None])[..., 0]
    variances = _positive((residual * along).sum(axis=-1))
    shares = pools.shares[latents]
    gradients = np.einsum("bp,bpk,bpl->bkl", shares / variances, residual, along)
    return 0.5 * (shares * np.log(variances)).sum(axis=-1), gradients


def expand(H: Matrix, pools: Pools, masks: Masks) -> Expansion:
    """Expand F to second order."""
    n = len(H)
    covariances = (H @ pools.covariances @ H.T).reshape(-1, n, n)
    shares = pools.shares.ravel()
    parents = masks.reshape(-1, n)
    own = np.repeat(np.eye(n), pools.n_pools, axis=0)
    value, gradient, hessian = log_volume(H)
    for members, sign in ((parents + own, 1.0), (parents, -1.0)):
        weights = sign * shares
        precision, regression, rest, log_determinant = conditioned(covariances, members)
        value += 0.5 * float(weights @ log_determinant)
        gradient += np.tensordot(weights, regression, 1)
        hessian += kronecker(weights, precision, rest) - crossed(weights, regression)
    return Expansion(value, *in_free_entries(gradient, hessian), alike=True)


def minimise(
    H: Matrix, pools: Pools, masks: Masks, *, max_steps: int = _MOST_STEPS, goal: float = np.inf
) -> tuple[Matrix, float]:
    """Minimise F from a start; return the encoder, with rows of unit length, and the value.

    It is given up where it is not to reach the goal.
    """
    return descend(
        unit_rows(H),
        lambda H: expand(H, pools, masks),
        lambda H: float(objective(H, pools, masks)),
        lambda H, step: unit_rows(moved(H, step)),
        max_steps=max_steps,
        tolerance=_TOLERANCE,
        longest=LONGEST_STEP,
        goal=goal,
    )


def predicted(H: Matrix, pools: Pools, masks: Masks) -> float:
    """Return the value after one Newton step, where H is the optimum of a neighbouring model."""
    point = expand(H, pools, masks)
    step = point.step(longest=LONGEST_STEP)
    values = [float(objective(moved(H, scale * step), pools, masks)) for scale in (1.0, 0.3)]
    return min(point.value, *values)


def _positive(variances: Matrix) -> Matrix:
    """Make those worthless that rounding has made negative: the encoder is as good as singular."""
    return np.where(variances > 0, variances, _WORST_VARIANCE)


def _residual_variances(covariances: Matrix, masks: Masks) -> Matrix:
    """Return rss of z_j given its parents, ``(..., n, P)``, from covariances ``(n, P, n, n)``."""
    n = masks.shape[-1]
    j = np.arange(n)
    own = covariances[j, :, :, j]  # (n, P, n): row j of the covariances of latent j
    inside = covariances * masks[..., :, None] * masks[..., None, :]
    inside[..., j, j] += 1 - masks
    given = masks * own
    explained = given * np.linalg.solve(inside, given[..., None])[..., 0]
    return covariances[j, :, j, j] - explained.sum(axis=-1)


def conditioned(covariances: Matrix, members: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Condition on some variables A, for each of a stack of covariances C.

    Returns the inverse K of C_AA padded with zeros, the regressions K C_A, the covariance of the
    rest C - C_A' K C_A, and log|C_AA|.
    """
    i = np.arange(members.shape[-1])
    inside = covariances * members[:, :, None] * members[:, None, :]
    inside[:, i, i] += 1 - members
    log_determinant = np.linalg.slogdet(inside)[1]
    precision = np.linalg.inv(inside) * members[:, :, None] * members[:, None, :]
    regression = precision @ covariances
    return precision, regression, covariances - covariances @ regression, log_determinant


def kronecker(weights: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """Return sum_b w_b left_b[k, K] right_b[l, L] as ``[k, l, K, L]``."""
    n = left.shape[-1]
    product = (weights[:, None] * left.reshape(-1, n * n)).T @ right.reshape(-1, n * n)
    return product.reshape(n, n, n, n).transpose(0, 2, 1, 3)


def crossed(weights: Matrix, regression: Matrix) -> Matrix:
    """Return sum_b w_b W_b[k, L] W_b[K, l] as ``[k, l, K, L]``."""
    n = regression.shape[-1]
    flat = regression.reshape(-1, n * n)
    product = (weights[:, None] * flat).T @ flat
    return product.reshape(n, n, n, n).transpose(0, 3, 2, 1)
