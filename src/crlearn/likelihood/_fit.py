"""The one record of a structure that was fitted: encoder, graph, score, and what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from crlearn.graph import Graph, adjacency_of, graph_of, layers, topological_order
from crlearn.likelihood.core._encoder import unit_rows
from crlearn.result import GoodnessOfFit

# P-value below which a model is rejected: one fit in a thousand in error.
FITS = 1e-3

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
IntMatrix = NDArray[np.intp]


@dataclass(frozen=True)
class Dependence:
    """What is left of a latent depends on what it should not depend on.

    Attributes
    ----------
    latent, environment
        Where.
    share
        Of its variance, beyond chance.
    p_value
        Of independence.
    """

    latent: int
    environment: int
    share: float
    p_value: float


@dataclass(frozen=True, eq=False)
class FarRows:
    """Rows that stand far out, and whether the answer hangs on them.

    Attributes
    ----------
    places
        Of the rows, in each environment.
    matter
        Whether the answer without them is another one.
    """

    places: tuple[NDArray[np.intp], ...]
    matter: bool


@dataclass(frozen=True, eq=False)
class Fit:
    """A structure with its best encoder.

    Attributes
    ----------
    H
        Encoder, one row for each latent, in the coordinates of the rows that were fitted.
    graph
        Parents of each latent in the fitted model.
    log_likelihood
        Of all rows, or log evidence, in nats, up to a constant that all structures share.
    price
        What the structure costs, in nats (`likelihood._price`).
    pool
        ``pool[j, e]`` is 0 where environment e leaves latent j alone; None for one environment.
    mechanisms, any_noise
        What the mechanisms are, and whether noises have densities of their own.
    free_means
        Whether each environment has a mean of its own that no mechanism explains.
    goodness_of_fit
        Test of linear mechanisms against a model of its own for every environment.
    dependence
        Of nonlinear mechanisms' residuals, where it is largest.
    far_rows
        If there are any, and mechanisms are linear.
    straight_p_values
        For each latent, of a direction along which its nonlinear mechanism does not tell parents
        apart (`_nonlinearity`); None where that is not needed or cannot be seen.
    edge_p_values, standard_errors
        Of edges, there or not, 1 where one would close a cycle; of what each row of H has of the
        other latents.
    parameters
        Whatever else the model has fitted.
    completed
        Rows without measurement noise that observational mechanisms were fitted to, drawn from
        their posterior; None where there is no noise.
    alternatives
        Other structures that were fitted, the best first.
    """

    H: Matrix
    graph: Graph
    log_likelihood: float
    price: float = 0.0
    pool: IntMatrix | None = None
    mechanisms: Literal["linear", "nonlinear"] = "linear"
    any_noise: bool = False
    free_means: bool = False
    goodness_of_fit: GoodnessOfFit | None = None
    dependence: Dependence | None = None
    far_rows: FarRows | None = None
    straight_p_values: Matrix | None = None
    edge_p_values: Matrix | None = None
    standard_errors: Matrix | None = None
    parameters: Any = None
    completed: Matrix | None = None
    alternatives: tuple[Fit, ...] = ()

    @property
    def score(self) -> float:
        """Penalised log-likelihood, in nats: larger is better."""
        return self.log_likelihood - self.price

    @property
    def fits(self) -> bool:
        """Whether the test does not reject it."""
        return self.goodness_of_fit is not None and self.goodness_of_fit.p_value >= FITS

    @property
    def adjacency(self) -> BoolMatrix:
        """``adjacency[i, j]`` is True if i is a parent of j."""
        return adjacency_of(self.graph)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return sum(map(len, self.graph))

    @property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Latents of each layer, childless ones first."""
        return tuple(tuple(layer.tolist()) for layer in layers(self.adjacency))

    @property
    def targets(self) -> BoolMatrix:
        """``targets[e, j]`` is True if environment e intervenes on latent j."""
        assert self.pool is not None
        return self.pool.T > 0

    def causes_first(self) -> Fit:
        """Return the fit with the latents in causal order."""
        return self.reordered(topological_order(self.adjacency))

    def reordered(self, order: NDArray[np.intp] | list[int]) -> Fit:
        """Return the fit with the latents in another order."""
        order = np.asarray(order, dtype=np.intp)
        among = np.ix_(order, order)
        return replace(
            self,
            H=self.H[order],
            graph=graph_of(self.adjacency[among]),
            pool=None if self.pool is None else self.pool[order],
            dependence=self._reordered_dependence(order),
            straight_p_values=(
                None if self.straight_p_values is None else self.straight_p_values[order]
            ),
            edge_p_values=None if self.edge_p_values is None else self.edge_p_values[among],
            standard_errors=None if self.standard_errors is None else self.standard_errors[among],
            alternatives=tuple(each.reordered(order) for each in self.alternatives),
        )

    def _reordered_dependence(self, order: IntMatrix) -> Dependence | None:
        if self.dependence is None:
            return None
        return replace(self.dependence, latent=int(np.argsort(order)[self.dependence.latent]))


def compared(one: Fit, other: Fit) -> tuple[float, BoolMatrix]:
    """Return how far latents agree, and the other's adjacency in the order of the one's latents.

    Where rows are white, the correlation of two latents is the cosine of their rows of encoders.
    """
    cosines = np.abs(unit_rows(one.H) @ unit_rows(other.H).T)
    own, theirs = linear_sum_assignment(-cosines)
    return float(cosines[own, theirs].mean()), other.adjacency[np.ix_(theirs, theirs)]
