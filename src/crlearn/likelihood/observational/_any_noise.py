"""Noise of any shape: encoder, graph and densities of the noises, from one environment.

A Gaussian likelihood is at its optimum at a wrong encoder if noises have another shape: mixtures of
independent variables that are not Gaussian depend on each other nonlinearly, and mechanisms explain
that. So densities are fitted with all else (`nodes._any_noise`). From rotations that suit cubic
mechanisms, complete graphs are fitted, and from the best of these the best graph at their encoder;
then edges are dropped. What a lost parent did linearly can be part of the latent itself, so the
encoder is moved by that first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import Graph, complete_graph, topological_order, with_parents
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import edge_prior, parameter_price
from crlearn.likelihood.observational._mechanisms import any_noise_model
from crlearn.likelihood.observational._rotations import Rotation, rotations_of
from crlearn.likelihood.observational._start import Run, distinct
from crlearn.likelihood.search._local import LEAST_GAIN, climb, good_graph_at
from crlearn.likelihood.search._orders import best_graph_at

Matrix = NDArray[np.floating]
Edge = tuple[int, int]  # cause and effect

_LARGEST_FOR_ALL_GRAPHS = 6  # latents
_STEPS_OF_A_GLANCE = 3
_BY_CHANCE = 0.01  # p-value of an edge that is in doubt
HOPELESS = 60.0  # nats that the encoder may bring back


def local_optima(y: Matrix, starts: Iterable[Matrix], run: Run, n_followed: int) -> list[Fit]:
    """Fit complete graphs from all starts, and better ones from the best; the best come first."""
    dense = distinct(run(lambda H: AnyNoiseSearch(y).dense(H), starts))
    return distinct(run(lambda fit: AnyNoiseSearch(y).with_better_graph(fit), dense[:n_followed]))


def improved_structures(y: Matrix, starts: Sequence[Fit], run: Run, n_followed: int) -> list[Fit]:
    """Improve graphs; return them with all that was tried, the best first."""

    def improved(start: Fit) -> list[Fit]:
        search = AnyNoiseSearch(y)
        return [search.improved(start), *search.not_taken]

    return sorted(chain(*run(improved, starts[:n_followed])), key=lambda fit: -fit.score)


def with_rotations(y: Matrix, best: Fit, n_followed: int) -> list[Fit]:
    """Rotate pairs; return the best structure first, and all that was tried."""
    search = AnyNoiseSearch(y)
    return [search.rotated(best, n_followed), *search.not_taken]


def without_needless_edges(fits: Sequence[Fit], n_rows: int) -> list[Fit]:
    """Leave out what differs from the best structure by edges that chance would explain.

    One edge too many is no other explanation, but its price alone would not tell: needless edges
    are always about a price behind.
    """
    best, *others = sorted(fits, key=lambda fit: -fit.score)

    def is_another(fit: Fit) -> bool:
        n_more = fit.n_edges - best.n_edges
        if n_more <= 0:
            return True
        prior = n_more * edge_prior(len(fit.H))
        freedom = max((fit.price - best.price - prior) / parameter_price(n_rows), 1.0)
        gained = fit.log_likelihood - best.log_likelihood
        return bool(chi2.sf(2 * gained, freedom) < _BY_CHANCE)

    return [best, *filter(is_another, others)]


class AnyNoiseSearch:
    """Search with densities of the noises, for some whitened rows; one thread at a time.

    Attributes
    ----------
    model
        Of the rows.
    not_taken
        What was tried and was not the best.
    """

    def __init__(self, y: Matrix) -> None:
        self.model = any_noise_model(y)
        self.not_taken: list[Fit] = []

    def dense(self, H: Matrix, order: Sequence[int] | None = None) -> Fit:
        """Fit a complete graph."""
        return self.model.fitted_once(H, complete_graph(order or range(self.model.n)))

    def with_better_graph(self, best: Fit) -> Fit:
        """Fit the best graph at the encoder, and keep it if the score rises."""
        found = self.model.fitted_once(best.H, self._graph_at(best.H))
        return max(found, best, key=lambda fit: fit.score)

    def improved(self, best: Fit) -> Fit:
        """Drop edges, the encoder following, and move single ones at the encoder, by turns."""
        while True:
            sparse = self._sparsified(best)
            found = climb(self.model, replace(sparse, alternatives=()))
            self.not_taken += found.alternatives
            found = max(found, self.model.fitted(found.H, found.graph), key=lambda fit: fit.score)
            if found.score < best.score + LEAST_GAIN:
                return replace(max(found, best, key=lambda fit: fit.score), alternatives=())
            best = found

    def rotated(self, best: Fit, n_followed: int) -> Fit:
        """Rotate pairs of latents into each other while the score rises.

        All rotations are fitted in a few steps with a complete graph; the best are followed.
        """
        while True:
            tried = [self._after(rotation, best) for rotation in rotations_of(best.graph)]
            tried.sort(key=lambda fit: -fit.score)
            for start in tried[:n_followed]:
                order = topological_order(start.adjacency).tolist()
                found = self.with_better_graph(self.dense(start.H, order))
                if found.graph != best.graph:  # otherwise it is where the rotation came from
                    found = self.improved(found)
                if found.score > best.score + LEAST_GAIN:
                    self.not_taken.append(best)
                    best = found
                    break
                self.not_taken.append(found)
            else:
                return best

    def dropped(self, fit: Fit) -> Iterator[Fit]:
        """Yield the fit without each of its edges, the least needed first."""
        for _, edge in sorted(self._losses(fit)):
            yield self._without(fit, edge)

    def _after(self, rotation: Rotation, fit: Fit) -> Fit:
        pair = [rotation.first, rotation.second]
        scale = self.model.residuals(fit)[:, pair].std(axis=0)
        cos, sin = np.cos(rotation.angle), np.sin(rotation.angle)
        H = fit.H.copy()
        H[pair] = np.array([[cos, sin], [-sin, cos]]) @ (H[pair] / scale[:, None])
        order = topological_order(fit.adjacency).tolist()
        return self.model.fitted_once(H, complete_graph(order), _STEPS_OF_A_GLANCE)

    def _graph_at(self, H: Matrix) -> Graph:
        few = self.model.n <= _LARGEST_FOR_ALL_GRAPHS
        return best_graph_at(self.model, H) if few else good_graph_at(self.model, H)

    def _sparsified(self, best: Fit) -> Fit:
        """Drop single edges, the least needed first, until that does not pay."""
        hopeless = set[Edge]()
        while True:
            before = best
            for loss, edge in sorted(self._losses(best)):
                if loss > HOPELESS:
                    break
                if edge in hopeless:
                    continue
                found = self._without(best, edge)
                if best.score - HOPELESS < found.score < best.score + LEAST_GAIN:
                    found = self.model.fitted(found.H, found.graph)
                if found.score > best.score + LEAST_GAIN:
                    self.not_taken.append(best)
                    best = found
                elif found.score < best.score - HOPELESS:
                    hopeless.add(edge)
                else:
                    self.not_taken.append(found)
            if best is before:
                return best

    def _losses(self, fit: Fit) -> list[tuple[float, Edge]]:
        """Return about what each edge is worth beyond its price if the encoder follows."""
        residuals, found = self.model.residuals(fit), []
        for j, parents in enumerate(fit.graph):
            density = fit.parameters[j, 0].density
            reached = density.log_density(residuals[:, j]).sum()
            for i in parents:
                loss = reached - density.log_density(self._explained(fit, (i, j))[1]).sum()
                found.append((float(loss) - edge_prior(self.model.n), (i, j)))
        return found

    def _without(self, fit: Fit, edge: Edge) -> Fit:
        """Drop an edge; the encoder takes over what it can of the lost parent's effect."""
        i, j = edge
        H, (shares, _) = fit.H.copy(), self._explained(fit, edge)
        H[j] -= shares[j] * H[i]
        for k in fit.graph[j]:
            if i in fit.graph[k]:
                H[k] += shares[k] * H[i]
        graph = with_parents(fit.graph, j, {*fit.graph[j]} - {i})
        return self.model.refitted(fit, graph, self.model.scaled(H))

    def _explained(self, fit: Fit, edge: Edge) -> tuple[dict[int, float], Matrix]:
        """Return the lost parent's shares in other latents that explain its effect, and the rest.

        What parent i does linearly can be part of child j. If another parent k were counted with a
        little of parent i in it, the child would change by that times the slope along k.
        """
        i, j = edge
        Z, others = self.model.latents(fit.H), [k for k in fit.graph[j] if k != i]
        along = self.model.slopes(fit, j)[:, [fit.graph[j].index(k) for k in others]]
        functions = self.model.functions(fit.H, j, others)
        basis = np.column_stack([Z[:, i], along * Z[:, [i]], functions])
        weights = np.linalg.lstsq(basis, Z[:, j], rcond=None)[0]
        return dict(zip([j, *others], weights.tolist(), strict=False)), Z[:, j] - basis @ weights
