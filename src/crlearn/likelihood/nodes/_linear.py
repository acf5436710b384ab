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
are exact and cost one matrix product. F does not change when a row of H is rescaled; derivatives
are taken with respect to D in (I + D) H with a zero diagonal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._moments import Pools
from crlearn.likelihood.core._newton import Expansion, descend, moved

Matrix = NDArray[np.floating]
Masks = NDArray[np.floating]

_MOST_STEPS = 100
_WORST_VARIANCE = 1e100


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
    gradient = np.zeros((n, n))
    hessian = np.zeros((n, n, n, n))
    value = -np.linalg.slogdet(H)[1]
    for members, sign in ((parents + own, 1.0), (parents, -1.0)):
        weights = sign * shares
        precision, regression, rest, log_determinant = _given(covariances, members)
        value += 0.5 * weights @ log_determinant
        gradient += np.tensordot(weights, regression, 1)
        hessian += _kronecker(weights, precision, rest) - _crossed(weights, regression)
    # -log|det(I + D)| = -tr D + tr(D D) / 2 + ...
    gradient -= np.eye(n)
    hessian += np.eye(n)[:, None, None, :] * np.eye(n)[None, :, :, None]
    off = ~np.eye(n, dtype=bool).ravel()
    flat = hessian.reshape(n * n, n * n)[np.ix_(off, off)]
    return Expansion(float(value), gradient.ravel()[off], flat)


def minimise(
    H: Matrix,
    pools: Pools,
    masks: Masks,
    *,
    tolerance: float = 1e-11,
    max_steps: int = _MOST_STEPS,
) -> tuple[Matrix, float]:
    """Minimise F from a start; return the encoder, with rows of unit length, and the value."""
    return descend(
        H,
        lambda H: expand(H, pools, masks),
        lambda H: float(objective(H, pools, masks)),
        _unit_rows,
        max_steps=max_steps,
        tolerance=tolerance,
    )


def predicted(H: Matrix, pools: Pools, masks: Masks) -> float:
    """Return the value after one Newton step, where H is the optimum of a neighbouring model."""
    point = expand(H, pools, masks)
    step = point.step()
    values = [float(objective(moved(H, scale * step), pools, masks)) for scale in (1.0, 0.3)]
    return min(point.value, *values)


def _unit_rows(H: Matrix) -> Matrix:
    return H / np.linalg.norm(H, axis=1, keepdims=True)


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


def _given(covariances: Matrix, members: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
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


def _kronecker(weights: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """Return sum_b w_b left_b[k, K] right_b[l, L] as ``[k, l, K, L]``."""
    n = left.shape[-1]
    product = (weights[:, None] * left.reshape(-1, n * n)).T @ right.reshape(-1, n * n)
    return product.reshape(n, n, n, n).transpose(0, 2, 1, 3)


def _crossed(weights: Matrix, regression: Matrix) -> Matrix:
    """Return sum_b w_b W_b[k, L] W_b[K, l] as ``[k, l, K, L]``."""
    n = regression.shape[-1]
    flat = regression.reshape(-1, n * n)
    product = (weights[:, None] * flat).T @ flat
    return product.reshape(n, n, n, n).transpose(0, 3, 2, 1)
