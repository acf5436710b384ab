"""Reduction of rows on a curved surface: an invertible map that makes the surface flat.

A smooth flow of all components is trained until rows are spread in the first coordinates alone, and
what is left in the others is next to nothing: the likelihood of a standard Gaussian in the first
coordinates and of narrow ones in the others, of rows to which a little noise is added. As the flow
is one to one, sheets of a surface that it makes flat do not fall upon each other. Principal
components let them, and autoencoders, which start as such, may.

References
----------
Brehmer and Cranmer, Flows for simultaneous manifold learning and density estimation, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows._codes import leading_components, settings_for, share_lost, white
from crlearn.flows._smooth import SmoothFlow
from crlearn.nets import apply_in_blocks
from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.tags import stored
from crlearn.train import train

Matrix = NDArray[np.floating]

_BATCH, _STEP = 512, 1e-2
# Noise that is added to components of variance one: at first so much that the surface has no
# sheets, in the end less than a smooth map leaves of kinks. Development seeds: 2,000 steps to a
# noise of 0.03 turned over 2 and 3% of the rows of two smooth surfaces, 4,000 to 0.01 none of one.
_FIRST_NOISE, _LAST_NOISE = 0.3, 0.01
_SETTLED = 0.7  # share of the training after which noise is at its least
_ROWS_FOR_ERROR = 5000


@stored("map/flattening")
@dataclass(frozen=True, eq=False)
class Flattening:
    """A smooth map from rows to coordinates on the surface on which they lie, and back.

    Coordinates have mean zero, variance one and no correlations on the rows that it was learned
    from.

    Attributes
    ----------
    before, after
        From features to their principal components and back.
    flow
        Of the components; the first of its outputs are coordinates.
    whitening, colouring
        Of the coordinates, and back.
    error
        Share of the variance of features that is lost.
    """

    before: LinearEncoder
    flow: SmoothFlow
    whitening: LinearEncoder
    colouring: LinearDecoder
    after: LinearDecoder
    error: float

    @property
    def n_latents(self) -> int:
        """Number of coordinates."""
        return self.whitening.n_latents

    def __call__(self, X: NDArray[np.floating]) -> Matrix:
        """Return the coordinates of each row of `X`."""
        outputs = apply_in_blocks(partial(_outputs, self.flow), self.before(X))
        return self.whitening(np.asarray(outputs, dtype=float)[:, : self.n_latents])

    def inverse(self, codes: Matrix) -> Matrix:
        """Return the row of features at each row of coordinates."""
        outputs = np.zeros((len(codes), self.flow.n_variables))
        outputs[:, : self.n_latents] = self.colouring(codes)
        components = apply_in_blocks(partial(_inputs, self.flow), outputs)
        return self.after(np.asarray(components, dtype=float))


@eqx.filter_jit
def _outputs(flow: SmoothFlow, x: Array) -> Array:
    return flow(x)


@eqx.filter_jit
def _inputs(flow: SmoothFlow, z: Array) -> Array:
    return flow.inverse(z)


class _Parameters(NamedTuple):
    flow: SmoothFlow


@dataclass(frozen=True)
class FlatteningObjective:
    """Minus the log-likelihood of rows near a surface, up to a constant.

    Attributes
    ----------
    n_components
        Of each row.
    n_codes
        Dimensions of the surface.
    n_blocks
        Of the flow.
    """

    n_components: int
    n_codes: int
    n_blocks: int = 4

    def init(self, key: PRNGKeyArray) -> _Parameters:
        """Draw a flow that bends components a little."""
        flow = SmoothFlow.random(key, self.n_components, self.n_blocks)
        matrices = jnp.asarray(flow.matrices)
        turned = jnp.linalg.multi_dot([jnp.eye(self.n_components), *matrices[:-1]])
        back = matrices.at[-1].set(turned.T)
        return _Parameters(eqx.tree_at(lambda flow: flow.matrices, flow, back))

    def loss(
        self,
        params: _Parameters,
        batch: Float[Array, "rows components"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean log-likelihood: off the surface, rows spread no more than the noise.

        Where they do, for measurement noise say, the flow has its scales to make up for that.
        """
        share = jnp.clip(progress / _SETTLED, 0, 1)
        noise = _FIRST_NOISE * (_LAST_NOISE / _FIRST_NOISE) ** share
        noisy = batch + noise * jax.random.normal(key, batch.shape, batch.dtype)
        outputs, log_determinant = params.flow.forward(noisy)
        along, off = outputs[:, : self.n_codes], outputs[:, self.n_codes :]
        narrow = off.shape[1] * jnp.log(noise)
        squares = (along**2).sum(axis=1) + (off**2).sum(axis=1) / noise**2
        return narrow + (0.5 * squares - log_determinant).mean()


def learn_flattening(
    X: NDArray[np.floating],
    n_codes: int,
    *,
    seed: int,
    n_steps: int = 4000,
    checkpoint: str | Path | None = None,
) -> Flattening:
    """Return the map to `n_codes` coordinates on the surface on which the rows of `X` lie.

    Cost: O(N d^2 + d^3) for the components, and O(512 d^3) a step.

    Parameters
    ----------
    X
        Rows of features.
    n_codes
        Dimensions of the surface.
    seed
        Of starts and batches.
    n_steps
        Of the training.
    checkpoint
        File in which the progress of the training is kept.
    """
    before, after, _ = leading_components(X, n_codes)
    rows = before(X).astype(np.float32)
    training = train(
        FlatteningObjective(rows.shape[1], n_codes),
        rows,
        settings_for(len(rows), n_steps, _BATCH, _STEP),
        seed=seed,
        checkpoint=checkpoint,
        description="flattening",
    )
    flow = training.params.flow
    outputs = np.asarray(apply_in_blocks(partial(_outputs, flow), rows.astype(float)), dtype=float)
    found = Flattening(before, flow, *white(outputs[:, :n_codes]), after, np.nan)
    some = np.random.default_rng(seed).permutation(len(X))[:_ROWS_FOR_ERROR]
    return replace(found, error=share_lost(X[some], found.inverse(found(X[some]))))
