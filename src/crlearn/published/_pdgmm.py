"""`PDGMM`: latents that switch off behind a piecewise affine mixing, by two autoencoders.

Xu, Lachapelle, Magliacane: Identifiability of potentially degenerate Gaussian mixture models with
piecewise affine mixing, 2026, section 4 and appendix C.

Latents are Gaussian in each component of a mixture, some of them constant there (switched off), and
``x = f(z)`` with a piecewise affine f. Which component a row belongs to is not known.

1. An autoencoder of leaky-ReLU networks finds a code that is an affine map of the latents:

       minimise  E ||x - decoder(y)||^2,   y = batch normalisation of encoder(x)

2. The code y is left as it is. An affine autoencoder inside finds the latents, by sparsity:

       minimise  E ||y - B z - b||^2   subject to   E |z| <= sparsity_level,   z = A y + a

   with a Lagrange multiplier, which ascends while the others descend. E |z| is the mean over rows
   and latents, and columns of B have length one.

Of the paper the text without its formulas was at hand, and the authors' code, from which are: four
hidden layers of 50, 100, 100 and 50 units for each latent, and what is batch normalised.

What differs, and why:

- Columns of B have length one; without this the constraint is met by small latents and a large B,
  whatever the latents are. In the authors' code latents are batch normalised with a learned scale
  and shift, and B is free: it grows as far as the steps reach. With B free and latents of variance
  one, several latents became nearly the same sparse one (MCC 0.55 to 0.75 in a world in which the
  columns of length one gave 0.98: 10 latents, seed 0, stage 2 on standardised x).
- Latents in these units cannot be as small as the level of 0.01 while they give the code back
  (E |z| is about 0.5), so that the multiplier grows to the end, to a quarter of learning_rate times
  n_sparsity_steps, and latents shrink with it. Their scale is arbitrary, so that this does not
  matter before one of them vanishes: a check looks at it. Errors are summed over the code; the
  authors' code has means, under which latents shrink n times as much.
- The decoder of the answer is the regression of the code on the latents, which undoes it.
- Batch normalisation of the code has no learned scale and shift, and the code no penalty, which is
  half its squared norm in the authors' code. Batch normalisation fixes this norm, so that the
  penalty acts on the learned scale alone, which the decoder makes up for.
- Stage 2 has one matrix each way. The paper has seven layers without activations, which is the same
  set of maps.
- Both players take plain steps of Adam; the paper's look ahead (extra-gradient). Steps follow a
  cosine. Those of the multiplier are half as long as the others, as in the paper.
- The paper draws new rows for each batch, and its code ends stage 2 once the correlation with the
  true latents is 0.995. Here rows are given, and the truth is not.
- Features are standardised. Leaky ReLU has the slope 0.2 below zero, 0.02 in the authors' code.

Cost: a step of stage 1 is O(batch width n (d + width n)) time, of stage 2 O(batch n^2), whatever N
is; memory O(N d + batch width n).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.inputs import Scaling, check_columns, choose_n_latents
from crlearn.nets import MLP, NetworkMap
from crlearn.result import Check, Guarantee, Result
from crlearn.train import Settings, Training, finite_check, train

Matrix = NDArray[np.floating]
Networks = dict[str, Any]

GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to order, scale and shift, if latents are Gaussian in each component of a "
    "mixture or switched off to their means, each is active in some component in which any other "
    "one is off, and the mixing is piecewise affine and injective; no graph",
)
AFFINE_GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="all latents together up to one affine map, if latents are Gaussian in each component of "
    "a mixture whose supports share a basis, and the mixing is piecewise affine and injective; no "
    "graph",
)

_ACTIVATION = "leaky_relu"
_BATCH = 6144
_ROWS_PER_BLOCK = 8192  # that are in memory in double precision at once
_WIDTHS = (1, 2, 2, 1)  # of the hidden layers, in multiples of the first
_DUAL_STEP = 0.5  # of the multiplier, beside one of the other parameters
_SMALLEST_VARIANCE = 1e-5  # in batch normalisation, as is usual
_LARGEST_MISS = 0.05  # share of the variance of X
_LEAST_KEPT = 0.5  # of a latent that the multiplier shrinks
# Width of a peak in sds, and share of values in it: a Gaussian has 0.197. Ten latents, stage 2 on
# standardised x, seed 0: latents of fits with an MCC above 0.97 had at least 0.27 (three quarters
# active), 0.45 (half) and 0.77 (one), those with 0.6 and less as little as 0.21.
_PEAK_WIDTH, _LEAST_PEAK = 0.5, 0.25


def normalised(outputs: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    """Return outputs with mean zero and variance one in the batch."""
    centred = outputs - outputs.mean(axis=0)
    return centred / jnp.sqrt((centred**2).mean(axis=0) + _SMALLEST_VARIANCE)


@dataclass(frozen=True)
class Reconstruction:
    """Stage 1: squared error of an autoencoder with a normalised code."""

    n_features: int
    n_latents: int
    width: int

    def init(self, key: PRNGKeyArray) -> Networks:
        """Draw encoder and decoder."""
        encoder_key, decoder_key = jax.random.split(key)
        d, n = self.n_features, self.n_latents
        hidden = [times * self.width * n for times in _WIDTHS]
        return {
            "encoder": MLP.random(encoder_key, [d, *hidden, n], _ACTIVATION),
            "decoder": MLP.random(decoder_key, [n, *hidden, d], _ACTIVATION),
        }

    def loss(
        self,
        params: Networks,
        batch: Float[Array, "rows features"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Mean squared error of a feature."""
        code = normalised(params["encoder"](batch))
        return ((params["decoder"](code) - batch) ** 2).mean()


@dataclass(frozen=True)
class SparseReconstruction:
    """Stage 2: squared error of an affine autoencoder whose latents are to be sparse."""

    n_latents: int
    sparsity_level: float

    def init(self, key: PRNGKeyArray) -> Networks:
        """Draw a matrix each way; the multiplier starts at zero."""
        encoder_key, decoder_key = jax.random.split(key)
        sizes = [self.n_latents, self.n_latents]
        return {
            "encoder": MLP.random(encoder_key, sizes),
            "decoder": MLP.random(decoder_key, sizes),
            "dual": jnp.zeros(()),
        }

    def loss(
        self,
        params: Networks,
        batch: Float[Array, "rows latents"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Lagrangian, whose gradient is reversed for the multiplier, so that it ascends."""
        z = params["encoder"](batch)
        lost = with_unit_columns(params["decoder"])(z) - batch
        excess = jnp.abs(z).mean() - self.sparsity_level
        dual = params["dual"]
        # At zero the multiplier stays while the constraint holds.
        slope = jnp.where(dual > 0, excess, jnp.maximum(excess, 0))
        ascent = -dual * stop_gradient(slope)
        lagrangian = (lost**2).sum(axis=1).mean() + stop_gradient(multiplier_of(dual)) * excess
        return lagrangian + ascent - stop_gradient(ascent)

    def revise(self, params: Networks, rows: Any, progress: float) -> Networks:
        """Change nothing: losses under another multiplier do not count, and the last weights do."""
        return params


def with_unit_columns(decoder: MLP) -> MLP:
    """Return an affine decoder to which each latent contributes a direction of length one."""
    (matrix,) = decoder.weights  # latents are multiplied from the left: one row each
    length = jnp.sqrt((matrix**2).sum(axis=1, keepdims=True))
    return MLP((matrix / length,), decoder.biases)


def multiplier_of(dual: Any) -> Any:
    """Return the Lagrange multiplier, whose steps are shorter than those of what is trained."""
    return _DUAL_STEP * jnp.maximum(dual, 0)


class Code(NamedTuple):
    """What stage 1 finds.

    Attributes
    ----------
    encoder, decoder
        From standardised features to a code of mean zero and variance one, and back.
    values
        Of the rows of the fit.
    error
        Share of the variance of the features that the decoder misses.
    """

    encoder: MLP
    decoder: MLP
    values: Matrix
    error: float


class Latents(NamedTuple):
    """What stage 2 finds.

    Attributes
    ----------
    encoder, decoder
        Affine maps from the code to latents of mean zero and variance one, and back.
    values
        Of the rows of the fit.
    kept
        Share of each latent that the trained autoencoder gives back; the rest is shrinkage.
    multiplier
        At the end of the training.
    size
        Mean absolute latent, in the units of the constraint.
    """

    encoder: MLP
    decoder: MLP
    values: Matrix
    kept: Matrix
    multiplier: float
    size: float


def code_of(training: Training, rows: Matrix) -> Code:
    """Normalise the code of a trained autoencoder by the statistics of all rows."""
    raw, decoder = training.params["encoder"], training.params["decoder"]
    encoder = followed_by(raw, _standardising(_outputs(raw, rows)))
    values = _outputs(encoder, rows)
    missed = np.square(_outputs(decoder, values) - rows).sum() / np.square(rows).sum()
    return Code(encoder, decoder, values, float(missed))


def latents_of(training: Training, code: Matrix) -> Latents:
    """Give the latents of a trained affine autoencoder mean zero and variance one."""
    raw, trained = training.params["encoder"], with_unit_columns(training.params["decoder"])
    values = _outputs(raw, code)
    encoder = followed_by(raw, _standardising(values))
    latents = _outputs(encoder, code)
    return Latents(
        encoder,
        _regression(code, latents),
        latents,
        np.einsum("ij,ji->i", np.asarray(trained.weights[0], float), raw.weights[0]),
        float(multiplier_of(training.params["dual"])),
        float(np.abs(values).mean()),
    )


def the_code_itself(code: Matrix) -> Latents:
    """Return what is there without stage 2."""
    n = code.shape[1]
    same = MLP((np.eye(n),), (np.zeros(n),))
    return Latents(same, same, code, np.ones(n), 0.0, float(np.abs(code).mean()))


def followed_by(network: MLP, affine: MLP) -> MLP:
    """Return a network and an affine map after it, which becomes part of the last layer."""
    (matrix,), (shift,) = affine.weights, affine.biases
    return MLP(
        (*network.weights[:-1], network.weights[-1] @ matrix),
        (*network.biases[:-1], network.biases[-1] @ matrix + shift),
        network.activation,
    )


def preceded_by(network: MLP, affine: MLP) -> MLP:
    """Return a network and an affine map before it, which becomes part of the first layer."""
    (matrix,), (shift,) = affine.weights, affine.biases
    return MLP(
        (matrix @ network.weights[0], *network.weights[1:]),
        (shift @ network.weights[0] + network.biases[0], *network.biases[1:]),
        network.activation,
    )


def shares_in_peaks(Z: Matrix) -> Matrix:
    """Return the share of the values of each latent in the fullest interval of half an sd."""
    ordered = np.sort(Z, axis=0)
    widths = _PEAK_WIDTH * Z.std(axis=0)
    ends = [np.searchsorted(z, z + w, "right") for z, w in zip(ordered.T, widths, strict=True)]
    return (np.array(ends) - np.arange(len(Z))).max(axis=1) / len(Z)


def pdgmm(
    X: Matrix,
    n_latents: int | None = None,
    *,
    sparsity_level: float = 0.01,
    width: int = 50,
    n_steps: int = 5000,
    n_sparsity_steps: int = 80_000,
    learning_rate: float = 1e-4,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents that switch off in two stages; see the module's text."""
    scaling = Scaling.of(X)
    rank, column_checks = check_columns(X, scaling, enough=n_latents)
    of_rank = choose_n_latents(None, rank)
    n = of_rank if n_latents is None else n_latents
    rows = scaling(X)
    autoencoder = Reconstruction(X.shape[1], n, width)
    trainings = [_trained(autoencoder, rows, n_steps, learning_rate, seed, checkpoint)]
    code = code_of(trainings[0], rows)
    latents = the_code_itself(code.values)
    if n_sparsity_steps > 0:
        inner = SparseReconstruction(n, float(sparsity_level))
        file = None if checkpoint is None else f"{checkpoint}.sparse"
        trainings += [_trained(inner, code.values, n_sparsity_steps, learning_rate, seed, file)]
        latents = latents_of(trainings[1], code.values)
    encoder, decoder = _in_units_of_observations(code, latents, scaling)
    return Result(
        encoder=encoder,
        decoder=decoder,
        guarantee=GUARANTEE if n_sparsity_steps > 0 else AFFINE_GUARANTEE,
        checks=(
            *column_checks,
            _reconstruction_check(code),
            *((_shrinkage_check(latents), _peak_check(latents)) if n_sparsity_steps > 0 else ()),
            _finite_check(trainings),
        ),
        history=_history(trainings),
        details={
            "stopped": trainings[0].stopped,
            "reconstruction_error": code.error,
            "mean_absolute_latent": latents.size,
            "multiplier": latents.multiplier,
            "kept": latents.kept,
            "shares_in_peaks": shares_in_peaks(latents.values),
        },
        device=device_name(),
    )


def _trained(
    objective: Reconstruction | SparseReconstruction,
    rows: Matrix,
    n_steps: int,
    learning_rate: float,
    seed: int,
    checkpoint: str | Path | None,
) -> Training:
    # Held-out rows choose among the weights of networks; of matrices the last are taken.
    share = 0.1 if isinstance(objective, Reconstruction) else 0.0
    steps_per_epoch = max(1, (len(rows) - int(share * len(rows))) // _BATCH)
    settings = Settings(
        max_epochs=ceil(n_steps / steps_per_epoch),
        batch_size=_BATCH,
        learning_rate=learning_rate,
        validation_fraction=share,
        patience=None,
    )
    return train(
        objective,
        rows.astype(np.float32),
        settings,
        seed=seed,
        checkpoint=checkpoint,
        description=f"PDGMM, {type(objective).__name__}",
    )


def _outputs(network: MLP, rows: Matrix) -> Matrix:
    """Return the outputs of a network in double precision, some rows at a time."""
    blocks = np.array_split(rows, -(-len(rows) // _ROWS_PER_BLOCK))
    return np.concatenate([np.asarray(network(np.asarray(block, float))) for block in blocks])


def _standardising(values: Matrix) -> MLP:
    """Return the affine map that gives columns mean zero and variance one."""
    units = Scaling.of(values)
    return MLP((np.diag(1 / units.scale),), (-units.mean / units.scale,))


def _regression(targets: Matrix, values: Matrix) -> MLP:
    """Return the affine map of values with mean zero that comes closest to the targets."""
    matrix = np.linalg.lstsq(values, targets, rcond=None)[0]
    return MLP((matrix,), (targets.mean(axis=0),))


def _in_units_of_observations(
    code: Code, latents: Latents, scaling: Scaling
) -> tuple[NetworkMap, NetworkMap]:
    """Return the maps from observations to latents and back."""
    n = latents.values.shape[1]
    zero, one = np.zeros(n), np.ones(n)
    # Constant columns said nothing in training: whatever they hold later must not matter.
    inward = np.where(scaling.constant, np.inf, scaling.scale)
    outward = np.where(scaling.constant, 0.0, scaling.scale)
    encoder = followed_by(code.encoder, latents.encoder)
    decoder = preceded_by(code.decoder, latents.decoder)
    return (
        NetworkMap(encoder, scaling.mean, inward, zero, one),
        NetworkMap(decoder, zero, one, scaling.mean, outward),
    )


def _history(trainings: list[Training]) -> dict[str, NDArray[Any]]:
    """Return the curves of both stages; those of the second have a prefix."""
    history = dict(trainings[0].history)
    for second in trainings[1:]:
        history |= {f"sparsity_{name}": curve for name, curve in second.history.items()}
    return history


def _finite_check(trainings: list[Training]) -> Check:
    """Return the check of the first training that did not stay finite, or of the last."""
    checks = [finite_check(training) for training in trainings]
    return next((check for check in checks if not check.passed), checks[-1])


def _reconstruction_check(code: Code) -> Check:
    passed = code.error <= _LARGEST_MISS
    detail = (
        f"the decoder misses {code.error:.2g} of the variance of the features; up to "
        f"{_LARGEST_MISS} passes"
    )
    advice = ": raise n_steps, or X holds more than so many numbers a row"
    return Check("X is reconstructed", passed, detail if passed else detail + advice)


def _shrinkage_check(latents: Latents) -> Check:
    worst = int(np.argmin(latents.kept))
    passed = bool(latents.kept[worst] >= _LEAST_KEPT)
    detail = (
        f"{latents.kept[worst]:.2g} of z{worst} is given back under a multiplier of "
        f"{latents.multiplier:.2g}; from {_LEAST_KEPT} on passes"
    )
    advice = ": the multiplier has grown too large, lower n_sparsity_steps or learning_rate"
    return Check("every latent is kept", passed, detail if passed else detail + advice)


def _peak_check(latents: Latents) -> Check:
    """Check that many values of each latent are nearly the same."""
    shares = shares_in_peaks(latents.values)
    worst = int(np.argmin(shares))
    passed = bool(shares[worst] >= _LEAST_PEAK)
    detail = (
        f"{shares[worst]:.0%} of the values of z{worst} lie in an interval of {_PEAK_WIDTH} sd, "
        f"from {_LEAST_PEAK:.0%} on passes; a Gaussian has 20%"
    )
    advice = ": it does not switch off, or training has not found it; raise n_sparsity_steps"
    return Check("every latent switches off", passed, detail if passed else detail + advice)


class PDGMM(BaseCRL):
    """Two-stage autoencoder for degenerate Gaussian mixtures (pdGMM, Xu et al. 2026).

    For latents that switch off in part of the rows, behind a piecewise affine mixing. Makes no use
    of `y`. Stage 1 finds a code that is an affine map of the latents, stage 2 sparse latents in
    it. ``result_.details`` has ``reconstruction_error`` (of stage 1, as a share of the variance),
    ``multiplier`` and ``mean_absolute_latent`` of the constraint, what is ``kept`` of each latent
    under it, and ``shares_in_peaks``: values of each latent in the fullest interval of half an sd.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X. It may be larger than that, as in appendix D.8.
    sparsity_level
        What the mean absolute latent is to come down to, where a latent of size one moves the code
        by one; a level that is out of reach, as the paper's, keeps the multiplier growing.
    width
        Units for each latent of the first and the last hidden layer of encoder and decoder in stage
        1; the two layers between them have twice as many.
    n_steps, n_sparsity_steps
        Steps of stage 1 and of stage 2; without the latter the code of stage 1 is the answer.
    learning_rate
        Largest step of both stages.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes; that of
        stage 2 is beside it, with ``.sparse`` at the end of its name.
    random_state
        Seed of weights, batches and held-out rows.

    Examples
    --------
    >>> from crlearn.data import make_sparse_mixture
    >>> from crlearn.published import PDGMM
    >>> world = make_sparse_mixture(3, n_samples=1000, n_layers=3, random_state=0)
    >>> model = PDGMM(width=5, n_steps=300, n_sparsity_steps=2000, learning_rate=2e-3)
    >>> model.set_params(random_state=0).fit(world.X).transform(world.X).shape
    (1000, 3)
    """

    _keeps_float32 = True
    _may_ask_for_too_many = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "sparsity_level": [Interval(Real, 0, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_sparsity_steps": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        sparsity_level: float = 0.01,
        width: int = 50,
        n_steps: int = 5000,
        n_sparsity_steps: int = 80_000,
        learning_rate: float = 1e-4,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.sparsity_level = sparsity_level
        self.width = width
        self.n_steps = n_steps
        self.n_sparsity_steps = n_sparsity_steps
        self.learning_rate = learning_rate
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        return pdgmm(
            X,
            self.n_latents,
            sparsity_level=self.sparsity_level,
            width=self.width,
            n_steps=self.n_steps,
            n_sparsity_steps=self.n_sparsity_steps,
            learning_rate=self.learning_rate,
            seed=seed,
            checkpoint=self.checkpoint,
        )
