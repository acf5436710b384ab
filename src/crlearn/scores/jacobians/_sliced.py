"""Sliced score matching: one network for the score, differentiated for its Jacobian."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from crlearn.nets import MLP
from crlearn.scores._base import Rows, Whitening, check_rows, refuse_unfitted
from crlearn.scores._training import steps_to_settings
from crlearn.scores.differences._sliced import SlicedObjective
from crlearn.scores.jacobians._derivatives import in_blocks
from crlearn.train import train


class SlicedJacobians(BaseEstimator):
    """Sliced score matching with variance reduction (SSM-VR), and the slope of the network.

    The other estimator of the published Algorithm 1. Nothing makes the slope of a score network
    accurate, nor symmetric: its symmetric part is returned. Rows are whitened first.

    Cost: `n_steps` steps, each O(batch width (d + width)), whatever N is; O(N d width^2) to
    evaluate.

    Parameters
    ----------
    width, n_projections, penalty, n_steps, batch_size, learning_rate
        See `SlicedScores`.
    random_state
        Seed of weights, batches and directions.

    References
    ----------
    Song, Garg, Shi and Ermon, Sliced score matching, UAI 2019.
    """

    network_: MLP
    whitening_: Whitening

    def __init__(
        self,
        *,
        width: int = 64,
        n_projections: int = 2,
        penalty: float = 1e-5,
        n_steps: int = 1000,
        batch_size: int = 512,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.n_projections = n_projections
        self.penalty = penalty
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: ArrayLike) -> Self:
        """Train the network."""
        X = check_rows(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.whitening_ = Whitening.of_rows(X, "The rows of X")
        objective = SlicedObjective(X.shape[1], self.width, self.n_projections, self.penalty)
        settings = steps_to_settings(self.n_steps, len(X), self.batch_size, self.learning_rate, 0.0)
        rows = self.whitening_(X).astype(np.float32)
        self.network_ = train(objective, rows, settings, seed=seed, description="score").params
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores and Jacobians at the rows."""
        refuse_unfitted(self, "network_")
        X = check_rows(X, len(self.whitening_.mean))
        return in_blocks(_score_and_slope, self.network_, X, self.whitening_)


@jax.jit
def _score_and_slope(
    network: MLP, rows: Float[Array, "rows variables"]
) -> tuple[Float[Array, "rows variables"], Float[Array, "rows variables variables"]]:
    def score_twice(row: Array) -> tuple[Array, Array]:
        score = jnp.asarray(network(row))
        return score, score

    slopes, scores = jax.vmap(jax.jacfwd(score_twice, has_aux=True))(rows)
    return scores, slopes
