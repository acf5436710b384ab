"""Smooth invertible maps: affine maps and gradients of convex functions in turn."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crlearn.flows._determinant import log_determinant
from crlearn.nets import AnyArray
from crlearn.tags import stored

_BEND = 0.4  # what the bends of a fresh block add to the identity, on average
_ROUNDNESS = 0.25  # of the bend of a unit, (t + sqrt(t^2 + this)) / 2
_MOST_STEPS = 50  # of Newton's method, which takes 4 to 8 of them
_PRECISION = 1e-10  # of inverses, relative to their size


@stored("flow/smooth")
class SmoothFlow(eqx.Module):
    """An invertible map with an exact log-determinant, without preferred coordinates.

    Each block is an affine map, then ``h + V (d * s(V^T h + a))`` with positive d and increasing s:
    the gradient of a strongly convex function, whose Jacobian ``I + V diag(d s') V^T`` is positive
    definite. One more affine map comes last. Far out the map is linear in every direction.

    Cost: O(blocks (units n^2 + n^3)) for each row, the inverse about six times as much.
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
        x = jnp.asarray(x)
        # Coordinates come first inside: elementwise work then runs along the rows.
        h = x.reshape(-1, self.n_variables).T

        def pass_through(h: Array, block: _Block) -> tuple[Array, Array]:
            h = block.matrix.T @ h + block.offset
            return block.bent(h), log_determinant(block.jacobian(h))

        h, log_determinants = jax.lax.scan(pass_through, h, self._blocks())
        total = jnp.linalg.slogdet(jnp.asarray(self.matrices))[1].sum() + log_determinants.sum(0)
        return self._last(h).T.reshape(x.shape), total.reshape(x.shape[:-1])

    def __call__(self, x: Float[AnyArray, "*rows n"]) -> Float[Array, "*rows n"]:
        """Return z for each row."""
        x = jnp.asarray(x)
        h = x.reshape(-1, self.n_variables).T

        def pass_through(h: Array, block: _Block) -> tuple[Array, None]:
            return block.bent(block.matrix.T @ h + block.offset), None

        h, _ = jax.lax.scan(pass_through, h, self._blocks())
        return self._last(h).T.reshape(x.shape)

    def inverse(self, z: Float[AnyArray, "*rows n"]) -> Float[Array, "*rows n"]:
        """Return the x that `forward` takes to `z`."""
        z = jnp.asarray(z)
        h = z.reshape(-1, self.n_variables).T - self.offsets[-1][:, None]
        h = jnp.linalg.solve(self.matrices[-1].T, h)

        def pass_back(h: Array, block: _Block) -> tuple[Array, None]:
            return jnp.linalg.solve(block.matrix.T, block.unbent(h) - block.offset), None

        h, _ = jax.lax.scan(pass_back, h, self._blocks(), reverse=True)
        return h.T.reshape(z.shape)

    def _last(self, h: Float[Array, "n rows"]) -> Float[Array, "n rows"]:
        return jnp.asarray(self.matrices[-1]).T @ h + self.offsets[-1][:, None]

    def _blocks(self) -> _Block:
        """Return all blocks in one record, the first axis of whose arrays counts them."""
        lengths = jnp.linalg.norm(self.directions, axis=1, keepdims=True)
        return _Block(
            jnp.asarray(self.matrices[:-1]),
            jnp.asarray(self.offsets[:-1, :, None]),
            jnp.asarray(self.directions / lengths),
            jax.nn.softplus(self.strengths)[..., None],
            jnp.asarray(self.thresholds[..., None]),
        )


class _Block(NamedTuple):
    """An affine map and a convex gradient, on columns."""

    matrix: Float[Array, "n n"]
    offset: Float[Array, "n 1"]
    directions: Float[Array, "n units"]
    strengths: Float[Array, "units 1"]
    thresholds: Float[Array, "units 1"]

    def bent(self, h: Float[Array, "n rows"]) -> Float[Array, "n rows"]:
        """Return the convex gradient at each column."""
        t = self.directions.T @ h + self.thresholds
        return h + self.directions @ (0.5 * self.strengths * (t + jnp.sqrt(t**2 + _ROUNDNESS)))

    def jacobian(self, h: Float[Array, "n rows"]) -> Float[Array, "n n rows"]:
        """Return the Jacobian of the convex gradient at each column."""
        n, n_units = self.directions.shape
        t = self.directions.T @ h + self.thresholds
        slopes = 0.5 * self.strengths * (1 + t * jax.lax.rsqrt(t**2 + _ROUNDNESS))
        pairs = (self.directions[:, None] * self.directions[None]).reshape(n * n, n_units)
        return (pairs @ slopes).reshape(n, n, -1) + jnp.eye(n, dtype=h.dtype)[..., None]

    def unbent(self, target: Float[Array, "n rows"]) -> Float[Array, "n rows"]:
        """Undo the convex gradient by Newton's method, which minimises a strongly convex function.

        A step is halved until it lessens the distance to the target.
        """
        rounding = jnp.maximum(_PRECISION, 8 * jnp.finfo(target.dtype).eps)
        tolerance = rounding * (1 + jnp.abs(target).max())

        def distance(h: Array) -> Array:
            return self.bent(h) - target

        def improve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            step_number, h, length = state
            off = distance(h)
            jacobian = jnp.moveaxis(self.jacobian(h), 2, 0)
            newton = jnp.linalg.solve(jacobian, off.T[..., None])[..., 0].T
            proposed = h - length * newton
            better = jnp.abs(distance(proposed)).sum(0) <= jnp.abs(off).sum(0)
            return (
                step_number + 1,
                jnp.where(better, proposed, h),
                jnp.where(better, jnp.minimum(1.0, 2 * length), length / 2),
            )

        def unfinished(state: tuple[Array, Array, Array]) -> Array:
            step_number, h, _ = state
            return (step_number < _MOST_STEPS) & (jnp.abs(distance(h)).max() > tolerance)

        start = (jnp.asarray(0), target, jnp.ones(target.shape[1], target.dtype))
        return jax.lax.while_loop(unfinished, improve, start)[1]


def _inverse_softplus(value: float) -> float:
    return float(np.log(np.expm1(value)))
