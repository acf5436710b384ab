"""Flows of latents that switch off, started at hyperplanes and led back to them.

The hyperplanes of the rows themselves are the start: a mixing that is bent a little leaves them
visible. Flows are trained in rounds, with noise that becomes less, in which latents are independent
at first and Gaussian together later. After each round outputs are affine in the latents more
nearly than before: the search is done again among them, which finds hyperplanes that were missed,
and outputs are turned to these. The slab is chosen by held-out likelihood; how far latents depend
on each other is not known before, and two ways are tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
_UNITS_A_LATENT, _MOST_UNITS = 8, 160  # of a block
_SMALLEST_EIGENVALUE = 0.05  # of a first covariance, beside its mean
# At a start: shares of rows that are off and on, and spreads of slabs.
_LEAST_SHARE, _LEAST_SPREAD = 0.02, 0.2


@dataclass(frozen=True)
class Round:
    """A training: noise at its start and at its end, largest step, whether latents are joint."""

    noises: tuple[float, float]
    learning_rate: float
    joint: bool = False


# Small steps: they straighten what is bent a little, whatever latents are.
FIRST = Round((0.2, 0.1), 2e-3)
# Then noise is as large once more, in two ways. Large steps of independent latents come from afar:
# behind three layers with slopes of 0.2 to 0.4 and biases, MCCs of eight worlds of ten latents
# (development seeds) were 0.53 to 0.81 after the first round and 0.67 to 0.99 after this one (0.51
# to 0.90 with joint latents); four such rounds brought all of them to 0.956 to 0.994. But
# where latents depend on each other they draw the flow away: R2s of 0.954 and 0.923 for a block of
# six latents and three edges a latent, 0.996 and 0.963 with joint latents. Both ways go on, and
# after the next round the one is kept in which latents switch off more sharply: widths of spikes
# were then 0.80 (three edges) of those of the other way, which ended at an R2 of 0.955 against
# 0.994, and 0.41 (three layers). Right after these rounds they were nearly equal with three edges.
# The likelihood does not tell: a block of six can be stretched to a better one with an R2 of 0.76.
JOINT_STEPS = Round((0.2, 0.05), 1e-2, joint=True)
# With mixtures as slabs, whose latents are independent to the end, larger steps come to better
# likelihoods and worse latents where these are not Gaussian. MCCs of ten latents, seed 0, with
# largest steps of 0.005, 0.01 and 0.02: exponential latents 0.991, 0.986 and 0.985.
SECOND = {"gaussian": Round((0.2, 0.05), 2e-2), "mixture": Round((0.2, 0.05), 1e-2)}
LAST = (
    Round((0.1, 0.03), 5e-3, joint=True),
    Round((0.05, 0.02), 5e-3, joint=True),
    Round((0.03, 0.01), 5e-3, joint=True),
)
_N_ROUNDS = 2 + len(LAST)
_MOST_LARGE_ROUNDS = 6
# Large steps are repeated while they gain this much of held-out likelihood, in nats a row for each
# latent: the three layers above gained 0.02 to 0.1 in the second such round and less in the fourth,
# a world of the paper 0.003.
_LEAST_PROGRESS = 0.02
# Mixtures as slabs are tried if they gain this much in the first round: 0.018 to 0.043 for
# exponential latents, 0.009 to 0.017 for Gumbel ones, 0.001 in the paper's world, but also 0.009 to
# 0.024 behind the three layers and 0.001 to 0.008 with three edges or behind twenty layers.
_LEAST_GAIN = 0.002
# In the second round the large steps of Gaussian slabs find any bend that mixtures stood for in the
# first, and come further. Mixtures are kept if they then lose less than this times what they had
# gained. It was at most 1.2 times in twelve worlds of exponential and Gumbel latents, and 2.9 to 28
# times in seventeen of Gaussian ones: the paper's, three quarters on, three edges, twenty layers,
# the three layers above.
_MOST_LOSS_PER_GAIN = 2


@dataclass(frozen=True, eq=False)
class FlowStage:
    """A trained flow, and what came before it.

    Attributes
    ----------
    params
        The flow, turned to hyperplanes once more, and the prior.
    fit
        The last training.
    slab_losses
        Held-out loss for each kind of slab, after the last round that had both.
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
    objective = SpikeSlabObjective(n, n_units=min(_UNITS_A_LATENT * n, _MOST_UNITS))
    rounds = _Rounds(rows, objective, max(1, n_steps // _N_ROUNDS), seed, checkpoint)
    kinds = ("gaussian", "mixture") if slab == "auto" else (slab,)
    with numerics():
        starts = {
            kind: _start(objective, planes, jax.random.key(seed), one_gaussian=kind == "gaussian")
            for kind in kinds
        }
    first = {
        kind: rounds.trained(f"first steps, {kind}", FIRST, start) for kind, start in starts.items()
    }
    gain = _gain_of_mixture(first)
    second = {
        kind: rounds.trained(f"large steps, {kind}", SECOND[kind], part.params)
        for kind, part in first.items()
        if kind == "gaussian" or gain > _LEAST_GAIN * n
    }
    if -_gain_of_mixture(second) < _MOST_LOSS_PER_GAIN * gain:
        ways = [second["mixture"]]
    else:
        afar = rounds.repeated("large steps", SECOND["gaussian"], second["gaussian"])
        joint = rounds.trained("joint steps", JOINT_STEPS, first["gaussian"].params)
        ways = [_sharpest(afar), joint]
    for number, part in enumerate(LAST, 1):
        ways = [
            rounds.trained(f"last steps, {number}, way {way}", part, start.params)
            for way, start in enumerate(ways, 1)
        ]
        ways = [_sharpest(ways)]
    (turned,) = ways
    last_of_both = second if len(second) == len(first) else first
    return FlowStage(turned.params, turned.fit, _losses(last_of_both))


def _sharpest(ways: Iterable[_Turned]) -> _Turned:
    return max(ways, key=lambda way: way.sharpness)


def _losses(tried: Mapping[str, _Turned]) -> dict[str, float]:
    return {kind: float(part.fit.loss) for kind, part in tried.items()}


def _gain_of_mixture(tried: Mapping[str, _Turned]) -> float:
    """Return by how much mixtures are better than one Gaussian; a kind that is alone wins."""
    losses = _losses(tried)
    return losses.get("gaussian", np.inf) - losses.get("mixture", np.inf)


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Trainings on the same rows, a part of them held out in all."""

    rows: Matrix
    objective: SpikeSlabObjective
    n_steps: int
    seed: int
    checkpoint: str | Path | None

    def trained(self, name: str, part: Round, start: SpikeSlabParameters) -> _Turned:
        """Train a flow and turn its outputs to hyperplanes."""
        is_joint = part.joint and bool(start.prior.one_gaussian)
        file = None if self.checkpoint is None else f"{self.checkpoint}.{name.replace(', ', '.')}"
        fit = fit_flow(
            [self.rows],
            replace(self.objective, joint=is_joint),
            n_steps=self.n_steps,
            batch_size=BATCH_SIZE,
            learning_rate=part.learning_rate,
            n_restarts=1,
            start=start._replace(noises=np.array(part.noises)),
            seed=self.seed,
            checkpoint=None if file is None else file.replace(" ", "_"),
            description=f"SparseMixtureCRL, {name}",
        )
        return _led_back(fit, self.rows, self.seed)

    def repeated(self, name: str, part: Round, turned: _Turned) -> list[_Turned]:
        """Return a training that was done and others after it, while they gain."""
        done = [turned]
        while len(done) < _MOST_LARGE_ROUNDS:
            start = done[-1]
            done.append(self.trained(f"{name}, {len(done) + 1}", part, start.params))
            if start.fit.loss - done[-1].fit.loss < _LEAST_PROGRESS * self.rows.shape[1]:
                break
        return done


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
    return drawn._replace(flow=flow, prior=_at_hyperplanes(prior, planes))


def _with_affine_maps(flow: Any, matrices: Matrix, offsets: Matrix) -> Any:
    new = (jnp.asarray(matrices, flow.matrices.dtype), jnp.asarray(offsets, flow.offsets.dtype))
    return eqx.tree_at(lambda f: (f.matrices, f.offsets), flow, new)


def _at_hyperplanes(prior: SpikeSlab, planes: Hyperplanes) -> SpikeSlab:
    """Return the prior with spikes at zero and slabs as the other rows are."""
    shares = np.clip(planes.shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
    spreads = np.maximum(planes.spreads, _LEAST_SPREAD)
    standard = np.asarray(prior.means), np.asarray(prior.log_scales)
    if prior.one_gaussian:
        standard = np.zeros_like(standard[0]), np.zeros_like(standard[1])
    dtype = prior.logits.dtype
    values = (
        np.log(shares / (1 - shares)),
        np.zeros_like(shares),
        np.zeros_like(shares),
        standard[0] * spreads + planes.means,
        standard[1] + np.log(spreads),
    )
    return eqx.tree_at(
        lambda p: (p.logits, p.places, p.log_widths, p.means, p.log_scales),
        prior,
        tuple(jnp.asarray(value, dtype) for value in values),
    )


class _Turned(NamedTuple):
    """A flow whose outputs are distances from hyperplanes, and how sharply these switch off."""

    fit: Training
    params: SpikeSlabParameters
    sharpness: float


def _led_back(fit: Training, rows: Matrix, seed: int) -> _Turned:
    """Turn the outputs of a flow to the hyperplanes that are found among them."""
    params = fit.params
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
    sharpness = -float(np.log(planes.noises / planes.spreads).mean())
    turned = params._replace(flow=flow, prior=eqx.tree_at(lambda p: p.factor, prior, factor))
    return _Turned(fit, turned, sharpness)


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
