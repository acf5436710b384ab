"""Encoder and graph of linear latents whose noise is not Gaussian, from those of the Gaussian fit.

Densities of the noise are fitted as in `nodes._any_noise`. They sharpen the likelihood, so
that edges show which the Gaussian one cannot see, and others prove needless: edges are added and
removed one at a time while BIC falls. Which one is next, score tests and Wald tests say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import transitive_closure
from crlearn.likelihood.interventional._linear import LinearFit, LinearProblem
from crlearn.likelihood.nodes._any_noise import NoiseFit, NoiseModel

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_STEPS_OF_A_CHANGE = 5
_FAILURES = 4
_ROWS_TO_START = 5_000  # of each environment


@dataclass(frozen=True, eq=False)
class NoisyFit:
    """A graph with its best encoder and densities.

    Attributes
    ----------
    linear
        Encoder, graph and value; for soft interventions its rows give the noises.
    noise
        Mechanisms and densities.
    gain
        What BIC, halved, is below that of the Gaussian fit, in nats.
    edge_p_values
        Of each edge, by Wald's test; 1 where there is none.
    standard_errors
        Of what each row of the encoder has of the other latents.
    """

    linear: LinearFit
    noise: NoiseFit
    gain: float
    edge_p_values: Matrix
    standard_errors: Matrix


def fit_with_noise(
    rows: Sequence[Matrix], problem: LinearProblem, fit: LinearFit
) -> NoisyFit | None:
    """Improve the Gaussian fit; None if the noise may well be Gaussian.

    `rows` are those of the problem's moments.
    """
    if problem.n == 1:
        return None  # the encoder is known without it
    masks = problem.masks(fit.adjacency)
    model = NoiseModel.of(rows, problem.pool, masks)
    start = model.start(fit.H)
    if start.is_gaussian:
        return None
    before = _State(problem, model, fit.adjacency, model.gaussian(fit.H)).bic
    if max(map(len, rows)) > 2 * _ROWS_TO_START:
        some = [each[:: -(-len(each) // _ROWS_TO_START)] for each in rows]
        sketch = NoiseModel.of(some, problem.pool, masks)
        sketched = sketch.fit(replace(start, value=sketch.value(start)))
        start = min(start, model.refitted(sketched), key=lambda fit: fit.value)
    first = _State(problem, model, fit.adjacency, model.fit(start))
    state = _searched(first)
    if state is not first:
        state = replace(state, fit=state.model.fit(state.fit))
    gain = before - state.bic
    return state.answer(gain) if gain > 0 else None


def _searched(state: _State) -> _State:
    """Change single edges while BIC falls."""
    failed: set[bytes] = set()
    while len(failed) < _FAILURES:
        change = state.best_change(failed)
        if change is None:
            break
        found = state.with_graph(change)
        if found.bic < state.bic:
            state = found
        else:
            failed.add(change.tobytes())
    return state


@dataclass(frozen=True, eq=False)
class _State:
    problem: LinearProblem
    model: NoiseModel
    adjacency: BoolMatrix
    fit: NoiseFit

    @property
    def bic(self) -> float:
        """BIC, halved, with what an edge costs more as it is chosen among many."""
        return self.model.bic(self.fit) + self._extra_cost * int(self.adjacency.sum())

    @property
    def _extra_cost(self) -> float:
        return self.problem.edge_cost - 0.5 * float(np.log(self.problem.n_samples))

    def with_graph(self, adjacency: BoolMatrix) -> _State:
        """Fit another graph, from here."""
        masks = self.problem.masks(adjacency)
        model = replace(self.model, masks=masks)
        start = replace(self.fit, coefficients=self.fit.coefficients * masks)
        start = replace(start, value=model.value(start))
        fit = model.fit(start, max_steps=_STEPS_OF_A_CHANGE, new_shapes=False)
        return _State(self.problem, model, adjacency, fit)

    def best_change(self, failed: set[bytes]) -> BoolMatrix | None:
        """Return the graph that differs in one edge and promises most, if any does."""
        n = len(self.adjacency)
        ancestors = transitive_closure(self.adjacency) | np.eye(n, dtype=bool)
        best, most = None, 0.0
        for i, j in np.ndindex(n, n):
            if not self.adjacency[i, j] and ancestors[j, i]:
                continue  # it would close a cycle
            changed = self.adjacency.copy()
            changed[i, j] ^= True
            n_coefficients = len(self._expansion.places[i, j])
            cost = np.log(self.model.n_samples) * n_coefficients + 2 * self._extra_cost
            promise = self._expansion.statistics[i, j] - cost
            promise = -promise if self.adjacency[i, j] else promise
            if promise > most and changed.tobytes() not in failed:
                best, most = changed, promise
        return best

    def answer(self, gain: float) -> NoisyFit:
        """Return what was found."""
        n = len(self.adjacency)
        p_values = np.ones((n, n))
        for i, j in np.argwhere(self.adjacency):
            freedom = len(self._expansion.places[int(i), int(j)])
            p_values[i, j] = chi2.sf(self._expansion.statistics[i, j], freedom)
        return NoisyFit(
            LinearFit(self.fit.H, self.adjacency, self.fit.value),
            self.fit,
            gain,
            p_values,
            self._expansion.standard_errors,
        )

    @cached_property
    def _expansion(self) -> _Expansion:
        return _Expansion.of(self)


@dataclass(frozen=True, eq=False)
class _Expansion:
    """The likelihood around a fit, with the coefficients of all edges.

    Attributes
    ----------
    places
        Where the coefficients of i -> j stand among all parameters.
    statistics
        Wald's statistic for edges that are there, the score statistic for others.
    standard_errors
        Of D, zero on its diagonal.
    """

    places: dict[tuple[int, int], NDArray[np.intp]]
    statistics: Matrix
    standard_errors: Matrix

    @classmethod
    def of(cls, state: _State) -> _Expansion:
        n = len(state.adjacency)
        off = ~np.eye(n, dtype=bool)
        masks = state.problem.masks(off)
        wide = replace(state.model, masks=masks)
        gradient, information = wide.gradient(state.fit), wide.information(state.fit)
        among = np.argwhere(masks > 0)
        n_moved = n * (n - 1)
        used = state.model.pools.shares[among[:, 0], among[:, 1]] > 0
        places = {
            (i, j): n_moved + np.flatnonzero((among[:, 0] == j) & (among[:, 2] == i) & used)
            for i, j in np.ndindex(n, n)
        }
        free = np.append(
            np.ones(n_moved, dtype=bool), state.adjacency[among[:, 2], among[:, 0]] & used
        )
        covariance = np.zeros(information.shape)
        covariance[np.ix_(free, free)] = np.linalg.pinv(
            information[np.ix_(free, free)], hermitian=True
        )
        estimates = np.append(np.zeros(n_moved), state.fit.coefficients[masks > 0])
        statistics = np.zeros((n, n))
        for (i, j), at in places.items():
            if state.adjacency[i, j]:
                variance, vector = covariance[np.ix_(at, at)], estimates[at]
            else:
                crossed = information[at] @ covariance
                variance = information[np.ix_(at, at)] - crossed @ information[:, at]
                vector = gradient[at] - crossed @ gradient
            statistics[i, j] = vector @ np.linalg.pinv(variance, hermitian=True) @ vector
        errors = np.zeros((n, n))
        errors[off] = np.sqrt(np.maximum(np.diag(covariance)[:n_moved], 0))
        return cls(places, statistics, errors)
