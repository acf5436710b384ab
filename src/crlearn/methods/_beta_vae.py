"""BetaVAE: a variational autoencoder without side information, to compare others with.

Latents have a standard Gaussian prior, whatever `y` is, and the divergence from it counts `beta`
times. Nothing about it is identifiable: every rotation of the latents fits as well. What it finds
is what networks and training prefer, so that other autoencoders should beat it.

Higgins et al.: beta-VAE: Learning Basic Visual Concepts with a Constrained Variational Framework,
ICLR 2017; with ``beta=1`` Kingma, Welling: Auto-Encoding Variational Bayes, ICLR 2014. As there,
the noise level of the decoder is set: where it was learned (three features, ``beta=4``), it grew
until no latent was used.

Cost: a step is O(batch width (d + depth width)) time, whatever N is; memory O(N d), in single
precision if X is.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.inputs import Scaling, check_columns, choose_n_latents
from crlearn.result import Guarantee, Result
from crlearn.train import Settings, finite_check
from crlearn.variational import (
    Diagonal,
    activity_check,
    divergence,
    evidence,
    fit_autoencoder,
    log_likelihood,
    random_networks,
)

GUARANTEE = Guarantee(
    latents="none",
    graph="none",
    text="nothing: with a standard Gaussian prior every rotation of the latents, among other maps, "
    "explains the data as well; no graph",
)

_ACTIVATION = "leaky_relu"
_WHERE_LATENTS_ARE_NOT_USED = "lower beta or n_latents, or train longer"


@dataclass(frozen=True)
class WeightedBound:
    """The loss: minus the evidence bound of log p(x), whose divergence counts `beta` times."""

    n_features: int
    n_latents: int
    beta: float
    width: int
    depth: int
    noise: float

    def init(self, key: PRNGKeyArray) -> dict[str, Any]:
        """Draw encoder and decoder."""
        encoder_key, decoder_key = jax.random.split(key)
        hidden = [self.width] * self.depth
        return random_networks(
            encoder_key, decoder_key, self.n_features, self.n_latents, hidden, _ACTIVATION
        )

    def loss(
        self,
        params: dict[str, Any],
        batch: tuple[Array],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean weighted bound, from one draw of z a row."""
        (x,) = batch
        q = evidence(params, x)
        prior = Diagonal(jnp.zeros_like(q.mean), jnp.zeros_like(q.mean))
        fit = log_likelihood(x, params["decoder"](q.draw(key)), self.noise)
        return (self.beta * divergence(q, prior) - fit).mean()


def beta_vae(
    X: NDArray[np.floating],
    n_latents: int | None,
    settings: Settings,
    *,
    beta: float = 4.0,
    width: int = 64,
    depth: int = 3,
    noise: float = 0.03,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Fit the autoencoder with a standard Gaussian prior; see the module's text."""
    scaling = Scaling.of(X)
    rank, column_checks = check_columns(X, scaling, enough=n_latents)
    n = choose_n_latents(n_latents, rank)
    objective = WeightedBound(X.shape[1], n, float(beta), width, depth, float(noise))
    fit = fit_autoencoder(
        objective,
        X,
        scaling,
        (),
        settings,
        seed=seed,
        checkpoint=checkpoint,
        description="BetaVAE",
    )
    return Result(
        encoder=fit.encoder,
        decoder=fit.decoder,
        guarantee=GUARANTEE,
        checks=(
            *column_checks,
            activity_check(fit, _WHERE_LATENTS_ARE_NOT_USED),
            finite_check(fit.training),
        ),
        history=fit.training.history,
        details=fit.details,
        device=device_name(),
    )


class BetaVAE(BaseCRL):
    """Variational autoencoder with a standard Gaussian prior (beta-VAE), as a baseline.

    Makes no use of `y`, and nothing is identified: see how far networks alone come. With
    ``beta=1`` it is the plain variational autoencoder.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    beta
        Weight of the divergence between posterior and prior.
    width, depth
        Units and number of the hidden layers of encoder and decoder.
    noise
        Variance of the decoder's noise, where a standardised feature has variance 1.
    max_epochs, learning_rate, patience, n_restarts
        How to train; see `crlearn.train.Settings`.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes.
    random_state
        Seed of weights, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import BetaVAE
    >>> from crlearn.data import make_segments
    >>> world = make_segments(n_latents=2, n_segments=8, random_state=0)
    >>> model = BetaVAE(n_latents=2, max_epochs=5, random_state=0).fit(world.X)
    >>> model.transform(world.X).shape == world.truth.Z.shape
    True
    """

    _keeps_float32 = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "beta": [Interval(Real, 0, None, closed="neither")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "noise": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        beta: float = 4.0,
        width: int = 64,
        depth: int = 3,
        noise: float = 0.03,
        max_epochs: int = 200,
        learning_rate: float = 1e-2,
        patience: int | None = 30,
        n_restarts: int = 4,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.beta = beta
        self.width = width
        self.depth = depth
        self.noise = noise
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.patience = patience
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        settings = Settings(
            max_epochs=self.max_epochs,
            learning_rate=self.learning_rate,
            patience=self.patience,
            n_restarts=self.n_restarts,
        )
        return beta_vae(
            X,
            self.n_latents,
            settings,
            beta=self.beta,
            width=self.width,
            depth=self.depth,
            noise=self.noise,
            seed=seed,
            checkpoint=self.checkpoint,
        )
