"""Reduction of rows on a curved surface: an invertible map that makes the surface flat.

Rows are spread as a standard Gaussian in the first outputs of the map (`crlearn.flows.SurfaceFlow`)
and lie next to zero in the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from crlearn.flows._codes import leading_components, settings_for, share_lost, white
from crlearn.flows._smooth import SmoothFlow
from crlearn.flows._surface import OnSurface, SurfaceFlow
from crlearn.nets import apply_in_blocks
from crlearn.result import LinearDecoder, LinearEncoder
from crlearn.tags import stored
from crlearn.train import train

Matrix = NDArray[np.floating]

_BATCH, _STEP = 512, 1e-2
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
        Of the components, to coordinates.
    whitening, colouring
        Of the coordinates, and back.
    error
        Share of the variance of features that is lost.
    """

    before: LinearEncoder
    flow: SurfaceFlow
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
        return self.whitening(_mapped(self.flow, self.before(X)))

    def inverse(self, codes: Matrix) -> Matrix:
        """Return the row of features at each row of coordinates."""
        components = apply_in_blocks(partial(_inputs, self.flow), self.colouring(codes))
        return self.after(np.asarray(components, dtype=float))


def _mapped(flow: SurfaceFlow, components: Matrix) -> Matrix:
    return np.asarray(apply_in_blocks(partial(_outputs, flow), components), dtype=float)


@eqx.filter_jit
def _outputs(flow: SurfaceFlow, x: Array) -> Array:
    return flow(x)


@eqx.filter_jit
def _inputs(flow: SurfaceFlow, z: Array) -> Array:
    return flow.inverse(z)


class _Parameters(NamedTuple):
    flow: SmoothFlow


@dataclass(frozen=True)
class _StandardGaussian:
    """Minus the log-likelihood of rows that a flow makes standard Gaussians, up to a constant."""

    n_latents: int
    n_blocks: int = 4
    n_units: int | None = None

    def init(self, key: PRNGKeyArray) -> _Parameters:
        return _Parameters(SmoothFlow.random(key, self.n_latents, self.n_blocks, self.n_units))

    def loss(
        self,
        params: _Parameters,
        batch: Float[Array, "rows columns"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        z, log_determinant = params.flow.forward(batch)
        return (0.5 * (z**2).sum(axis=1) - log_determinant).mean()


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
        OnSurface(_StandardGaussian(n_codes), rows.shape[1], settled=_SETTLED),
        rows,
        settings_for(len(rows), n_steps, _BATCH, _STEP),
        seed=seed,
        checkpoint=checkpoint,
        description="flattening",
    )
    flow = training.params.flow
    maps = white(_mapped(flow, rows.astype(float)))
    found = Flattening(before, flow, *maps, after, np.nan)
    some = np.random.default_rng(seed).permutation(len(X))[:_ROWS_FOR_ERROR]
    return replace(found, error=share_lost(X[some], found.inverse(found(X[some]))))
