"""A density fitted by maximum likelihood: smooth coupling layers, differentiated twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from crlearn.nets import MLP, AnyArray
from crlearn.scores._base import Rows, Whitening, check_rows, refuse_unfitted
from crlearn.scores._derivatives import in_blocks
from crlearn.scores._training import steps_to_settings
from crlearn.train import train

Couplings = tuple[MLP, ...]


@dataclass(frozen=True)
class FlowObjective:
    """Minus the mean log-density of a flow.

    Each coupling layer turns the coordinates at random, then scales and shifts half of them by tanh
    networks of the other half; the end is standard Gaussian.
    """

    n_variables: int
    n_layers: int
    width: int

    def init(self, key: PRNGKeyArray) -> Couplings:
        """Draw the networks; their last layers start at zero, so that the flow starts Gaussian."""
        keys = jax.random.split(key, self.n_layers)
        return tuple(self._network(one) for one in keys)

    def loss(
        self,
        params: Couplings,
        batch: Float[Array, "rows variables"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean log-density over the rows."""
        return -self.log_density(params, batch).mean()

    def log_density(
        self, couplings: Couplings, x: Float[AnyArray, "*rows variables"]
    ) -> Float[Array, "*rows"]:
        """Logarithm of the density at each row, up to a constant."""
        d = self.n_variables
        seen = (np.arange(d) < d // 2).astype(np.float32)
        x = jnp.asarray(x)
        log_volume = jnp.zeros(x.shape[:-1], x.dtype)
        for turn, network in zip(self._turns(), couplings, strict=True):
            x = x @ turn.astype(x.dtype)
            shift, scale = jnp.split(network(x * seen), 2, axis=-1)
            log_scale = jnp.tanh(scale) * (1 - seen)
            x = x * jnp.exp(log_scale) + shift * (1 - seen)
            log_volume += log_scale.sum(axis=-1)
        return log_volume - 0.5 * (x**2).sum(axis=-1)

    def _network(self, key: PRNGKeyArray) -> MLP:
        d = self.n_variables
        hidden = MLP.random(key, [d, self.width, self.width], "tanh")
        last = jnp.zeros((self.width, 2 * d))
        return MLP((*hidden.weights, last), (*hidden.biases, jnp.zeros(2 * d)), "tanh")

    def _turns(self) -> Rows:
        """Rotations between the layers: part of the model, and not trained."""
        draws = np.random.default_rng(0).normal(size=(self.n_layers, *(self.n_variables,) * 2))
        return np.linalg.qr(draws)[0]


class FlowJacobians(BaseEstimator):
    """A normalising flow fitted by maximum likelihood; its log-density is differentiated twice.

    The score is a gradient and the Jacobian symmetric by construction, and one objective serves
    both: a likelihood, which a held-out tenth of the rows keeps from overfitting. Rows are whitened
    first.

    Cost: `n_steps` steps, each O(batch layers width (d + width)), whatever N is; O(N d layers
    width^2) to evaluate.

    Parameters
    ----------
    n_layers, width
        Coupling layers, and units of the two hidden layers in each.
    n_steps
        Least number of steps; passes over the rows are whole.
    batch_size, learning_rate
        See `crlearn.train.Settings`.
    random_state
        Seed of weights and batches.
    """

    couplings_: Couplings
    whitening_: Whitening

    def __init__(
        self,
        *,
        n_layers: int = 6,
        width: int = 32,
        n_steps: int = 1000,
        batch_size: int = 512,
        learning_rate: float = 3e-3,
        random_state: Any = None,
    ) -> None:
        self.n_layers = n_layers
        self.width = width
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: ArrayLike) -> Self:
        """Train the flow."""
        X = check_rows(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.whitening_ = Whitening.of_rows(X, "The rows of X")
        settings = steps_to_settings(self.n_steps, len(X), self.batch_size, self.learning_rate, 0.1)
        rows = self.whitening_(X).astype(np.float32)
        objective = self._objective(X.shape[1])
        self.couplings_ = train(objective, rows, settings, seed=seed, description="flow").params
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores and Jacobians at the rows."""
        refuse_unfitted(self, "couplings_")
        X = check_rows(X, len(self.whitening_.mean))
        compiled = partial(_score_and_hessian, self._objective(X.shape[1]))
        return in_blocks(compiled, self.couplings_, X, self.whitening_)

    def _objective(self, n_variables: int) -> FlowObjective:
        return FlowObjective(n_variables, self.n_layers, self.width)


@partial(jax.jit, static_argnums=0)
def _score_and_hessian(
    objective: FlowObjective, couplings: Couplings, rows: Float[Array, "rows variables"]
) -> tuple[Float[Array, "rows variables"], Float[Array, "rows variables variables"]]:
    log_density = partial(objective.log_density, couplings)
    return jax.vmap(jax.grad(log_density))(rows), jax.vmap(jax.hessian(log_density))(rows)
