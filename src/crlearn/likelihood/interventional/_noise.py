"""Linear mechanisms behind measurement noise, by expectation maximisation.

Rows are measured with noise of covariance V_e: in environment e their covariance is C_e + V_e,
and C_e is what a graph, mechanisms and an encoder imply. Given these, the expected moments of the
latents behind the rows are known (the rows are *completed*), and given completed moments the model
without noise is fitted. In turns the two climb the likelihood of the rows as they were measured
(Dempster, Laird and Rubin, JRSS B, 1977).

Structures are searched among completed moments (Friedman, ICML 1997): what one loses there is never
less than what it loses in the likelihood of the measured rows, by which the last word on every edge
is said.

The first moments are those of the rows less V_e. They are right on average, but where the noise is
larger than the latents a search among them ends in the wrong place. So the first model to be
completed is the one without an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import Graph, complete_graph, graph_of, topological_order
from crlearn.likelihood._fit import FITS, Fit
from crlearn.likelihood.core._encoder import off_diagonal
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._newton import STEPS_OF_A_CHANGE
from crlearn.likelihood.core._tests import Linearised, mechanisms_at
from crlearn.likelihood.interventional._edges import (
    NEEDLESS,
    edge_weights,
    losses_of_edges,
    promised,
    search_sparse_orders,
)
from crlearn.likelihood.interventional._start import (
    first_orders,
    intervened_rows,
    optima_without_order,
)
from crlearn.likelihood.nodes._linear import ENOUGH_TRIES, HOPELESS, LinearModel, Masks, minimise
from crlearn.likelihood.search._local import CLEAR, is_settled
from crlearn.likelihood.search._orders import nearby_orders, search_orders
from crlearn.result import GoodnessOfFit

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

_MOST_TURNS = 100  # 3 to 60 were needed in ten worlds with noise of 50%
# Of Newton's method, after the first turn: more do not make turns fewer (Lange, JRSS B, 1995).
_STEPS_A_TURN = 1
_STILL = 0.01  # nats that a turn gains
_NEARLY_STILL = 0.1  # where optima are compared; with turns of one nat a wrong one may be ahead
_MOST_OPTIMA = 3  # without an order, that are completed; two, where it mattered
_MOST_ORDERS_IN_A_ROW = 4  # that completed moments lead to; one or two, as a rule


class Completed(NamedTuple):
    """A model that was fitted to moments which it has completed itself."""

    H: Matrix
    masks: Masks
    moments: Moments
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class NoisyModel:
    """Linear mechanisms with Gaussian noise, behind measurement noise.

    Attributes
    ----------
    moments
        Of the environments, less those of the measurement noise.
    pool, hard
        As for `LinearModel`.
    """

    moments: Moments
    pool: IntMatrix
    hard: bool

    @property
    def noise(self) -> Matrix:
        """Covariance of the measurement noise in each environment."""
        assert self.moments.noise is not None
        return self.moments.noise

    @cached_property
    def reference(self) -> LinearModel:
        """The model of the rows as they were measured: whose tests they are compared by."""
        return LinearModel(self.moments.measured, self.pool, self.hard)

    def on(self, moments: Moments, *, hard: bool | None = None) -> LinearModel:
        """Return the model without noise on other moments."""
        return LinearModel(moments, self.pool, self.hard if hard is None else hard)

    def completed(
        self, start: Moments, H: Matrix, masks: Masks, *, nearly: bool = False
    ) -> Completed:
        """Climb the likelihood of the measured rows, in turns; see the module's text."""
        still = _NEARLY_STILL if nearly else _STILL
        moments, value, last = start, -np.inf, -np.inf
        for turn in range(_MOST_TURNS):
            pools = Pools.of(moments, self.pool)
            H, _ = minimise(H, pools, masks, **({"max_steps": _STEPS_A_TURN} if turn else {}))
            means, covariances = self._implied(H, moments, pools, masks)
            value = self._log_likelihood(means, covariances)
            moments = self._expected(means, covariances)
            if value - last < still:
                break
            last = value
        return Completed(H, masks, moments, value)

    def _implied(
        self, H: Matrix, moments: Moments, pools: Pools, masks: Masks
    ) -> tuple[Matrix, Matrix]:
        """Return the means and covariances that the model has in each environment."""
        mechanisms, variances = mechanisms_at(H, pools, masks)
        j, own = np.arange(len(H)), self.pool.T  # the pool of each latent in each environment
        mechanisms, variances = mechanisms[j, own], variances[j, own]
        weights = (own[:, :, None] == self.pool) * moments.sizes
        centres = weights @ (moments.means @ H.T) / weights.sum(axis=2, keepdims=True)
        intercepts = np.einsum("eji,eji->ej", mechanisms, centres)
        effects = np.linalg.inv(H) @ np.linalg.inv(mechanisms)
        means = np.einsum("eij,ej->ei", effects, intercepts)
        return means, (effects * variances[:, None]) @ np.swapaxes(effects, 1, 2)

    def _log_likelihood(self, means: Matrix, covariances: Matrix) -> float:
        """Return that of the measured rows, on the scale of models without noise."""
        measured = self.moments.measured
        whole = covariances + self.noise
        off = measured.means - means
        seen = measured.covariances + off[:, :, None] * off[:, None, :]
        traces = np.trace(np.linalg.solve(whole, seen), axis1=1, axis2=2)
        by_environment = np.linalg.slogdet(whole)[1] + traces - measured.n_variables
        return -0.5 * float(measured.sizes @ by_environment)

    def _expected(self, means: Matrix, covariances: Matrix) -> Moments:
        """Return the moments of the latents, given the rows and the model."""
        measured = self.moments.measured
        share = np.swapaxes(
            np.linalg.solve(covariances + self.noise, covariances), 1, 2
        )  # of the signal, C (C + V)^-1
        other = np.swapaxes(share, 1, 2)
        left = covariances - share @ covariances
        completed = share @ measured.covariances @ other + (left + np.swapaxes(left, 1, 2)) / 2
        off = np.einsum("eij,ej->ei", share, measured.means - means)
        return Moments(
            measured.sizes, means + off, completed, None, measured.free_means, self.noise
        )

    def without_order(self, rng: np.random.Generator) -> Completed:
        """Fit the model in which every latent may depend on all others.

        It has local optima, and rows less noise may prefer a wrong one: the likelihood of the
        measured rows chooses.
        """
        model = self.on(self.moments, hard=False)
        masks, starts = model.masks_without_order(), optima_without_order(model, rng)
        found = [self.completed(self.moments, H, masks, nearly=True) for H in starts[:_MOST_OPTIMA]]
        return max(found, key=lambda each: each.log_likelihood)

    def with_graph(self, start: Moments, H: Matrix, graph: Graph) -> Fit:
        """Fit a graph; the completed moments are the parameters of the fit."""
        masks = self.reference.masks(graph)
        found = self.completed(start, H, masks)
        price = self.reference.edge_price[Fit(H, graph, 0.0).adjacency].sum()
        return Fit(found.H, graph, found.log_likelihood, float(price), self.pool, parameters=found)

    def changed(self, fit: Fit, graph: Graph) -> Fit:
        """Fit another graph, from a fit that is near."""
        return self.with_graph(fit.parameters.moments, fit.H, graph)

    def of(self, fit: Fit) -> NoisyModel:
        """Return the model of a fit that may have other targets."""
        assert fit.pool is not None
        return self if fit.pool is self.pool else replace(self, pool=fit.pool)

    def beside(self, best: Fit, other: Fit) -> Fit:
        """Fit another order, maybe of other targets, among the moments that the best completes."""
        model = self.of(other).on(best.parameters.moments)
        found = model.fitted(other.H, other.graph, STEPS_OF_A_CHANGE)
        return replace(found, parameters=best.parameters)

    def pruned(self, fit: Fit) -> Fit:
        """Remove edges while that raises the score."""
        if fit.pool is not self.pool:
            return self.of(fit).pruned(fit)
        best = self.changed(fit, fit.graph)
        weights = edge_weights(self.linearised(best), best.adjacency)
        price = self.reference.edge_price * weights
        while best.n_edges:
            losses = losses_of_edges(self.on(best.parameters.moments), best)
            needless = losses < NEEDLESS * price
            if needless.sum() > 1:
                found = self.changed(best, graph_of(best.adjacency & ~needless))
                if best.log_likelihood - found.log_likelihood < price[needless].min() / 2:
                    best = found
                    continue
            per_price = losses / np.maximum(price, np.finfo(float).tiny)  # some cost nothing
            weakest = np.unravel_index(per_price.argmin(), losses.shape)
            fewer = best.adjacency.copy()
            fewer[weakest] = False
            found = self.changed(best, graph_of(fewer))
            if best.log_likelihood - found.log_likelihood > price[weakest]:
                break
            best = found
        return best

    def promised(self, fit: Fit) -> float:
        """Return about what score the pruned fit has, among completed moments."""
        return promised(self.of(fit).on(fit.parameters.moments), fit)

    def near(self, fit: Fit, pruned: Fit) -> list[Fit]:
        """Return orders that are near and, among completed moments, not clearly worse."""
        model = self.of(fit).on(fit.parameters.moments)
        found = nearby_orders(model, model.fitted(fit.H, fit.graph), pruned.adjacency)
        return [replace(each, parameters=fit.parameters) for each in found]

    def goodness_of_fit(self, fit: Fit) -> GoodnessOfFit:
        """Compare a fit with a Gaussian of its own for the rows of every environment."""
        weights = self.linearised(fit).weights_of_fit()
        freedom = self.reference.freedom(fit.parameters.masks)
        ratio = self.reference.ratio(-fit.log_likelihood / self.reference.n_rows)
        ratio = weights.calibrated(ratio, freedom)
        return GoodnessOfFit(ratio, freedom, float(chi2.sf(ratio, max(freedom, 1))), weights.mean)

    def is_good(self, fit: Fit, n_tries: int) -> bool:
        """Whether nothing better is to be expected after so many tries."""
        value = -fit.log_likelihood / self.reference.n_rows
        return self.reference.is_good(value, fit.parameters.masks, n_tries)

    def linearised(self, fit: Fit) -> Linearised:
        """Return the model of the measured rows around a fit."""
        moments, masks = fit.parameters.moments, fit.parameters.masks
        pools = Pools.of(moments, self.pool)
        around = Linearised.at(fit.H, moments, pools, self.pool, masks)
        return around.behind_noise(self.moments.measured)


def fit_with_noise(
    moments: Moments,
    pool: IntMatrix,
    rng: np.random.Generator,
    *,
    hard: bool,
    n_attempts: int,
    start: Matrix | None = None,
    others: Sequence[Fit] = (),
) -> tuple[LinearModel, Fit]:
    """Find encoder and graph: without order, then the best order, then without needless edges.

    Parameters
    ----------
    moments, pool, rng, hard
        As for `fit_interventional`.
    n_attempts
        How often a rejected order is searched again.
    start
        An encoder; None: that of the model without an order.
    others
        Orders that compete, maybe with other targets.

    Returns
    -------
    model
        Without noise, on the moments that the answer completes.
    fit
        With tests.
    """
    model = NoisyModel(moments, pool, hard)
    best = _best_order(model, rng, start)
    test = model.goodness_of_fit(best)
    for _ in range(n_attempts - 1):
        if test.p_value >= FITS or test.ratio > HOPELESS * test.freedom:
            break
        best = max(best, _best_order(model, rng, None), key=lambda fit: fit.score)
        test = model.goodness_of_fit(best)
    rivals = [*others, *_about_as_good(best.alternatives)]
    answer = search_sparse_orders(model, best, [model.beside(best, each) for each in rivals])
    model = model.of(answer)
    answer = replace(
        answer,
        goodness_of_fit=test,
        edge_p_values=_edge_p_values(model, answer),
        standard_errors=_standard_errors(model, answer),
    )
    return model.on(answer.parameters.moments), answer


def _about_as_good(orders: Sequence[Fit]) -> list[Fit]:
    """Return orders among which more is to be looked at than their likelihoods."""
    most = max((each.log_likelihood for each in orders), default=0.0)
    return [each for each in orders if each.log_likelihood > most - CLEAR]


def moments_behind(fit: Fit, rows: Sequence[Matrix], noise: Matrix) -> Moments:
    """Return the moments of what was measured: as a linear fit has them, or rows less noise."""
    if isinstance(fit.parameters, Completed):
        return fit.parameters.moments
    return Moments.of(rows, noise=noise)


def denoised(rows: Sequence[Matrix], noise: Matrix) -> list[Matrix]:
    """Return rows with the covariances that are left without noise, as near to them as can be.

    Posterior means would vary too little. The map of each environment is the one that moves
    Gaussian rows least (optimal transport).
    """
    moved = []
    signals, measured = Moments.of(rows, noise=noise).covariances, Moments.of(rows).covariances
    for each, signal, covariance in zip(rows, signals, measured, strict=True):
        mean = each.mean(axis=0)
        root = _root(covariance)
        inverse = np.linalg.inv(root)
        moved.append(mean + (each - mean) @ (inverse @ _root(root @ signal @ root) @ inverse))
    return moved


def _root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def _best_order(model: NoisyModel, rng: np.random.Generator, start: Matrix | None) -> Fit:
    """Return the best fit from several orders, every latent a function of all before it."""
    moments, H = model.moments, start
    if H is None:
        free = model.without_order(rng)
        moments = free.moments
        H = intervened_rows(model.on(moments), free.H) if model.hard else free.H
    best: Fit | None = None
    scores: list[float] = []
    known: dict[Graph, Fit] = {}
    for n_tries, order in enumerate(first_orders(model.on(moments), H, rng), start=1):
        found = _climbed(model, moments, H, order, known)
        best = found if best is None or found.score > best.score else best
        scores.append(found.score)
        if n_tries == ENOUGH_TRIES or model.is_good(best, n_tries) or is_settled(scores):
            break
    assert best is not None
    return best


def _climbed(
    model: NoisyModel, moments: Moments, H: Matrix, order: list[int], known: dict[Graph, Fit]
) -> Fit:
    """Search orders among moments that each new order completes.

    Where it comes to one of the `known` orders, it ends where that has led before.
    """
    best: Fit | None = None
    passed: list[Graph] = []
    for _ in range(_MOST_ORDERS_IN_A_ROW):
        found = search_orders(model.on(moments), H, order)
        fit = known.get(found.graph)
        if fit is not None:
            best = fit if best is None or fit.score > best.score else best
            break
        passed.append(found.graph)
        fit = model.with_graph(moments, found.H, found.graph)
        fit = replace(fit, alternatives=found.alternatives)
        if best is not None and fit.score <= best.score + _STILL:
            break
        best, moments, H = fit, fit.parameters.moments, fit.H
        order = [int(j) for j in topological_order(fit.adjacency)]
    assert best is not None
    known.update(dict.fromkeys(passed, best))
    return best


def _edge_p_values(model: NoisyModel, fit: Fit) -> Matrix:
    """Return Wald tests of all edges, and of those that the order allows; 1 for the others."""
    order = [int(j) for j in topological_order(fit.adjacency)]
    whole = model.changed(fit, complete_graph(order))
    p_values = _wald(model, whole)
    own = _wald(model, fit)
    return np.where(fit.adjacency, own, p_values)


def _wald(model: NoisyModel, fit: Fit) -> Matrix:
    around = model.linearised(fit)
    pools = Pools.of(fit.parameters.moments, model.pool)
    mechanisms, _ = mechanisms_at(fit.H, pools, fit.parameters.masks)
    used = fit.parameters.masks * (pools.shares > 0)[..., None] > 0
    p_values = np.ones(fit.adjacency.shape)
    for (i, j), places in around.edges.items():
        effects = mechanisms[j, used[j, :, i], i]
        covariance = around.covariance[np.ix_(places, places)] / model.reference.n_rows
        statistic = float(effects @ np.linalg.lstsq(covariance, effects, rcond=None)[0])
        p_values[i, j] = chi2.sf(statistic, len(places))
    return p_values


def _standard_errors(model: NoisyModel, fit: Fit) -> Matrix:
    """Return the standard error of what each row of the encoder has of the other latents."""
    n = len(fit.H)
    variances = np.diag(model.linearised(fit).covariance)[: n * (n - 1)]
    errors = np.zeros((n, n))
    errors[off_diagonal(n)] = np.sqrt(np.maximum(variances, 0) / model.reference.n_rows)
    return errors
