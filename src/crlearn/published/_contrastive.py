"""`ContrastiveCRL`: linear Gaussian latents behind any mixing, one perfect intervention each.

Buchholz, Rajendran, Rosenfeld, Aragam, Schölkopf, Ravikumar: Learning Linear Causal Representations
from Interventions under General Nonlinear Mixing, NeurIPS 2023.

Latents follow a linear model with Gaussian noise: in the reference ``B z`` is standard Gaussian,
where row i of B is ``s_i (z_i - sum_j a_ij z_j)``. Environment i replaces this mechanism by
``lambda_i z_i - eta_i`` standard Gaussian and leaves the others alone, so that in the log-odds
everything else cancels, the mixing's Jacobian as well:

    log p_i(x) - log p_0(x) = c_i + eta_i z_i - (lambda_i z_i)^2 / 2 + (b_i . z)^2 / 2

A network h(x) takes the place of z in one logistic regression for each environment against the
reference, all with the same h. Penalties: acyclicity of A (NOTEARS), its absolute values, and the
squared mean of h in the reference.

As published (the numbers of the authors' code, as the causal chambers' benchmark runs it): one
hidden layer of 512 leaky ReLU units with slope 0.2, Adam, 100 epochs, best held-out weights,
penalties 1e-5 (acyclicity), 1e-4 (absolute values) and 0.1 (mean), and A that starts at zero off
its diagonal.

What differs from the paper and its code, and why:

- The code pairs a row of the reference with one of an environment. Here batches are drawn from all
  rows, weighted so that reference and environment count alike: every row of the reference is set
  against every environment at once, and environments may differ in size.
- Features are standardised, and the step follows a cosine from 0.002 in batches of 512 (0.0005 and
  64 in the code). There are `n_restarts` draws of the weights.
- The coefficients of the log-odds take steps 30 times as large as the network's: with equal steps,
  as published, the network bends itself around coefficients that hardly move, and then fits noise.
  Measured: see `_FASTER`.
- Edges are entries of A for latents of variance one of at least `edge_cut`, then the closest
  acyclic graph. The published evaluation keeps as many edges as the truth has.
- What the loss cannot see is tested afterwards: it only knows quadratic forms of h, which does not
  keep h from folding the data. Latents must be Gaussian in the reference, and noises uncorrelated.

Cost: a step is O(batch width (d + n)) time, whatever N is; memory O(N d).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils._param_validation import Interval

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import (
    Environments,
    Scaling,
    check_columns,
    check_environment_sizes,
    choose_n_latents,
    names_after,
    read_environments,
    reference_first,
    reference_of,
)
from crlearn.nets import MLP, AnyArray, NetworkMap
from crlearn.published._units import refuse_extreme_units
from crlearn.published.lscale._estimator import acyclic_graph
from crlearn.result import Check, Guarantee, Result
from crlearn.train import Settings, finite_check, train

Matrix = NDArray[np.floating]

GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, and the exact graph, if latents are linear with "
    "Gaussian noise, each environment but the reference cuts another latent off its parents, and "
    "the mixing is injective",
)

_MEAN_PENALTY = 0.1  # as published
_BATCH = 512
# Steps of the log-odds are so many times those of the network. Three latents, leaky ReLU map, 5,000
# rows an environment, seeds 0 and 1: MCC 0.98 and 0.97 instead of 0.96 and 0.88, wrong edges none
# instead of 0 and 2.
_FASTER = 30.0
# Fits with MCC above 0.97 (seeds 0 to 2) had correlations of at most 0.21 and deviations of at most
# 0.11; those below 0.9 had 0.31 to 0.47, and 0.12 to 0.24.
_LARGEST_CORRELATION, _LARGEST_DEVIATION, _LEAST_ADVANTAGE = 0.2, 0.1, 0.02


class LogOdds(NamedTuple):
    """The log-odds of each environment against the reference, as functions of the latents.

    Attributes
    ----------
    constant, shift, precision
        c, eta and lambda of each environment.
    scale
        s, one over the noise's sd of each latent in the reference.
    effects
        ``effects[i, j]`` is the effect of latent j on latent i; the diagonal is not used.
    """

    constant: Float[AnyArray, " latents"]
    shift: Float[AnyArray, " latents"]
    precision: Float[AnyArray, " latents"]
    scale: Float[AnyArray, " latents"]
    effects: Float[AnyArray, "latents latents"]

    @property
    def noise_rows(self) -> Any:
        """B: the noises in the reference are ``z @ B.T``."""
        beside = self.effects * (1 - np.eye(len(self.scale)))
        return self.scale[:, None] * (np.eye(len(self.scale)) - beside)

    def __call__(self, z: Float[AnyArray, "rows latents"]) -> Float[AnyArray, "rows latents"]:
        """Return the log-odds of each environment in each row."""
        after = self.shift * z - (self.precision * z) ** 2 / 2
        return self.constant + after + (z @ self.noise_rows.T) ** 2 / 2


class Model(NamedTuple):
    """The embedding h, and the log-odds, which are stored so that they learn faster."""

    embedding: MLP
    stored_odds: LogOdds

    @property
    def log_odds(self) -> LogOdds:
        """The log-odds in their own units."""
        return LogOdds(*(_FASTER * part for part in self.stored_odds))


@dataclass(frozen=True)
class ContrastiveLoss:
    """Logistic regressions of each environment against the reference, and penalties.

    `weights` are those of a row of each environment, the reference first: rows over rows of it.
    """

    n_features: int
    n_latents: int
    width: int
    depth: int
    sparsity: float
    acyclicity: float
    weights: tuple[float, ...]

    def init(self, key: PRNGKeyArray) -> Model:
        """Draw the network; the log-odds start without any effect."""
        n = self.n_latents
        hidden = [self.width] * self.depth
        ones = jnp.ones(n) / _FASTER
        return Model(
            MLP.random(key, [self.n_features, *hidden, n]),
            LogOdds(jnp.zeros(n), ones, ones, ones, jnp.zeros((n, n))),
        )

    def loss(
        self,
        params: Model,
        batch: tuple[Array, Array],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Return the mean over environments of two cross-entropies, and the penalties."""
        x, environments = batch
        z = params.embedding(x)
        logits = params.log_odds(z)
        weight = jnp.asarray(self.weights)[environments]
        is_reference = environments == 0
        own = jnp.take_along_axis(logits, jnp.maximum(environments - 1, 0)[:, None], axis=1)[:, 0]
        against = jax.nn.softplus(logits).sum(axis=1)
        entropy = (weight * jnp.where(is_reference, against, jax.nn.softplus(-own))).mean()
        mean = ((weight * is_reference)[:, None] * z).mean(axis=0)
        penalty = self._penalty(params.log_odds.effects) + _MEAN_PENALTY * (mean**2).sum()
        return entropy / self.n_latents + penalty

    def _penalty(self, effects: Float[AnyArray, "n n"]) -> Float[Array, ""]:
        beside = effects * (1 - jnp.eye(self.n_latents))
        cycles = jnp.trace(jax.scipy.linalg.expm(beside**2)) - self.n_latents
        return self.sparsity * jnp.abs(beside).sum() + self.acyclicity * cycles


def contrastive_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    width: int = 512,
    depth: int = 1,
    sparsity: float = 1e-4,
    acyclicity: float = 1e-5,
    edge_cut: float = 0.2,
    max_epochs: int = 100,
    batch_size: int = _BATCH,
    learning_rate: float = 2e-3,
    n_restarts: int = 1,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents and graph by contrastive learning; see the module's text.

    Parameters
    ----------
    X, environments, n_latents, width, sparsity, acyclicity, edge_cut
        See `ContrastiveCRL`; `crlearn.inputs.read_environments` reads `environments`.
    depth
        Number of hidden layers.
    max_epochs, batch_size, learning_rate, n_restarts
        See `crlearn.train.Settings`.
    seed
        Of weights, batches and held-out rows.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes.
    """
    refuse_extreme_units(X)
    order = reference_first(environments)
    codes = np.argsort(order)[environments.codes]
    scaling = Scaling.of(X)
    n, column_checks = _one_latent_each(X, scaling, len(order) - 1, n_latents)
    objective = ContrastiveLoss(
        X.shape[1],
        n,
        width,
        depth,
        float(sparsity),
        float(acyclicity),
        tuple((len(X) / np.bincount(codes)).tolist()),
    )
    settings = Settings(
        max_epochs=max_epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        patience=None,
        n_restarts=n_restarts,
    )
    data = (scaling(X).astype(np.float32), codes.astype(np.int32))
    training = train(
        objective, data, settings, seed=seed, checkpoint=checkpoint, description="ContrastiveCRL"
    )
    embedding, log_odds = training.params.embedding, training.params.log_odds
    raw = _encoder(embedding, scaling, np.zeros(n), np.ones(n))(X)
    units = Scaling.of(raw[codes == 0])
    effects = np.asarray(log_odds.effects, dtype=float) * (1 - np.eye(n))
    effects = effects * units.scale / units.scale[:, None]
    targets = np.zeros((len(order), n), dtype=bool)
    targets[order[1:], np.arange(n)] = True
    labels = environments.labels[order[1:]].tolist()
    return Result(
        encoder=_encoder(embedding, scaling, -units.mean / units.scale, 1 / units.scale),
        guarantee=GUARANTEE,
        adjacency=acyclic_graph(np.abs(effects.T) / edge_cut),
        targets=targets,
        names=names_after([[label] for label in labels]),
        environments=environments.names,
        checks=(
            *column_checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, n),
            _visibility_check(log_odds, raw, codes, labels),
            _gaussian_check(units(raw[codes == 0])),
            _noise_check(raw[codes == 0] @ np.asarray(log_odds.noise_rows).T),
            finite_check(training),
        ),
        history=training.history,
        details={"loss": training.loss, "effects": effects.T},
        device=device_name(),
    )


def _one_latent_each(
    X: Matrix, scaling: Scaling, n_environments: int, n_latents: int | None
) -> tuple[int, tuple[Check, ...]]:
    """Return the number of latents, which is that of the environments beside the reference."""
    n = n_environments if n_latents is None else n_latents
    rank, checks = check_columns(X, scaling, enough=n)
    choose_n_latents(n, rank)
    if n != n_environments:
        raise IdentifiabilityError(
            "ContrastiveCRL needs exactly one environment for each latent beside the reference. "
            f"Got {n_environments} for n_latents = {n}; leave some out, or change n_latents."
        )
    return n, checks


def _encoder(embedding: MLP, scaling: Scaling, mean: Matrix, scale: Matrix) -> NetworkMap:
    # Constant columns said nothing in training: whatever they hold later must not matter.
    inward = np.where(scaling.constant, np.inf, scaling.scale)
    return NetworkMap(embedding, scaling.mean, inward, mean, scale)


def _visibility_check(
    log_odds: LogOdds, Z: Matrix, codes: NDArray[np.intp], labels: list[Any]
) -> Check:
    """Check that each environment can be told from the reference."""
    logits = np.asarray(log_odds(Z))
    chance = 2 * np.log(2)
    entropies = [
        np.logaddexp(0, logits[codes == 0, i]).mean()
        + np.logaddexp(0, -logits[codes == i + 1, i]).mean()
        for i in range(len(labels))
    ]
    advantage = 1 - np.array(entropies) / chance
    hidden = [str(labels[i]) for i in np.flatnonzero(~(advantage >= _LEAST_ADVANTAGE))]
    return Check(
        "interventions are visible",
        not hidden,
        f"cross-entropy at least {advantage.min():.2g} below chance; environments with less than "
        f"{_LEAST_ADVANTAGE}: {', '.join(hidden[:8]) or 'none'}",
    )


def _gaussian_check(Z: Matrix) -> Check:
    """Check that latents have the distribution function of a Gaussian in the reference."""
    expected = (np.arange(len(Z)) + 0.5) / len(Z)
    deviations = np.abs(norm.cdf(np.sort(Z, axis=0)) - expected[:, None]).max(axis=0)
    # Below the last term a sample of Gaussians is as well, 99 times of 100.
    largest = _LARGEST_DEVIATION + 1.63 / np.sqrt(len(Z))
    worst = int(np.argmax(deviations))
    passed = bool(deviations[worst] <= largest)
    detail = f"distribution of z{worst} is off by {deviations[worst]:.2g}; {largest:.2g} passes"
    advice = ": the network folds the data, training is not at its end, or noise is not Gaussian"
    return Check("latents are Gaussian", passed, detail if passed else detail + advice)


def _noise_check(noises: Matrix) -> Check:
    """Check that what effects do not explain is uncorrelated in the reference."""
    name = "noises are uncorrelated"
    if noises.shape[1] == 1:
        return Check(name, True, "there is one latent only")
    correlations = np.abs(np.corrcoef(noises.T))[np.triu_indices(noises.shape[1], 1)]
    largest = _LARGEST_CORRELATION + 2.58 / np.sqrt(len(noises))
    passed = bool(correlations.max() <= largest)
    detail = f"largest correlation {correlations.max():.2g}; up to {largest:.2g} passes"
    advice = ": two environments may share a target, or training is not at its end"
    return Check(name, passed, detail if passed else detail + advice)


class ContrastiveCRL(BaseCRL):
    """Contrastive learning of linear Gaussian latents (Buchholz et al. 2023), any mixing.

    `y` holds one environment label a row. One environment is observational; each of the others cuts
    one latent off its parents and gives it another mean or variance, and each latent has exactly
    one. Which environment has which target need not be known: latents are numbered as environments
    are. ``result_.details["effects"]`` has the effect of latent i on latent j for latents of sd
    one. There is no way back from latents to observations.

    Parameters
    ----------
    n_latents
        Number of latents; None: that of the environments beside the reference.
    reference
        Label of the observational environment; None: the one labelled 0, or by a name such as
        ``"control"``, ``"wt"`` or ``"untreated"``.
    width
        Units of the hidden layer.
    sparsity, acyclicity
        Weights of the penalties on absolute effects and on cycles.
    edge_cut
        Least absolute effect among latents of sd one that makes an edge.
    max_epochs, learning_rate, n_restarts
        How to train; see `crlearn.train.Settings`.
    random_state
        Seed of weights, batches and held-out rows.

    Examples
    --------
    >>> from crlearn.data import Intervention, make_world
    >>> from crlearn.published import ContrastiveCRL
    >>> moved = [Intervention(i, "hard", mean=2.0, variance=0.5) for i in range(2)]
    >>> world = make_world(2, 4, interventions=[None, *moved], random_state=0)
    >>> model = ContrastiveCRL(max_epochs=20, random_state=0).fit(world.X, world.y)
    >>> model.transform(world.X).shape
    (3000, 2)
    """

    _requires_y = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "reference": "no_validation",
        "width": [Interval(Integral, 1, None, closed="left")],
        "sparsity": [Interval(Real, 0, None, closed="left")],
        "acyclicity": [Interval(Real, 0, None, closed="left")],
        "edge_cut": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        reference: Any = None,
        width: int = 512,
        sparsity: float = 1e-4,
        acyclicity: float = 1e-5,
        edge_cut: float = 0.2,
        max_epochs: int = 100,
        learning_rate: float = 2e-3,
        n_restarts: int = 1,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.reference = reference
        self.width = width
        self.sparsity = sparsity
        self.acyclicity = acyclicity
        self.edge_cut = edge_cut
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        return contrastive_crl(
            X,
            read_environments(y, self.reference),
            self.n_latents,
            width=self.width,
            sparsity=self.sparsity,
            acyclicity=self.acyclicity,
            edge_cut=self.edge_cut,
            max_epochs=self.max_epochs,
            learning_rate=self.learning_rate,
            n_restarts=self.n_restarts,
            seed=seed,
        )
