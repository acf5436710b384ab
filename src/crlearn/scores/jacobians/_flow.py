"""A density fitted by maximum likelihood (a coupling flow), differentiated twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from crlearn.flows import CouplingFlow
from crlearn.scores._base import Rows, Whitening, check_rows, refuse_unfitted
from crlearn.scores._training import steps_to_settings
from crlearn.scores.jacobians._derivatives import in_blocks
from crlearn.train import train


@dataclass(frozen=True)
class FlowObjective:
    """Minus the mean log-density of a coupling flow."""

    n_variables: int
    n_layers: int
    width: int

    def init(self, key: PRNGKeyArray) -> CouplingFlow:
        """Draw a flow that starts Gaussian."""
        return CouplingFlow.random(key, self.n_variables, self.n_layers, self.width)

    def loss(
        self,
        params: CouplingFlow,
        batch: Float[Array, "rows variables"],
        key: PRNGKeyArray,
        progress: Float[Array, ""],
    ) -> Float[Array, ""]:
        """Minus the mean log-density over the rows."""
        return -params.log_density(batch).mean()


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

    flow_: CouplingFlow
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
        objective = FlowObjective(X.shape[1], self.n_layers, self.width)
        self.flow_ = train(objective, rows, settings, seed=seed, description="flow").params
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores and Jacobians at the rows."""
        refuse_unfitted(self, "flow_")
        X = check_rows(X, len(self.whitening_.mean))
        return in_blocks(_score_and_hessian, self.flow_, X, self.whitening_)


@eqx.filter_jit
def _score_and_hessian(
    flow: CouplingFlow, rows: Float[Array, "rows variables"]
) -> tuple[Float[Array, "rows variables"], Float[Array, "rows variables variables"]]:
    log_density = flow.log_density
    return jax.vmap(jax.grad(log_density))(rows), jax.vmap(jax.hessian(log_density))(rows)
