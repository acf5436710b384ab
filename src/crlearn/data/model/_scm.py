"""`SCM`: structural causal models with additive noise, their samples and their exact scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._random import RandomState
from crlearn.data.model import _autodiff
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._mechanisms import Linear, Mechanism, Scaled, as_mechanism, random_mechanism
from crlearn.data.model._node import Node
from crlearn.data.model._noise import make_noise
from crlearn.graph import check_dag, topological_order
from crlearn.tags import stored

Matrix = NDArray[np.floating]


@stored("scm")
@dataclass(frozen=True, eq=False)
class SCM:
    """Structural causal model ``z_j = c_j + f_j(parents of j) + e_j`` with independent noise e.

    The density, the score (gradient of the log-density) and the Jacobian of the score are exact:
    the log-density is a sum of one factor for each latent, and each factor is differentiated by
    JAX in float64. Latents that were set by a do-intervention have no density; their factor is
    left out, so that what remains is the density of the others given the value.

    Parameters
    ----------
    graph
        ``graph[i, j]`` is True if latent i causes latent j. Mechanisms receive the parents in
        ascending order of their indices.
    nodes
        One `Node` for each latent: mechanism (None without parents), noise and offset.

    Examples
    --------
    >>> from crlearn.data import SCM, Gaussian, Linear, Node
    >>> scm = SCM([[0, 1], [0, 0]], [Node(None, Gaussian()), Node(Linear([2.0]), Gaussian(0.5))])
    >>> scm.covariance()
    array([[1.  , 2.  ],
           [2.  , 4.25]])
    """

    graph: NDArray[np.bool_]
    nodes: tuple[Node, ...]

    def __init__(self, graph: ArrayLike | nx.DiGraph, nodes: Sequence[Node]) -> None:
        adjacency = check_dag(graph, len(nodes), name="graph").copy()
        adjacency.setflags(write=False)
        object.__setattr__(self, "graph", adjacency)
        object.__setattr__(
            self, "nodes", tuple(_checked_node(node, j, adjacency) for j, node in enumerate(nodes))
        )

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.nodes)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The latents, causes before effects."""
        return tuple(int(j) for j in topological_order(self.graph))

    def parents(self, latent: int) -> tuple[int, ...]:
        """Return the direct causes of a latent, in ascending order."""
        return tuple(int(i) for i in np.flatnonzero(self.graph[:, latent]))

    def sample(self, n_samples: int, random_state: RandomState = None) -> tuple[Matrix, Matrix]:
        """Draw latents and the exogenous noise behind them, each ``(n_samples, n_latents)``."""
        rng = np.random.default_rng(random_state)
        noise = np.column_stack([node.noise.sample(rng, n_samples) for node in self.nodes])
        return self.from_noise(noise), noise

    def from_noise(self, noise: ArrayLike) -> Matrix:
        """Compute the latents that given noise leads to.

        The noise of another environment gives counterfactuals: what these very samples would have
        been here.
        """
        noise = self._checked_rows(noise, "noise")
        Z = np.zeros_like(noise)
        with np.errstate(over="ignore", invalid="ignore"):
            for j in self.order:
                Z[:, j] = self.nodes[j].without_noise(Z[:, self.parents(j)])
                if self.nodes[j].noise.has_density:
                    Z[:, j] += noise[:, j]
        self._check_no_overflow(Z)
        return Z

    def intervene(self, intervention: Intervention) -> SCM:
        """Return the model after an intervention."""
        targets = intervention.target_indices
        if max(targets) >= self.n_latents:
            raise ValueError(
                f"The 'targets' of an intervention must lie between 0 and {self.n_latents - 1}, "
                f"as the model has {self.n_latents} latents. Got {list(targets)} instead."
            )
        graph, nodes = self.graph.copy(), list(self.nodes)
        for position, j in enumerate(targets):
            nodes[j] = intervention.applied_to(nodes[j], len(self.parents(j)), position)
        if intervention.cuts_parents:
            graph[:, targets] = False
        return SCM(graph, nodes)

    def rescaled(
        self, noise: ArrayLike, how: Literal["standard", "minmax"] = "standard"
    ) -> tuple[SCM, Matrix]:
        """Rescale each latent before its children are computed.

        Parameters
        ----------
        noise
            Draw of the noise; the statistics are those of the latents that it leads to.
        how
            ``"standard"``: mean 0 and standard deviation 1; ``"minmax"``: the range becomes [0, 1].

        Returns
        -------
        scm
            The model of the rescaled latents, with fixed constants, so that its density is exact.
        noise
            The same draw in its units: ``scm.from_noise(noise)`` are the rescaled latents.
        """
        if how not in ("standard", "minmax"):
            raise ValueError(f"'how' must be 'standard' or 'minmax'. Got {how!r} instead.")
        noise = self._checked_rows(noise, "noise").copy()
        Z, nodes = np.zeros_like(noise), list(self.nodes)
        for j in self.order:
            node = nodes[j]
            raw = node.without_noise(Z[:, self.parents(j)]) + noise[:, j]
            shift, scale = _location_and_scale(raw, how)
            Z[:, j] = (raw - shift) / scale
            noise[:, j] /= scale
            nodes[j] = Node(
                None if node.mechanism is None else Scaled(node.mechanism, 1 / scale),
                node.noise.scaled(1 / scale),
                (node.offset - shift) / scale,
            )
        return SCM(self.graph, nodes), noise

    @property
    def has_density(self) -> bool:
        """Whether the latents have a density together: none was set by a do-intervention."""
        return len(self._latents_with_density()) == self.n_latents

    def log_density(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Logarithm of the density at each row, ``(N,)``."""
        Z = self._checked_rows(Z, "Z")
        total = np.zeros(len(Z))
        for j in self._latents_with_density():
            total += _autodiff.values(self.nodes[j].log_factor, Z[:, self._family(j)])
        return total

    def score(self, Z: ArrayLike) -> Matrix:
        """Gradient of the log-density at each row, ``(N, n_latents)``."""
        Z = self._checked_rows(Z, "Z")
        total = np.zeros_like(Z)
        for j in self._latents_with_density():
            total += self.factor_score(Z, j)
        return total

    def factor_score(self, Z: ArrayLike, latent: int) -> Matrix:
        """Gradient of the factor ``log p(z_latent | parents)``; the score is the sum of all."""
        Z = self._checked_rows(Z, "Z")
        gradient = np.zeros_like(Z)
        family = self._family(latent)
        if self.nodes[latent].noise.has_density:
            gradient[:, family] = _autodiff.gradients(self.nodes[latent].log_factor, Z[:, family])
        return gradient

    def score_jacobian(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Jacobian of the score at each row, ``(N, n_latents, n_latents)``."""
        Z = self._checked_rows(Z, "Z")
        total = np.zeros((*Z.shape, self.n_latents))
        for j in self._latents_with_density():
            family = np.array(self._family(j))
            total[:, family[:, None], family] += _autodiff.hessians(
                self.nodes[j].log_factor, Z[:, family]
            )
        return total

    def weights(self) -> Matrix | None:
        """Coefficients of a linear model, ``weights[i, j]`` on i -> j; None if it is not linear."""
        weights = np.zeros((self.n_latents, self.n_latents))
        for j, node in enumerate(self.nodes):
            coefficients = _linear_coefficients(node.mechanism)
            if coefficients is None:
                return None
            weights[self.parents(j), j] = coefficients
        return weights

    def covariance(self) -> Matrix:
        """Covariance of the latents of a linear model, in closed form."""
        weights = self.weights()
        if weights is None:
            raise ValueError("The covariance has a closed form only if every mechanism is linear.")
        variances = [node.noise.scale**2 * node.noise.has_density for node in self.nodes]
        total_effects = np.linalg.inv(np.eye(self.n_latents) - weights)
        return total_effects.T @ np.diag(variances) @ total_effects

    def __repr__(self) -> str:
        return f"SCM({self.n_latents} latents, {int(self.graph.sum())} edges)"

    def _family(self, latent: int) -> list[int]:
        return [latent, *self.parents(latent)]

    def _latents_with_density(self) -> list[int]:
        return [j for j, node in enumerate(self.nodes) if node.noise.has_density]

    def _checked_rows(self, rows: ArrayLike, name: str) -> Matrix:
        rows = np.asarray(rows, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != self.n_latents:
            raise ValueError(
                f"'{name}' must have shape (n_samples, {self.n_latents}), one column for each "
                f"latent. Got shape {rows.shape} instead."
            )
        return rows

    def _check_no_overflow(self, Z: Matrix) -> None:
        for j in self.order:
            if not np.isfinite(Z[:, j]).all():
                raise ValueError(
                    f"Latent {j} grew beyond all numbers. Its mechanism, or that of one of its "
                    "ancestors, grows too fast: use a bounded one, smaller weights, or "
                    "rescale='standard'."
                )


def make_scm(
    graph: ArrayLike | nx.DiGraph,
    mechanism: str | Callable[[Any], Any] | Sequence[Any] = "linear",
    *,
    noise: str | Sequence[str] = "gaussian",
    noise_scale: float | ArrayLike = 1.0,
    noise_mean: float | ArrayLike = 0.0,
    mechanism_options: Mapping[str, Any] | None = None,
    random_state: RandomState = None,
) -> SCM:
    """Draw a model on a graph.

    Parameters
    ----------
    graph
        Adjacency matrix or ``networkx.DiGraph``.
    mechanism
        A kind of `random_mechanism`, or a callable of the parents, or one of these for each
        latent (the entries of latents without parents are not used).
    noise
        Family of the noise (see `make_noise`), or one for each latent.
    noise_scale, noise_mean
        Standard deviation and mean of the noise, one number or one for each latent.
    mechanism_options
        Options of `random_mechanism`.
    random_state
        Seed or generator.
    """
    adjacency = check_dag(graph, name="graph")
    rng = np.random.default_rng(random_state)
    n = len(adjacency)
    kinds = _one_for_each_latent(mechanism, n, "mechanism")
    families = _one_for_each_latent(noise, n, "noise")
    scales = _one_for_each_latent(noise_scale, n, "noise_scale")
    means = _one_for_each_latent(noise_mean, n, "noise_mean")
    options = mechanism_options or {}
    mechanisms = [
        random_mechanism(kind, int(n_parents), rng, **options) if n_parents else None
        for kind, n_parents in zip(kinds, adjacency.sum(axis=0), strict=True)
    ]
    noises = map(make_noise, families, scales, means)
    return SCM(adjacency, [*map(Node, mechanisms, noises)])


def _one_for_each_latent(given: Any, n_latents: int, name: str) -> Sequence[Any]:
    if isinstance(given, str) or callable(given) or np.ndim(given) == 0:
        return [given] * n_latents
    if len(given) != n_latents:
        raise ValueError(
            f"'{name}' must be given once, or once for each of the {n_latents} latents. "
            f"Got {len(given)} entries instead."
        )
    return given


def _checked_node(node: Node, latent: int, graph: NDArray[np.bool_]) -> Node:
    n_parents = int(graph[:, latent].sum())
    if n_parents == 0 and node.mechanism is not None:
        raise ValueError(
            f"Latent {latent} has no parents in the graph, so that its mechanism must be None. "
            f"Got {node.mechanism} instead."
        )
    if n_parents > 0 and node.mechanism is None:
        raise ValueError(
            f"Latent {latent} has {n_parents} parents in the graph, so that it needs a mechanism. "
            "Got None instead."
        )
    if node.mechanism is None:
        return node
    return replace(node, mechanism=as_mechanism(node.mechanism, n_parents))


def _location_and_scale(values: NDArray[np.floating], how: str) -> tuple[float, float]:
    if how == "minmax":
        shift, scale = values.min(), values.max() - values.min()
    else:
        shift, scale = values.mean(), values.std()
    if not scale > 0:
        raise ValueError("A latent that does not vary cannot be rescaled.")
    return float(shift), float(scale)


def _linear_coefficients(mechanism: Mechanism | None) -> Any:
    if mechanism is None:
        return 0.0
    if isinstance(mechanism, Linear):
        return mechanism.weights
    if isinstance(mechanism, Scaled):
        inner = _linear_coefficients(mechanism.mechanism)
        return None if inner is None else mechanism.factor * inner
    return None
