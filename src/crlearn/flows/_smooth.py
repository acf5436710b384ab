"""Smooth invertible maps: affine maps and gradients of convex functions in turn."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.nets import AnyArray
from crlearn.tags import stored

_SHARPNESS = 4.0  # of the bends of a convex block: it is a softplus of this many times its input
_BEND = 0.4  # what the bends of a fresh block add to the identity, on average
_MOST_STEPS = 50  # of Newton's method, which takes 4 to 8 of them
_PRECISION = 1e-10  # of inverses, relative to their size


@stored("flow/smooth")
class SmoothFlow(eqx.Module):
    """An invertible map with an exact log-determinant, without preferred coordinates.

    Each block is an affine map, then ``h + V (d * s(V^T h + a))`` with positive d and increasing s:
    the gradient of a strongly convex function, whose Jacobian ``I + V diag(d s') V^T`` is positive
    definite. One more affine map comes last. Far out the map is piecewise linear.

    Cost: O(blocks units n^2) for each row, the inverse about six times as much.
    """

    matrices: Float[AnyArray, "maps n n"]
    offsets: Float[AnyArray, "maps n"]
    directions: Float[AnyArray, "blocks n units"]
    strengths: Float[AnyArray, "blocks units"]
    thresholds: Float[AnyArray, "blocks units"]

    @classmethod
    def random(
        cls, key: PRNGKeyArray, n_variables: int, n_blocks: int = 4, n_units: int | None = None
    ) -> SmoothFlow:
        """Draw a map: random rotations and weak bends, eight units a variable by default."""
        n, n_units = n_variables, 8 * n_variables if n_units is None else n_units
        rotation_key, direction_key, threshold_key = jax.random.split(key, 3)
        return cls(
            matrices=jax.random.orthogonal(rotation_key, n, (n_blocks + 1,)),
            offsets=jnp.zeros((n_blocks + 1, n)),
            directions=jax.random.normal(direction_key, (n_blocks, n, n_units)),
            strengths=jnp.full((n_blocks, n_units), _inverse_softplus(_BEND * n / n_units)),
            thresholds=jax.random.normal(threshold_key, (n_blocks, n_units)),
        )

    @property
    def n_variables(self) -> int:
        """Number of coordinates."""
        return self.offsets.shape[1]

    def forward(
        self, x: Float[AnyArray, "*rows n"]
    ) -> tuple[Float[Array, "*rows n"], Float[Array, "*rows"]]:
        """Return z for each row, and the logarithm of the determinant of dz / dx."""
        h = jnp.asarray(x)
        log_determinant = jnp.zeros(h.shape[:-1], h.dtype) + self._log_determinant_of_matrices()
        for matrix, offset, *block in self._blocks():
            h = h @ matrix + offset
            h, jacobian = _bent(h, *block)
            log_determinant += _log_determinant(jacobian)
        return h @ self.matrices[-1] + self.offsets[-1], log_determinant

    def __call__(self, x: Float[AnyArray, "*rows n"]) -> Float[Array, "*rows n"]:
        """Return z for each row."""
        return self.forward(x)[0]

    def inverse(self, z: Float[AnyArray, "rows n"]) -> Float[Array, "rows n"]:
        """Return the x that `forward` takes to `z`."""
        h = jnp.linalg.solve(self.matrices[-1].T, (jnp.asarray(z) - self.offsets[-1]).T).T
        for matrix, offset, *block in reversed(list(self._blocks())):
            h = _unbent(h, *block)
            h = jnp.linalg.solve(matrix.T, (h - offset).T).T
        return h

    def _blocks(self) -> zip[tuple[Array, ...]]:
        lengths = jnp.linalg.norm(self.directions, axis=1, keepdims=True)
        return zip(
            self.matrices[:-1],
            self.offsets[:-1],
            self.directions / lengths,
            jax.nn.softplus(self.strengths),
            self.thresholds,
            strict=True,
        )

    def _log_determinant_of_matrices(self) -> Float[Array, ""]:
        return jnp.linalg.slogdet(jnp.asarray(self.matrices))[1].sum()


def _bent(
    h: Float[Array, "*rows n"],
    directions: Float[Array, "n units"],
    strengths: Float[Array, " units"],
    thresholds: Float[Array, " units"],
) -> tuple[Float[Array, "*rows n"], Float[Array, "*rows n n"]]:
    """Return a convex block's outputs, and its Jacobian at each row."""
    inputs = _SHARPNESS * (h @ directions + thresholds)
    outputs = h + (strengths * jax.nn.softplus(inputs) / _SHARPNESS) @ directions.T
    slopes = strengths * jax.nn.sigmoid(inputs)
    n, n_units = directions.shape
    pairs = (directions[:, None] * directions[None]).reshape(n * n, n_units)
    jacobian = (slopes @ pairs.T).reshape(*h.shape, n) + jnp.eye(n, dtype=h.dtype)
    return outputs, jacobian


def _unbent(
    target: Float[Array, "rows n"],
    directions: Float[Array, "n units"],
    strengths: Float[Array, " units"],
    thresholds: Float[Array, " units"],
) -> Float[Array, "rows n"]:
    """Undo a convex block by Newton's method: it minimises a strongly convex function.

    A step is halved until it lessens the distance to the target.
    """
    rounding = 8 * jnp.finfo(target.dtype).eps
    tolerance = jnp.maximum(_PRECISION, rounding) * (1 + jnp.abs(target).max())

    def distance(h: Array) -> Array:
        return _bent(h, directions, strengths, thresholds)[0] - target

    def improve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step_number, h, length = state
        outputs, jacobian = _bent(h, directions, strengths, thresholds)
        newton = jnp.linalg.solve(jacobian, (outputs - target)[..., None])[..., 0]
        proposed = h - length[:, None] * newton
        before, after = jnp.abs(outputs - target).sum(1), jnp.abs(distance(proposed)).sum(1)
        better = after <= before
        return (
            step_number + 1,
            jnp.where(better[:, None], proposed, h),
            jnp.where(better, jnp.minimum(1.0, 2 * length), length / 2),
        )

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        step_number, h, _ = state
        return (step_number < _MOST_STEPS) & (jnp.abs(distance(h)).max() > tolerance)

    start = (jnp.asarray(0), target, jnp.ones(len(target), target.dtype))
    return jax.lax.while_loop(unfinished, improve, start)[1]


def _log_determinant(matrices: Float[Array, "*rows n n"]) -> Float[Array, "*rows"]:
    """Return those of positive definite matrices, by elimination: n vectorised steps."""
    total = jnp.zeros(matrices.shape[:-2], matrices.dtype)
    for _ in range(matrices.shape[-1]):
        pivot, column = matrices[..., 0, 0], matrices[..., 1:, 0]
        total += jnp.log(pivot)
        outer = column[..., :, None] * column[..., None, :]
        matrices = matrices[..., 1:, 1:] - outer / pivot[..., None, None]
    return total


def _inverse_softplus(value: float) -> float:
    return float(np.log(np.expm1(value)))
