"""Flows of latents that switch off, started at hyperplanes and led back to them.

1. The hyperplanes of the rows themselves are the start: a mixing that is bent a little leaves them
   visible.
2. A flow is trained in which latents are independent, with noise that becomes less.
3. Its outputs are affine in the latents more nearly than the rows were: the search is done again
   among them, which finds hyperplanes that it has missed.
4. The flow is trained on, latents that are on being Gaussian together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from crlearn.config import numerics
from crlearn.flows import SpikeSlab, SpikeSlabObjective, SpikeSlabParameters, fit_flow, white
from crlearn.methods.sparse._hyperplanes import Hyperplanes, find_hyperplanes
from crlearn.nets import evaluate
from crlearn.train import Training

Matrix = NDArray[np.floating]

Slab = Literal["auto", "gaussian", "mixture"]

BATCH_SIZE = 1024
LEARNING_RATE = 2e-3
_INDEPENDENT = 0.6  # share of the steps in which latents are independent
_NOISES = (0.2, 0.03, 0.01)  # at first, between the trainings, in the end
_MOST_UNITS = 160  # of a block, from 20 latents on
_SMALLEST_EIGENVALUE = 0.05  # of a first covariance, beside its mean
_LEAST_SHARE = 0.02  # of rows that are off or on, at a start


@dataclass(frozen=True, eq=False)
class FlowStage:
    """A trained flow, and what came before it.

    Attributes
    ----------
    params
        The flow and the prior.
    fit
        The last training.
    slab_losses
        Held-out loss for each kind of slab that was tried, after the first training.
    """

    params: SpikeSlabParameters
    fit: Training
    slab_losses: dict[str, float]


def fit_flows(
    rows: Matrix,
    planes: Hyperplanes,
    *,
    slab: Slab,
    n_steps: int,
    seed: int,
    checkpoint: str | Path | None,
) -> FlowStage:
    """Train flows of white rows from hyperplanes; see the module's text."""
    n = rows.shape[1]
    kinds = ("gaussian", "mixture") if slab == "auto" else (slab,)
    objective = SpikeSlabObjective(n, *_NOISES[:2], n_units=min(8 * n, _MOST_UNITS))
    parts: dict[str, Any] = {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
    with numerics():
        starts = [
            _start(objective, planes, jax.random.key(seed), one_gaussian=kind == "gaussian")
            for kind in kinds
        ]
    first = fit_flow(
        [rows],
        objective,
        n_steps=max(1, round(_INDEPENDENT * n_steps)),
        n_restarts=len(starts),
        start=starts,
        seed=seed,
        checkpoint=checkpoint,
        description="SparseMixtureCRL, latents independent",
        **parts,
    )
    params = _led_back(first.params, rows, seed)
    is_gaussian = bool(params.prior.one_gaussian)
    last = fit_flow(
        [rows],
        replace(objective, first_noise=_NOISES[1], last_noise=_NOISES[2], joint=is_gaussian),
        n_steps=max(1, n_steps - round(_INDEPENDENT * n_steps)),
        n_restarts=1,
        start=params,
        seed=seed + 1,
        checkpoint=None if checkpoint is None else f"{checkpoint}.joint",
        description="SparseMixtureCRL, latents together",
        **parts,
    )
    losses = dict(zip(kinds, map(float, first.history["restart_loss"]), strict=True))
    return FlowStage(last.params, last, losses)


def _start(
    objective: SpikeSlabObjective, planes: Hyperplanes, key: Any, *, one_gaussian: bool
) -> SpikeSlabParameters:
    """Return a flow that is nearly the distances from the hyperplanes."""
    drawn = objective.init(key)
    matrices = np.tile(np.eye(objective.n_latents), (objective.n_blocks + 1, 1, 1))
    matrices[0] = planes.normals.T
    offsets = np.zeros((objective.n_blocks + 1, objective.n_latents))
    offsets[0] = -planes.offsets
    flow = _with_affine_maps(drawn.flow, matrices, offsets)
    prior = eqx.tree_at(lambda p: p.one_gaussian, drawn.prior, jnp.asarray(one_gaussian))
    return SpikeSlabParameters(flow, _at_hyperplanes(prior, planes))


def _with_affine_maps(flow: Any, matrices: Matrix, offsets: Matrix) -> Any:
    new = (jnp.asarray(matrices, flow.matrices.dtype), jnp.asarray(offsets, flow.offsets.dtype))
    return eqx.tree_at(lambda f: (f.matrices, f.offsets), flow, new)


def _at_hyperplanes(prior: SpikeSlab, planes: Hyperplanes) -> SpikeSlab:
    """Return the prior with spikes at zero and slabs as the other rows are."""
    shares = np.clip(planes.shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
    standard = np.asarray(prior.means), np.asarray(prior.log_scales)
    if prior.one_gaussian:
        standard = np.zeros_like(standard[0]), np.zeros_like(standard[1])
    dtype = prior.logits.dtype
    values = (
        np.log(shares / (1 - shares)),
        np.zeros_like(shares),
        np.zeros_like(shares),
        standard[0] * planes.spreads + planes.means,
        standard[1] + np.log(planes.spreads),
    )
    return eqx.tree_at(
        lambda p: (p.logits, p.places, p.log_widths, p.means, p.log_scales),
        prior,
        tuple(jnp.asarray(value, dtype) for value in values),
    )


def _led_back(params: SpikeSlabParameters, rows: Matrix, seed: int) -> SpikeSlabParameters:
    """Turn the outputs of a flow to the hyperplanes that are found among them."""
    z = np.asarray(evaluate(params.flow, rows.astype(np.float32)), dtype=float)
    to_white, _ = white(z)
    planes = completed(find_hyperplanes(to_white(z), seed + 1))
    matrix = (planes.normals @ to_white.matrix).T
    matrices, offsets = np.array(params.flow.matrices), np.array(params.flow.offsets)
    matrices[-1] = matrices[-1] @ matrix
    offsets[-1] = (offsets[-1] - to_white.offset) @ matrix - planes.offsets
    flow = _with_affine_maps(params.flow, matrices, offsets)
    prior = _at_hyperplanes(params.prior, planes)
    along = to_white(z) @ planes.normals.T - planes.offsets
    factor = jnp.asarray(_factor_of(along, planes), prior.factor.dtype)
    return SpikeSlabParameters(flow, eqx.tree_at(lambda p: p.factor, prior, factor))


def completed(planes: Hyperplanes) -> Hyperplanes:
    """Fill up with directions outside the span of the normals, in which hardly any row is off."""
    n = planes.normals.shape[1]
    n_missing = n - len(planes)
    if not n_missing:
        return planes
    others = np.linalg.svd(planes.normals)[2][len(planes) :]

    def filled(values: NDArray[np.floating], value: float) -> NDArray[np.floating]:
        return np.append(values, np.full(n_missing, value))

    return Hyperplanes(
        np.concatenate([planes.normals, others]),
        filled(planes.offsets, 0.0),
        filled(planes.shares, _LEAST_SHARE),
        filled(planes.noises, 1.0),
        filled(planes.means, 0.0),
        filled(planes.spreads, 1.0),
    )


def _factor_of(z: Matrix, planes: Hyperplanes) -> Matrix:
    """Return a root of the covariance of latents in rows in which both are on."""
    on = (np.abs(z) > 3 * planes.noises).astype(float)
    centred = on * (z - planes.means)
    covariance = (centred.T @ centred) / np.maximum(on.T @ on, 1)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    values = np.maximum(values, _SMALLEST_EIGENVALUE * values.mean())
    return np.linalg.cholesky((vectors * values) @ vectors.T)
