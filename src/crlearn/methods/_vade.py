"""VaDE: a variational autoencoder whose prior is a mixture of Gaussians, without side information.

Finds latents and the component that each row belongs to from X alone. Where the mixing is piecewise
affine, one to one, and the latents are a mixture of Gaussians none of which is degenerate, the
latents are determined up to an affine map (Kivva et al.); no more is promised here.

Jiang, Zheng, Tan, Tang, Zhou: Variational Deep Embedding: An Unsupervised and Generative Approach
to Clustering, IJCAI 2017. Kivva, Rajendran, Ravikumar, Aragam: Identifiability of deep generative
models without auxiliary information, NeurIPS 2022. The baseline of Xu, Lachapelle and Magliacane,
Identifiability of potentially degenerate Gaussian mixture models with piecewise affine mixing,
2026. What differs from Jiang et al.:

- The bound has the log-density of the mixture at the sampled z. With q(c | x) = p(c | z) it is
  theirs: the term that is left out, KL(q(c | x) || p(c | z)), is zero then.
- The autoencoder of the first epochs has a standard Gaussian prior, so that it learns posterior
  variances, too. The mixture starts where EM leads it on draws from that posterior.
- The noise level of the decoder is learned, not set.

Cost: a step is O(batch (width (d + depth width) + k n)) time for k components, whatever N is;
memory O(N d), in single precision if X is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.exceptions import DivergenceError
from crlearn.inputs import Scaling, check_columns, choose_n_latents
from crlearn.methods._beta_vae import WeightedBound
from crlearn.result import Check, Guarantee, Result
from crlearn.train import Settings, Training, finite_check
from crlearn.variational import (
    Diagonal,
    MixturePrior,
    activity_check,
    evidence,
    fit_autoencoder,
    log_likelihood,
    random_networks,
)

GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="all latents together up to one affine map, if the mixing is one to one and piecewise "
    "affine and the latents are, in some linear coordinates, a mixture of Gaussians with diagonal "
    "covariances, none of them degenerate; which of these coordinates are the latents is not "
    "determined; no graph",
)

# Restarts agree, and all other checks hold, on worlds of make_segments with 2 latents, of which X
# itself explains as much by an affine map (R2 .873 and .876) as what was found (.863 and .859).
_MODEL_CHECK = Check(
    "mixing and mixture are as assumed",
    None,
    "cannot be tested: where components overlap, a bent mixing and another mixture explain the "
    "data nearly as well",
)

_ACTIVATION = "leaky_relu"  # piecewise affine, as the theory has it
_COMPONENTS_PER_LATENT = 5  # as many as Xu et al. draw for each latent
_PRETRAINING = 0.2  # of the epochs
# Least variance of the decoder's noise, where a standardised feature has variance 1. Worlds of
# make_sparse_mixture, seeds 0 and 1, 60 epochs: MCC .993 and .985 (5 latents, 10,000 rows), .981
# and .967 (10 latents, 20,000 rows); with .001 .992 and .957, .798 and .926.
_LEAST_NOISE = 0.01
_FAR = 1e3  # from zero, where the prior that codes were trained with has sd 1
_ROWS_TO_LOOK_AT = 8192
# Variance of the posterior mean inside a component, where the posterior has variance one. Worlds of
# make_sparse_mixture with 3 and 5 latents: at most .076 in some component (4 worlds, seeds 0, 1).
# It is no sharp line: mixtures with narrow components, none degenerate, had .03 to .12 (4 worlds).
_LEAST_SIGNAL = 0.1
_ROWS_PER_LATENT = 10  # of a component in which a variance is looked at
_SAME_SPAN = 0.85  # share of the latents' variance that those of another restart explain


@dataclass(frozen=True)
class MixtureBound:
    """The loss: minus the evidence bound of log p(x), whose prior is a mixture of Gaussians."""

    n_features: int
    n_latents: int
    n_components: int
    width: int
    depth: int

    def init(self, key: PRNGKeyArray) -> dict[str, Any]:
        """Draw encoder and decoder; all components are alike."""
        encoder_key, decoder_key = jax.random.split(key)
        hidden = [self.width] * self.depth
        networks = random_networks(
            encoder_key, decoder_key, self.n_features, self.n_latents, hidden, _ACTIVATION
        )
        prior = MixturePrior.standard(self.n_components, self.n_latents)
        return {**networks, "log_noise": jnp.log(_LEAST_NOISE), "prior": prior}

    def loss(
        self,
        params: dict[str, Any],
        batch: tuple[Array],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean bound, from one draw of z a row."""
        (x,) = batch
        q = evidence(params, x)
        z = q.draw(key)
        noise_variance = jnp.exp(params["log_noise"]) + _LEAST_NOISE
        fit = log_likelihood(x, params["decoder"](z), noise_variance)
        return -(fit + params["prior"].log_density(z) + q.entropy).mean()


def vade(
    X: NDArray[np.floating],
    n_latents: int | None,
    settings: Settings,
    *,
    n_components: int | None = None,
    width: int = 64,
    depth: int = 3,
    seed: int = 0,
) -> Result:
    """Fit the autoencoder with a mixture as prior; see the module's text."""
    scaling = Scaling.of(X)
    rank, column_checks = check_columns(X, scaling, enough=n_latents)
    n = choose_n_latents(n_latents, rank)
    rows = _some_rows(X, scaling)
    k = _choose_n_components(n_components, n, len(rows))
    objective = MixtureBound(X.shape[1], n, k, width, depth)
    start, pretraining = _pretrained(objective, X, scaling, rows, settings, seed)
    fit = fit_autoencoder(
        objective, X, scaling, (), settings, seed=seed, start=start, description="VaDE"
    )
    params = fit.training.params
    posterior = _posterior(params, rows)
    agreement = _affine_agreement(posterior, fit.training.runners_up, rows)
    mixture = params["prior"].in_units(fit.encoder.output_mean, fit.encoder.output_scale)
    return Result(
        encoder=fit.encoder,
        decoder=fit.decoder,
        guarantee=GUARANTEE,
        checks=(
            *column_checks,
            activity_check(fit, "lower n_latents, or train longer", params["prior"].variances),
            _degeneracy_check(posterior, params["prior"]),
            finite_check(_both(pretraining, fit.training)),
            _restart_check(agreement),
            _MODEL_CHECK,
        ),
        history=fit.training.history,
        details={**fit.details, "restart_agreement": agreement, "mixture": mixture},
        device=device_name(),
    )


def _some_rows(X: NDArray[np.floating], scaling: Scaling) -> NDArray[np.float32]:
    """Return rows for what needs not see all of them, standardised."""
    return scaling(X[:: -(-len(X) // _ROWS_TO_LOOK_AT)]).astype(np.float32)


def _choose_n_components(n_components: int | None, n_latents: int, n_rows: int) -> int:
    if n_components is None:
        return min(_COMPONENTS_PER_LATENT * n_latents, n_rows)
    if n_components > n_rows:
        raise ValueError(
            f"The 'n_components' parameter must be at most {n_rows}, the number of rows that the "
            f"mixture starts from. Got {n_components} instead."
        )
    return n_components


def _pretrained(
    objective: MixtureBound,
    X: NDArray[np.floating],
    scaling: Scaling,
    rows: NDArray[np.float32],
    settings: Settings,
    seed: int,
) -> tuple[list[dict[str, Any]], Training]:
    """Train autoencoders with a standard Gaussian prior, and fit a mixture to the codes of each."""
    plain = WeightedBound(
        objective.n_features,
        objective.n_latents,
        beta=1.0,
        width=objective.width,
        depth=objective.depth,
        noise=_LEAST_NOISE,
    )
    # All restarts are wanted, so that none of them is left in a race.
    short = replace(settings, max_epochs=ceil(_PRETRAINING * settings.max_epochs), race=1.0)
    first = fit_autoencoder(
        plain, X, scaling, (), short, seed=seed, description="VaDE, pretraining"
    ).training
    starts = []
    for params in (first.params, *first.runners_up):
        codes = _draws(params, rows, seed)
        if np.abs(codes).max() < _FAR:  # of what is not finite, this is wrong, too
            prior = MixturePrior.of(codes, objective.n_components, seed)
            starts.append({**params, "log_noise": np.log(_LEAST_NOISE), "prior": prior})
    if not starts:
        raise DivergenceError(
            "Training diverged: no restart of the autoencoder without a mixture has latents near "
            f"zero with learning_rate={settings.learning_rate:g}. Give a smaller learning_rate, "
            "and check X for extreme values."
        )
    return starts, first


def _draws(params: dict[str, Any], rows: NDArray[np.float32], seed: int) -> NDArray[np.floating]:
    """Return a draw from the posterior of each row: what the prior is to have the density of."""
    return np.asarray(_posterior(params, rows).draw(jax.random.key(seed)), dtype=float)


def _posterior(params: dict[str, Any], rows: NDArray[np.float32]) -> Diagonal:
    return evidence(params, jnp.asarray(rows))


def _both(one: Training, other: Training) -> Training:
    """Return the second of two trainings, with what was skipped and tried again in both."""
    return replace(
        other,
        skipped_steps=one.skipped_steps + other.skipped_steps,
        retried=one.retried + other.retried,
    )


def _degeneracy_check(q: Diagonal, mixture: MixturePrior) -> Check:
    """Check that every latent varies in every component, by more than its posterior leaves open."""
    name = "no component is degenerate"
    means, variances = np.asarray(q.mean, float), np.exp(np.asarray(q.log_variance, float))
    component = mixture.likeliest(means)
    large = np.flatnonzero(np.bincount(component) >= _ROWS_PER_LATENT * means.shape[1])
    if len(large) == 0:
        return Check(name, None, "no component has enough rows to tell")
    signals = np.array(
        [means[component == c].var(axis=0) / variances[component == c].mean(axis=0) for c in large]
    )
    flat = (signals < _LEAST_SIGNAL).any(axis=1)
    detail = (
        f"in {flat.sum()} of {len(large)} components a latent varies less than {_LEAST_SIGNAL} "
        f"times what its posterior leaves open (least {signals.min():.2g})"
    )
    if not flat.any():
        return Check(name, True, detail)
    return Check(name, False, f"{detail}: it is constant there, or lost in the noise")


def _affine_agreement(
    q: Diagonal, others: tuple[dict[str, Any], ...], rows: NDArray[np.float32]
) -> NDArray[np.floating]:
    """Return the share of the latents' variance that an affine map of each other restart's has."""
    answer = np.asarray(q.mean, dtype=float)
    answer = answer - answer.mean(axis=0)
    shares = []
    for params in others:
        other = np.asarray(_posterior(params, rows).mean, dtype=float)
        design = np.column_stack([other, np.ones(len(other))])
        rest = answer - design @ np.linalg.lstsq(design, answer, rcond=None)[0]
        shares.append((1 - rest.var(axis=0) / np.maximum(answer.var(axis=0), 1e-12)).mean())
    return np.array(shares)


def _restart_check(agreement: NDArray[np.floating]) -> Check:
    """Check that another restart was after the latents of the answer, up to an affine map."""
    name = "restarts agree"
    if not len(agreement):
        return Check(name, None, "there is one restart only; raise n_restarts to compare")
    same = agreement >= _SAME_SPAN
    detail = (
        f"{same.sum()} of {len(agreement)} other restarts have the same latents up to an affine "
        f"map (R2 of {_SAME_SPAN} or more, the best {agreement.max():.2f})"
    )
    if same.any():
        return Check(name, True, detail)
    return Check(name, False, f"{detail}: train longer, or from more restarts")


class VaDE(BaseCRL):
    """Variational autoencoder with a mixture of Gaussians as prior (VaDE), as a baseline.

    Makes no use of `y`: latents and the components that rows belong to are found from X alone. The
    latents are determined up to an affine map at best. ``result_.details["mixture"]`` has the
    mixture in the units of `transform`.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    n_components
        Number of Gaussians of the mixture; None: five for each latent.
    width, depth
        Units and number of the hidden layers of encoder and decoder.
    max_epochs, learning_rate, n_restarts
        How to train; see `crlearn.train.Settings`. A fifth as many epochs go before, with a
        standard Gaussian prior.
    random_state
        Seed of weights, batches, held-out rows and of the start of the mixture.

    Examples
    --------
    >>> from crlearn import VaDE
    >>> from crlearn.data import make_segments
    >>> world = make_segments(n_latents=2, n_segments=4, n_samples=100, random_state=0)
    >>> model = VaDE(n_latents=2, n_components=4, max_epochs=20, random_state=0).fit(world.X)
    >>> model.transform(world.X).shape == world.truth.Z.shape
    True
    >>> sorted(set(model.components(world.X).tolist())) <= [0, 1, 2, 3]
    True
    """

    _keeps_float32 = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "width": [Interval(Integral, 1, None, closed="left")],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_components: int | None = None,
        width: int = 64,
        depth: int = 3,
        max_epochs: int = 200,
        learning_rate: float = 1e-2,
        n_restarts: int = 4,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.n_components = n_components
        self.width = width
        self.depth = depth
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.random_state = random_state

    def components(self, X: ArrayLike) -> NDArray[np.intp]:
        """Return the number of the likeliest component of each row of `X`, given its latents."""
        check_is_fitted(self)
        latents = self._encoded(X, self.result_.encoder, "components")
        return self.result_.details["mixture"].likeliest(latents)

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        settings = Settings(
            max_epochs=self.max_epochs,
            learning_rate=self.learning_rate,
            n_restarts=self.n_restarts,
        )
        return vade(
            X,
            self.n_latents,
            settings,
            n_components=self.n_components,
            width=self.width,
            depth=self.depth,
            seed=seed,
        )
