"""`GSCALEI`: any mixing, two hard interventions for each latent, from score differences.

Varıcı, Acartürk, Shanmugam, Kumar, Tajer: Score-based Causal Representation Learning: Linear and
General Transformations, JMLR 26(112), 2025: GSCALE-I, with coupled interventions (it is known which
two environments share a target) and uncoupled ones.

Two hard interventions i and i' on the same latent have scores that differ along this latent alone.
An encoder h with decoder g is trained so that the differences of the recovered latents,
``J_g(z)' (s_i(x) - s_i'(x))``, are one-hot:

    sum_i || E |s_i(z) - s_i'(z)| - e_i ||^2  +  weight * E || g(h(x)) - x ||^2

with expectations over rows of the reference. Then k -> i is an edge if E |s_0(z) - s_i(z)|_k is not
zero, and the closest acyclic graph is taken.

As published: an autoencoder with three hidden layers and a reconstruction weight of 100
(``decoder="mlp"``), or x = tanh(U z) with encoder ``pinv(U) atanh(x)`` (``decoder="tanh"``, the
paper's generalised linear model); score differences from a classifier.

What differs from the paper and its code, and why:

- The published network ends its encoder in a softmax, so that latents lie on a simplex of one
  dimension less. Here it ends in a linear layer.
- The published network code swaps its classifiers: differences between the two hard environments
  never enter the loss. Here they do.
- The loss is the squared distance that is printed. The code has absolute values there, and for
  tanh a hinge at 0.5; all vanish together.
- ``decoder="tanh"``: U is looked for in the span of atanh(x), where it must lie if the model is
  right, so that the reconstruction is exact and n coordinates are left. The code learns it in d.
- ``decoder="mlp"``: X is reduced to the principal components that vary. Differences are brought to
  mean length one, which sets the unit of each latent and nothing else.
- Layers have 64 units, not 256, so that a processor is done in a minute or two, and those of the
  decoder are tanh, not ReLU: Jacobians of a ReLU network jump.
- Training takes Adam with a step of 0.003 along a cosine and `n_steps` minibatches, the best of
  `n_restarts`. The code has RMSprop with 0.001 and up to 20,000 steps for tanh, and Adam with 1e-5
  for networks.
- Edges are decided in latents of variance one, so that the cut (the paper's lambda_G) means the
  same everywhere. The published code has 1.0 and 0.5 for estimated scores and 0.1 for exact ones,
  with columns of U of length one. Three latents behind tanh, 1,000 rows an environment, ratio
  scores, seeds 0 to 2: differences were at most 0.18 without an edge and at least 0.33 with one.
- Uncoupled: the paper minimises over all pairings as well. Here a first pairing comes from how
  close to one direction the difference of two environments is; after training, environments are
  paired anew by how close to one latent it is, and training is repeated if pairs have changed, at
  most twice. See `crlearn.published.gscale._pairs`.
- A latent with one environment alone is compared with the reference, as in the paper's Table 14.

Cost: `n_steps` steps, each O(batch (n + 1) W) for a decoder of W weights; products with the
decoder's Jacobian are backward passes, one for each latent, and no Jacobian is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import (
    Environments,
    Scaling,
    check_environment_sizes,
    names_after,
    read_domains,
    read_environments,
    reference_first,
    reference_of,
)
from crlearn.nets import NetworkMap
from crlearn.published._units import refuse_extreme_units
from crlearn.published.gscale._autoencoder import (
    Coordinates,
    DecoderName,
    OneHotDifferences,
    TanhDecoder,
    TanhEncoder,
    coordinates_of,
    pulled_differences,
)
from crlearn.published.gscale._pairs import (
    Groups,
    axis_prices,
    changes,
    cheapest_groups,
    spread_prices,
)
from crlearn.published.lscale._estimator import acyclic_graph
from crlearn.result import Check, Guarantee, LinearDecoder, LinearEncoder, Result
from crlearn.scores import make_score
from crlearn.train import Settings, Training, finite_check, train

Matrix = NDArray[np.floating]

ANY_MIXING_GUARANTEE = Guarantee(
    latents="elementwise",
    graph="exact",
    text="each latent up to order and an invertible function of its own, and the exact graph, if "
    "the mixing is smooth and injective and each latent has two environments that cut it off its "
    "parents, with distributions that differ almost everywhere",
)
TANH_GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, and the exact graph, if x = tanh(U z) with a matrix U "
    "of full rank and each latent has two environments that cut it off its parents, with "
    "distributions that differ almost everywhere",
)

_BATCH, _LEARNING_RATE = {"mlp": 256, "tanh": 8192}, 3e-3
_MOST_ROUNDS = 3  # trainings, with other pairs each
# Held-out rows choose among networks; a matrix has too few numbers to fit noise, and held-out rows
# of heavy tails would only choose one that is not at its end yet.
_HELD_OUT = {"mlp": 0.1, "tanh": 0.0}
_MOST_ROWS = 10_000  # of a check
# Variance of the features that may be missed, and share of a difference along other latents. Fits
# of two and three latents with MCC above 0.98 (seeds 0 to 2) had shares of 0.02 to 0.14, those with
# a wrong pair or an MCC below 0.8 had 0.34 to 0.65.
_LARGEST_MISS, _LARGEST_SHARE = 0.05, 0.15


# The algorithm


class Fit(NamedTuple):
    """A trained autoencoder, the environments of each latent, and what came out."""

    groups: Groups
    training: Training
    strengths: Matrix  # mean absolute difference of each group along each latent of sd one
    pulled: Matrix  # of all environments, along latents of sd one


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of the reference, their score differences, and how an autoencoder is trained on them."""

    rows: Matrix
    differences: Matrix
    objective: Callable[[tuple[int, ...]], OneHotDifferences]
    settings: Settings
    seed: int

    def fit(self, groups: Groups, description: str) -> Fit:
        """Train with these environments for each latent."""
        inside = changes(self.differences, groups)
        lengths = np.linalg.norm(inside, axis=2).mean(axis=1)
        if (lengths <= 0).any():
            raise IdentifiabilityError(
                "Environments with the same target must differ, and some have the same scores: no "
                "intervention is visible there. Leave them out."
            )
        inside = (inside / lengths[:, None, None]).transpose(1, 0, 2)
        data = (self.rows.astype(np.float32), inside.astype(np.float32))
        places = tuple(j for j, group in enumerate(groups) if group)
        training = train(
            self.objective(places), data, self.settings, seed=self.seed, description=description
        )
        model = training.params
        scale = np.asarray(model.encode(self.rows)).std(axis=0)
        pulled = scale * pulled_differences(model, self.rows, self.differences)
        strengths = np.abs(changes(pulled, groups)).mean(axis=1)
        return Fit(groups, training, strengths, pulled)

    def fit_uncoupled(self, n_latents: int) -> Fit:
        """Train, pair anew by the latents that were found, and train again if pairs changed."""
        spread = np.atleast_2d(np.cov(self.rows.T, bias=True))
        whitened = self.differences @ np.linalg.cholesky(spread)
        groups = cheapest_groups(spread_prices(whitened), n_latents)
        tried: dict[Groups, Fit] = {}
        while groups not in tried and len(tried) < _MOST_ROUNDS:
            tried[groups] = self.fit(groups, f"GSCALE-I, pairing {len(tried) + 1}")
            pulled = tried[groups].pulled
            pairwise = np.array([np.abs(pulled - own).mean(axis=1) for own in pulled])
            groups = cheapest_groups(axis_prices(pairwise), n_latents)
        return min(tried.values(), key=lambda fit: fit.training.loss)


def gscale_i(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    targets: Any = None,
    scores: Any = "ratio",
    decoder: DecoderName = "mlp",
    edge_cut: float = 0.25,
    reconstruction_weight: float = 100.0,
    n_steps: int = 5000,
    n_restarts: int = 1,
    learning_rate: float = _LEARNING_RATE,
    width: int = 64,
    depth: int = 3,
    seed: int = 0,
) -> Result:
    """Recover latents and graph from score differences; see the module's text.

    Parameters
    ----------
    X, environments, n_latents, targets, scores, decoder, edge_cut
        See `GSCALEI`; `crlearn.inputs.read_environments` reads `environments`.
    reconstruction_weight, n_steps, n_restarts
        See `GSCALEI`.
    learning_rate
        Largest step of Adam.
    width, depth
        Units and number of the hidden layers of ``decoder="mlp"``.
    seed
        Of scores, weights and batches.
    """
    refuse_extreme_units(X)
    order = reference_first(environments)
    codes = np.argsort(order)[environments.codes]
    n = _number_of_latents(n_latents, targets, len(order) - 1)
    known = None if targets is None else _known_groups(targets, environments, order, n)
    coordinates = coordinates_of(X, n_latents if targets is None else n, decoder)
    n = min(n, coordinates.rows.shape[1])
    _refuse_too_many(len(order) - 1, n)
    if decoder == "tanh" and coordinates.rows.shape[1] != n:
        coordinates = coordinates_of(X, n, decoder)

    seeds = check_random_state(seed).randint(2**31 - 1, size=2).tolist()
    reference = np.flatnonzero(codes == 0)
    differences = coordinates.differences(make_score(scores, seeds[0]), X, codes, reference)
    k = coordinates.rows.shape[1]
    problem = Problem(
        coordinates.rows[reference],
        differences,
        lambda places: OneHotDifferences(
            k, n, decoder, places, float(reconstruction_weight), width, depth
        ),
        _settings(decoder, len(reference), n_steps, n_restarts, learning_rate),
        seeds[1],
    )
    fit = problem.fit_uncoupled(n) if known is None else problem.fit(known, "GSCALE-I")
    return _result(X, environments, order, coordinates, fit, decoder, edge_cut)


def _number_of_latents(n_latents: int | None, targets: Any, n_environments: int) -> int:
    """Return what was asked for, or what targets name, or half the number of environments."""
    if n_latents is not None:
        return n_latents
    if targets is None:
        return ceil(n_environments / 2)
    if isinstance(targets, Mapping):
        return 1 + max((int(np.max(own)) for own in targets.values() if np.size(own)), default=0)
    return max(np.shape(targets)[-1], 1) if np.ndim(targets) == 2 else 1


def _known_groups(
    targets: Any, environments: Environments, order: NDArray[np.intp], n_latents: int
) -> Groups:
    """Return the environments of each latent, counted as in `order`."""
    empty = np.zeros((n_latents, n_latents), dtype=bool)
    known = read_domains(empty, targets, environments).targets[order]
    wrong = np.flatnonzero(known.sum(axis=1) != (np.arange(len(order)) > 0))
    if len(wrong):
        names = ", ".join(str(environments.labels[order[e]]) for e in wrong[:8])
        raise IdentifiabilityError(
            "The 'targets' must name one latent for each environment, and none for the reference. "
            f"That is not so for: {names}."
        )
    groups = tuple(tuple(np.flatnonzero(own).tolist()) for own in known.T)
    if max(map(len, groups)) > 2:
        raise IdentifiabilityError(_TOO_MANY.format(f"more for {max(groups, key=len)}"))
    return groups


_TOO_MANY = (
    "GSCALE-I takes two environments for each latent, beside the reference. Got {}; leave some out."
)


def _refuse_too_many(n_environments: int, n_latents: int) -> None:
    if n_environments > 2 * n_latents:
        raise IdentifiabilityError(_TOO_MANY.format(f"{n_environments} for {n_latents} latents"))


def _settings(
    decoder: DecoderName, n_rows: int, n_steps: int, n_restarts: int, learning_rate: float
) -> Settings:
    batch_size, held_out = _BATCH[decoder], _HELD_OUT[decoder]
    n_training = n_rows - int(held_out * n_rows)
    steps_an_epoch = max(n_training // min(batch_size, n_training), 1)
    return Settings(
        max_epochs=ceil(n_steps / steps_an_epoch),
        batch_size=batch_size,
        learning_rate=learning_rate,
        validation_fraction=held_out,
        patience=None,
        n_restarts=n_restarts,
    )


def _result(
    X: Matrix,
    environments: Environments,
    order: NDArray[np.intp],
    coordinates: Coordinates,
    fit: Fit,
    decoder: DecoderName,
    edge_cut: float,
) -> Result:
    encode, decode = _maps(coordinates, fit, environments.codes == order[0], decoder)
    n = encode.n_latents
    targets = np.zeros((len(order), n), dtype=bool)
    strengths = np.zeros((n, n))
    for j, group in enumerate(fit.groups):
        targets[order[list(group)], j] = True
        if group:
            strengths[:, j] = np.abs(fit.pulled[group[0] - 1]).mean(axis=0)
    sources = [environments.labels[order[list(group)]].tolist() for group in fit.groups]
    return Result(
        encoder=encode,
        decoder=decode,
        guarantee=TANH_GUARANTEE if decoder == "tanh" else ANY_MIXING_GUARANTEE,
        adjacency=acyclic_graph(strengths / edge_cut),
        targets=targets,
        names=names_after(sources),
        environments=environments.names,
        checks=(
            *coordinates.checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, n),
            _coverage_check(fit.groups),
            _reconstruction_check(X, encode, decode),
            _one_hot_check(fit),
            finite_check(fit.training),
        ),
        history=fit.training.history,
        details={
            "loss": fit.training.loss,
            "score_differences": fit.strengths,
            "edge_strengths": strengths,
            "n_inputs": coordinates.rows.shape[1],
        },
        device=device_name(),
    )


def _maps(
    coordinates: Coordinates, fit: Fit, reference: NDArray[np.bool_], decoder: DecoderName
) -> tuple[Any, Any]:
    """Return encoder and decoder of X, with latents of mean 0 and sd 1 in the reference."""
    model, to, back = fit.training.params, coordinates.encoder, coordinates.decoder
    units = Scaling.of(np.asarray(model.encode(coordinates.rows[reference]), dtype=float))
    if decoder == "tanh":
        mixing = np.asarray(model.mixing, dtype=float)
        unmixing = np.linalg.inv(mixing).T / units.scale[:, None] @ to.matrix
        centre = back(units.mean[None] @ mixing)[0]
        matrix = back.matrix @ mixing.T * units.scale
        return (
            TanhEncoder(LinearEncoder(unmixing, centre)),
            TanhDecoder(LinearDecoder(matrix, centre)),
        )
    shift, stretch = -units.mean / units.scale, 1 / units.scale
    own, n_features = model.encoder, len(back.matrix)
    inward = replace(own, weights=(to.matrix.T @ own.weights[0], *own.weights[1:]))
    own = model.decoder
    outward = replace(
        own,
        weights=(*own.weights[:-1], own.weights[-1] @ back.matrix.T),
        biases=(*own.biases[:-1], own.biases[-1] @ back.matrix.T),
    )
    return (
        NetworkMap(inward, to.offset, np.ones(n_features), shift, stretch),
        NetworkMap(outward, shift, stretch, back.offset, np.ones(n_features)),
    )


def _coverage_check(groups: Groups) -> Check:
    short = [f"z{j}" for j, group in enumerate(groups) if len(group) < 2]
    return Check(
        "two environments for each latent",
        not short,
        f"latents with fewer than two: {', '.join(short) or 'none'}",
    )


def _reconstruction_check(X: Matrix, encode: Any, decode: Any) -> Check:
    rows = X[:: max(1, len(X) // _MOST_ROWS)]
    scaling = Scaling.of(rows)
    error = (rows - decode(encode(rows)))[:, ~scaling.constant] / scaling.scale[~scaling.constant]
    missed = float((error**2).mean())
    passed = missed <= _LARGEST_MISS
    detail = f"{missed:.2g} of the variance of the features is missed"
    advice = "; raise n_steps, or X holds more than so many numbers a row"
    return Check("X is reconstructed", passed, detail if passed else detail + advice)


def _one_hot_check(fit: Fit) -> Check:
    places = [j for j, group in enumerate(fit.groups) if group]
    total = fit.strengths.sum(axis=1)
    beside = 1 - fit.strengths[np.arange(len(places)), places] / np.where(total > 0, total, 1.0)
    worst = int(np.argmax(beside))
    detail = (
        f"of the difference between the environments of z{places[worst]}, {beside[worst]:.2g} lies "
        f"along other latents; up to {_LARGEST_SHARE} passes"
    )
    passed = bool(beside[worst] <= _LARGEST_SHARE)
    advice = ": pairs or targets may be wrong, scores noisy, or training is not at its end"
    return Check("score differences are one-hot", passed, detail if passed else detail + advice)


class GSCALEI(BaseCRL):
    """GSCALE-I (Varıcı et al. 2025): two hard interventions on each latent, any mixing, by scores.

    `y` holds one environment label a row. One environment is observational; each of the others cuts
    one latent off its parents, and each latent has two of them. ``result_.details`` has
    ``score_differences`` (mean absolute difference of each pair of environments along each latent
    of sd one) and ``edge_strengths`` (``[k, i]``, which makes k a cause of i from `edge_cut` on).

    Parameters
    ----------
    n_latents
        Number of latents; None: what `targets` name, or half the number of environments.
    targets
        Which environments share a target (*coupled*): a mapping from labels to the number of the
        latent (``[]`` for the reference), or a 0/1 array with one row for each environment in y, in
        the order of the labels, and one column for each latent. None (*uncoupled*): pairs are
        looked for.
    reference
        Label of the observational environment; None: the one labelled 0, or by a name such as
        ``"control"``, ``"wt"`` or ``"untreated"``.
    scores
        Score differences: ``"ratio"`` (a classifier), ``"sliced"``, ``"gaussian"``, or whatever
        `crlearn.scores.make_score` takes.
    decoder
        ``"mlp"``: networks, for any mixing. ``"tanh"``: x = tanh(U z).
    edge_cut
        Least mean absolute score difference along a latent of sd one that makes it a cause.
    reconstruction_weight
        Of the squared error of reconstruction beside the distance from one-hot differences.
    n_steps
        Least number of training steps; passes over the rows are whole.
    n_restarts
        Draws of the weights; the best goes on after a fifth of the training.
    random_state
        Seed of scores, weights and batches.

    Examples
    --------
    >>> from crlearn.data import make_coupled_interventional
    >>> from crlearn.published import GSCALEI
    >>> from crlearn.scores import ExactScores
    >>> world = make_coupled_interventional(2, 4, n_samples=200, random_state=0)
    >>> model = GSCALEI(decoder="tanh", scores=ExactScores(world.truth), n_steps=2000)
    >>> model.fit(world.X, world.y).result_.interventions
    {'z0': ['1', '3'], 'z1': ['2', '4']}
    """

    _requires_y = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "targets": "no_validation",
        "reference": "no_validation",
        "scores": "no_validation",
        "decoder": [StrOptions({"mlp", "tanh"})],
        "edge_cut": [Interval(Real, 0, None, closed="neither")],
        "reconstruction_weight": [Interval(Real, 0, None, closed="left")],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        targets: Any = None,
        reference: Any = None,
        scores: Any = "ratio",
        decoder: str = "mlp",
        edge_cut: float = 0.25,
        reconstruction_weight: float = 100.0,
        n_steps: int = 5000,
        n_restarts: int = 1,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.targets = targets
        self.reference = reference
        self.scores = scores
        self.decoder = decoder
        self.edge_cut = edge_cut
        self.reconstruction_weight = reconstruction_weight
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        return gscale_i(
            X,
            read_environments(y, self.reference),
            self.n_latents,
            targets=self.targets,
            scores=self.scores,
            decoder=self.decoder,  # type: ignore[arg-type]
            edge_cut=self.edge_cut,
            reconstruction_weight=self.reconstruction_weight,
            n_steps=self.n_steps,
            n_restarts=self.n_restarts,
            seed=seed,
        )
