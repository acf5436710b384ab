"""`Comparison`: what a fitted model found beside the truth, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.graph import find_cycle, layers
from crlearn.metrics._check import Matrix, check_matrix
from crlearn.metrics._correlation import match

if TYPE_CHECKING:
    from crlearn.data import Truth
    from crlearn.result import Result

T = TypeVar("T")
BoolMatrix = NDArray[np.bool_]
Groups = Sequence[ArrayLike]

# Levels of a guarantee by which a latent may have something of others.
MIXED = ("surrounding", "parents", "ancestors")


class Unavailable(Exception):  # noqa: N818
    """A metric cannot be computed for this model and dataset; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Truth and result in the same order; properties raise `Unavailable` where there is none.

    Recovered latents are matched to true ones by absolute correlation, or, where they may be mixed,
    by what intervenes on them. Latents of either side that are left without a partner become
    isolated nodes of the other side's graph.
    """

    truth: Truth
    result: Result
    X: Matrix
    Z_hat: Matrix
    y: NDArray[Any] | None = None
    posterior: Callable[[], Any] | None = None
    environments: Sequence[Any] = ()
    activity: Callable[..., Any] | None = None

    @property
    def Z(self) -> NDArray[np.floating]:  # noqa: N802
        """True latents."""
        return self.truth.Z

    @property
    def n_latents(self) -> int:
        """Number of true latents."""
        return self.truth.Z.shape[1]

    @property
    def n_recovered(self) -> int:
        """Number of recovered latents."""
        return self.Z_hat.shape[1]

    @property
    def graph(self) -> BoolMatrix:
        """True graph."""
        return _or_unavailable(self.truth.graph, "the true graph is not known")

    @property
    def noise(self) -> NDArray[np.floating]:
        """True exogenous noises."""
        return _or_unavailable(self.truth.noise, "the true exogenous noises are not known")

    @cached_property
    def matching(self) -> NDArray[np.intp]:
        """Pairs (true latent, recovered latent)."""
        aim = self.result.guarantee.intended or self.result.guarantee
        if aim.latents in MIXED and (pairs := self._matching_by_targets) is not None:
            return pairs
        return match(self.Z, self.Z_hat)

    @property
    def _matching_by_targets(self) -> NDArray[np.intp] | None:
        """Pairs with the same interventions; None if these are not all there once on both sides.

        A latent that is mixed with its parent may be nearer to that than to itself.
        """
        recovered = self.result.targets
        if recovered is None or recovered.shape != self.truth.targets.shape:
            return None
        same = (self._true_targets.T[:, None] == recovered.T[None]).all(axis=2)
        alone = (same.sum(axis=0) == 1).all() and (same.sum(axis=1) == 1).all()
        return np.argwhere(same) if alone else None

    @property
    def active(self) -> BoolMatrix | None:
        """Where true latents are not switched off; None if they never are, or not one by one."""
        active = getattr(self.truth, "active", None)
        if active is None:
            return None
        # What is switched off and rotated then has no constant.
        off = np.ma.masked_array(self.Z, mask=active)
        return active if np.ma.allclose(off, off.mean(axis=0)) else None

    @property
    def matched_latents(self) -> tuple[Matrix, BoolMatrix | None]:
        """Recovered latents in the order of the true ones, and where the model has them active."""
        if self.n_recovered < self.n_latents:
            raise Unavailable(
                f"the model recovers {self.n_recovered} latents and there are {self.n_latents}"
            )
        columns = self.matching[np.argsort(self.matching[:, 0]), 1]
        active = None if self.activity is None else np.asarray(self.activity(self.X))[:, columns]
        return self.Z_hat[:, columns], active

    @property
    def labels(self) -> NDArray[Any]:
        """Environment of each row."""
        is_continuous = self.y is not None and self.y.dtype.kind == "f"
        return _or_unavailable(None if is_continuous else self.y, "the dataset has no environments")

    @property
    def intervals(self) -> tuple[Matrix, Matrix]:
        """Ends of the 90% intervals of the recovered latents."""
        posterior = _or_unavailable(self.posterior, "the model states no intervals")
        return posterior().interval(0.9)

    @cached_property
    def noise_hat(self) -> Matrix:
        """Recovered exogenous noises."""
        encoder = _or_unavailable(
            self.result.noise_encoder, "the model recovers no exogenous noises"
        )
        return check_matrix(encoder(self.X), "the recovered noise")

    @property
    def noises_within_environments(self) -> tuple[Matrix, Matrix]:
        """True and recovered noises without the mean of each environment, which no data show."""
        mechanisms = _or_unavailable(
            self.result.mechanisms, "the model has no mechanisms of each environment"
        )
        environments, _ = mechanisms.auxiliary(_or_unavailable(self.y, "the dataset has no y"))
        recovered = mechanisms.noises(self.Z_hat, self.y)
        return _without_means(self.noise, environments), _without_means(recovered, environments)

    @property
    def recovers_noise(self) -> bool:
        """Whether the model recovers exogenous noises."""
        return self.result.noise_encoder is not None

    @property
    def layers(self) -> Groups:
        """True layers, childless latents first."""
        return layers(self.graph)

    @cached_property
    def layers_hat(self) -> Groups:
        """Recovered layers, childless latents first: stated by the model, or those of its graph."""
        stated = self.result.layers
        return layers(_acyclic(self._adjacency_hat)) if stated is None else stated

    @property
    def blocks(self) -> Groups:
        """True blocks of latents; each latent is one where the world has none."""
        if self.truth.blocks is None:
            return [(latent,) for latent in range(self.n_latents)]
        return self.truth.blocks

    @property
    def blocks_hat(self) -> Groups:
        """Recovered blocks of latents."""
        return _or_unavailable(self.result.blocks, "the model states no blocks")

    def stated(self, name: str) -> float:
        """Return a number that the model states of itself."""
        value = self.result.details.get(name)
        return float(_or_unavailable(value, f"the model does not state {name!r}"))

    @property
    def evidence_gap(self) -> float:
        """Nats of log evidence over the best competing structure with another answer."""
        return _or_unavailable(self.result.evidence_gap, "the model met no other answer")

    @property
    def graphs(self) -> tuple[BoolMatrix, BoolMatrix]:
        """True and recovered graph over the same nodes, both acyclic."""
        graph, graph_hat = self.partial_graphs
        return graph, _acyclic(graph_hat)

    @property
    def partial_graphs(self) -> tuple[BoolMatrix, BoolMatrix]:
        """True and recovered graph over the same nodes; the latter may have undirected edges."""
        padded = np.zeros((self._n_nodes, self._n_nodes), dtype=bool)
        padded[: self.n_latents, : self.n_latents] = self.graph
        placed = np.zeros_like(padded)
        placed[np.ix_(self._node_of_recovered, self._node_of_recovered)] = self._adjacency_hat
        return padded, placed

    @property
    def targets(self) -> tuple[BoolMatrix, BoolMatrix]:
        """True and recovered intervention targets, environments by nodes."""
        recovered = _or_unavailable(self.result.targets, "the model recovers no targets")
        if len(recovered) != len(self.truth.targets):
            raise Unavailable(
                f"the model knows {len(recovered)} environments, "
                f"the dataset {len(self.truth.targets)}"
            )
        padded = np.zeros((len(recovered), self._n_nodes), dtype=bool)
        padded[:, : self.n_latents] = self._true_targets
        placed = np.zeros_like(padded)
        placed[:, self._node_of_recovered] = recovered
        return padded, placed

    @property
    def _true_targets(self) -> BoolMatrix:
        """True targets, environments as a model has them: in the order of the labels."""
        targets = self.truth.targets
        if len(self.environments) == len(targets):
            return targets[np.argsort(np.asarray(self.environments), kind="stable")]
        return targets

    @property
    def linear_maps(self) -> tuple[Matrix, Matrix]:
        """Recovered linear encoder, rows in the order of the true latents, and true mixing."""
        encoder, mixing = self._encoder_matrix, self.mixing
        if self.n_recovered != self.n_latents:
            raise Unavailable(
                f"the model recovers {self.n_recovered} latents and there are {self.n_latents}"
            )
        if not (encoder @ mixing).any(axis=1).all():
            raise Unavailable("a recovered latent depends on no true latent")
        return encoder[self.matching[:, 1]], mixing

    @property
    def jacobians(self) -> tuple[Matrix, Matrix]:
        """True and estimated Jacobians of the score of what is observed, in one basis."""
        stated = self.result.details.get("jacobians")
        found = _or_unavailable(stated, "the model does not state Jacobians of a score")
        if self.truth.measurement_noise or self.truth.scms is None:
            raise Unavailable("the true score is known without measurement noise only")
        loadings = found["encoder"] @ self.mixing
        if loadings.shape[0] != loadings.shape[1]:
            raise Unavailable("the model has another number of latents")
        inverse = np.linalg.inv(loadings)
        exact = self.truth.score_jacobian(found["at"] @ inverse.T)
        return inverse.T @ exact @ inverse, found["values"]

    @property
    def mixing(self) -> Matrix:
        """True linear mixing."""
        matrix = getattr(self.truth.mixing, "matrix", None)
        return np.asarray(_or_unavailable(matrix, "the true mixing is not linear"), dtype=float)

    @property
    def mixing_hat(self) -> Matrix:
        """Recovered linear mixing: that of the decoder, or the pseudo-inverse of the encoder."""
        matrix = getattr(self.result.decoder, "matrix", None)
        if matrix is None:
            matrix = np.linalg.pinv(self._encoder_matrix)
        return np.asarray(matrix, dtype=float)

    @property
    def _encoder_matrix(self) -> Matrix:
        matrix = getattr(self.result.encoder, "matrix", None)
        return np.asarray(
            _or_unavailable(matrix, "the model has no linear encoder of X"), dtype=float
        )

    @property
    def _adjacency_hat(self) -> BoolMatrix:
        return _or_unavailable(self.result.adjacency, "the model recovers no graph")

    @property
    def _n_nodes(self) -> int:
        return max(self.n_latents, self.n_recovered)

    @cached_property
    def _node_of_recovered(self) -> NDArray[np.intp]:
        """Node of each recovered latent: that of its partner, or one behind all true latents."""
        node = np.full(self.n_recovered, -1)
        node[self.matching[:, 1]] = self.matching[:, 0]
        node[node < 0] = np.arange(self.n_latents, self._n_nodes)
        return node


def _without_means(rows: NDArray[np.floating], groups: NDArray[np.intp]) -> Matrix:
    rows = np.asarray(rows, dtype=float)
    sums = np.zeros((groups.max() + 1, rows.shape[1]))
    np.add.at(sums, groups, rows)
    counts = np.bincount(groups)[:, None]
    return rows - (sums / np.maximum(counts, 1))[groups]


def _or_unavailable(value: T | None, reason: str) -> T:
    if value is None:
        raise Unavailable(reason)
    return value


def _acyclic(adjacency: BoolMatrix) -> BoolMatrix:
    if find_cycle(adjacency):
        raise Unavailable("the recovered graph has cycles or undirected edges")
    return adjacency
