"""Nonlinear mechanisms with Gaussian noise, on as many features of the parents as pay.

With z = H x, latent j is f_j(parents) + Gaussian noise. Mechanisms are linear in the features of
`nodes._basis`, so that they and the noise variances are profiled out in closed form. Each takes as
many kinds of features as pay their price: parents alone, with a root, with smoothed hinges, or all.
Nodes include that price, so that values of different graphs compare, and a weak linear effect is
not lost among features that it does not need. Where nothing intervenes on a latent, the encoder
could have linear effects on it as well: they are no dimension of the model, and cost nothing.

The Hessian is the full one of a separable least-squares problem: with residual r, features Phi and
J = dr at fixed coefficients, second derivatives of the residual sum of squares are

    J'J - (Phi'J + dPhi'r)' (Phi'Phi)^-1 (Phi'J + dPhi'r) - r' d2Phi beta.

The terms with r must not be dropped as in a Gauss-Newton method: a latent's own residual is part of
the directions in which its parents move, and without them the method crawls.

Value and gradient are those of all rows. The Hessian only says how steps go: a part of the rows
tells it well enough (Roosta-Khorasani and Mahoney, Mathematical Programming, 2019), with Phi'Phi of
that same part, so that directions which mechanisms absorb have no curvature in it either.

Time grows as rows x (features + latents x parents)^2 for a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cache

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import ThreadpoolController

from crlearn.graph import Graph, Parents
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import edge_prior, parameter_price, price_together
from crlearn.likelihood.core._encoder import LONGEST_STEP, moved
from crlearn.likelihood.core._moments import Moments, Pools
from crlearn.likelihood.core._newton import Expansion, descend
from crlearn.likelihood.nodes._basis import (
    BLOCK,
    RIDGE,
    ROWS_FOR_THE_FORM,
    Basis,
    Features,
    FormFit,
    Selection,
)
from crlearn.likelihood.nodes._mixtures import free_of_parents
from crlearn.likelihood.nodes._protocol import Key, Node, assemble
from crlearn.result import CLOSE

Matrix = NDArray[np.floating]

# Of a latent's variance, and of F, which is of order one: products of features have no more.
_PRECISION = float(np.finfo(np.float32).eps)
_MISSED_BY_A_STEP = 30.0  # nats; not measured
_STEPS_OF_A_CHANGE, _STEPS_TO_CONVERGE = 6, 20
_LEAST_STEP = 0.1  # nats; steps that gain less decide nothing between graphs
_BLOCKS_FOR_CURVATURE = 8  # of a pool


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads of all models: these come by the dozen, and nobody closes them."""
    return ThreadPoolExecutor(cpu_count())


class SelectedModel:
    """Nodes of some rows.

    Parameters
    ----------
    environments
        Rows of each environment, reduced to as many dimensions as there are latents. They must not
        be centred if the mixing has no offset: then their origin is that of the latents.
    pool
        ``pool[j, e]`` is the number of the pool of environment e for latent j.
    hard
        Whether latents have parents in pool 0 only, or in every pool.
    choose_features
        Whether each mechanism takes only the features that pay for themselves, which is right for
        comparing graphs. With a given graph the encoder has less bias if it takes all of them.
    """

    def __init__(
        self,
        environments: Sequence[Matrix],
        pool: NDArray[np.intp],
        *,
        hard: bool,
        choose_features: bool = True,
    ) -> None:
        ends = np.cumsum([len(rows) for rows in environments])
        self.n = environments[0].shape[1]
        self.n_rows = int(ends[-1])
        self.hard = hard
        self.choose_features = choose_features
        self.pool = pool
        self._rows = np.concatenate(environments).astype(np.float32)
        self._ranges = list(zip([0, *ends[:-1]], ends, strict=True))
        self._moments = Moments.of(environments)
        self._mean = self._moments.shares @ self._moments.means
        self._covariance = self._moments.pooled(self._moments.shares)
        self._pools = Pools.of(self._moments, pool)
        self._libraries = ThreadpoolController()
        self._known: dict[bytes, dict[Key, Node]] = {}
        self._latents_at: tuple[bytes, Matrix] = (b"", self._rows)

    def with_pool(self, pool: NDArray[np.intp]) -> SelectedModel:
        """Return the model of the same rows with other pools."""
        other = copy(self)
        other.pool, other._pools = pool, Pools.of(self._moments, pool)
        other._known = {}
        return other

    def scaled(self, H: Matrix) -> Matrix:
        """Give every latent unit variance over all rows: the features expect it.

        An encoder that has it stays as it is to the last bit, as its nodes may be known.
        """
        sizes = np.sqrt(np.einsum("ja,ab,jb->j", H, self._covariance, H))
        return H if np.allclose(sizes, 1, rtol=0, atol=1e-12) else H / sizes[:, None]

    def fitted(
        self,
        H: Matrix,
        graph: Graph,
        max_steps: int = _STEPS_TO_CONVERGE,
        *,
        least_score: float = -np.inf,
        least_step: float = 0.0,
    ) -> Fit:
        """Fit the encoder of a graph, or give up where the least score is out of reach.

        It ends where a step gains less than `least_step`, in nats, or rounding hides it.
        """
        price = edge_prior(self.n) * sum(map(len, graph))
        smallest = max(2 * _PRECISION, least_step / self.n_rows)  # 2: of a difference
        H, value = descend(
            self.scaled(H),
            lambda H: self.expand(H, graph),
            lambda H: self.value(H, graph),
            lambda H, step: self.scaled(moved(H, step)),
            max_steps=max_steps,
            tolerance=smallest,
            least_promise=smallest,
            longest=LONGEST_STEP,
            goal=-(least_score + price) / self.n_rows,
        )
        if not self.hard:
            H = self.scaled(free_of_parents(H, graph, self._moments, self.pool))
            value = self.value(H, graph)
        return Fit(H, graph, -self.n_rows * value, price, self.pool, mechanisms="nonlinear")

    def refitted(self, fit: Fit, graph: Graph) -> Fit:
        """Fit a graph from the encoder of a similar one, in a few steps.

        What falls behind on the way, farther than a competing structure may be, is given up:
        promises of a first step are too good where mechanisms are strongly curved.
        """
        least = -np.inf if graph == fit.graph else fit.score - CLOSE
        return self.fitted(
            fit.H, graph, _STEPS_OF_A_CHANGE, least_score=least, least_step=_LEAST_STEP
        )

    @property
    def hopeless(self) -> float:
        """Nats that one Newton step may miss where mechanisms are strongly curved."""
        return _MISSED_BY_A_STEP

    def predicted(self, fit: Fit, graphs: Sequence[Graph]) -> Matrix:
        """Return the scores that one Newton step of the encoder promises for similar graphs."""
        H = self.scaled(fit.H)
        self.nodes(H, sorted({key for graph in graphs for key in enumerate(graph)}))
        points = [self.expand(H, graph) for graph in graphs]
        values = [point.after(point.step(longest=LONGEST_STEP)) for point in points]
        n_edges = np.array([sum(map(len, graph)) for graph in graphs])
        return -self.n_rows * np.array(values) - edge_prior(self.n) * n_edges

    def value(self, H: Matrix, graph: Graph) -> float:
        """Return F(H)."""
        return float(self.values(H, list(enumerate(graph))).sum() - np.linalg.slogdet(H)[1])

    def values(self, H: Matrix, wanted: Sequence[Key]) -> Matrix:
        """Return the values of nodes at an encoder."""
        return np.array([node.value for node in self._computed(H, wanted, derivatives=False)])

    def expand(self, H: Matrix, graph: Graph) -> Expansion:
        """Expand F to second order."""
        return assemble(H, self.nodes(H, list(enumerate(graph))))

    def nodes(self, H: Matrix, wanted: Sequence[Key]) -> list[Node]:
        """Return nodes at an encoder; those of two encoders are kept.

        A new encoder takes the place of that with fewer nodes, so that those at which changes of
        the graph were predicted, where all of these start, outlast the steps of single ones.
        """
        at = H.tobytes()
        if at not in self._known and len(self._known) == 2:
            del self._known[min(self._known, key=lambda other: len(self._known[other]))]
        known = self._known.setdefault(at, {})
        missing = [key for key in wanted if key not in known]
        known.update(zip(missing, self._computed(H, missing, derivatives=True), strict=True))
        return [known[key] for key in wanted]

    def _computed(self, H: Matrix, wanted: Sequence[Key], *, derivatives: bool) -> list[Node]:
        """Compute nodes in parallel."""

        def node(key: Key) -> Node:
            return self._node(H, *key, derivatives)

        # The products are small: threads of their own inside each would only be in the way.
        with self._libraries.limit(limits=1, user_api="blas"):
            return list(_threads().map(node, wanted))

    def _node(self, H: Matrix, j: int, parents: Parents, derivatives: bool) -> Node:
        rows = (j, *parents)
        size = len(rows) * self.n
        value, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
        for p in range(self._pools.n_pools):
            if self._pools.shares[j, p] == 0:
                continue
            with_parents = bool(parents) and (p == 0 or not self.hard)
            part = (
                self._regression(H, j, parents, p, derivatives)
                if with_parents
                else self._variance(H, j, p)
            )
            n_used = len(part.gradient)
            value += part.value
            gradient[:n_used] += part.gradient
            hessian[:n_used, :n_used] += part.hessian
        return Node(value, rows, gradient.reshape(-1, self.n), hessian)

    def products(self, H: Matrix, j: int, parents: Parents) -> Matrix:
        """Return sums of products of features and, last, latent j in each environment."""
        if not parents:
            return self._products_without_parents(H[j])
        basis = self._fitted_form(H, j, parents, 0).basis
        environments = np.arange(len(self._ranges))
        grams = [
            _gram(self._blocks(H, environments == e), j, list(parents), basis) for e in environments
        ]
        return np.array([n_rows * gram for gram, n_rows in grams])

    def _products_without_parents(self, row: Matrix) -> Matrix:
        means = (self._moments.means - self._mean) @ row
        squares = row @ self._moments.covariances @ row + means**2
        products = np.stack([np.ones_like(means), means, means, squares], axis=1).reshape(-1, 2, 2)
        return self._moments.sizes[:, None, None] * products

    def _variance(self, H: Matrix, j: int, p: int) -> _Part:
        """Latent j has no parents: its variance in the pool is all that matters."""
        covariance = H @ self._pools.covariances[j, p] @ H.T
        share, variance = self._pools.shares[j, p], covariance[j, j]
        slope = covariance[j] / variance
        return _Part(
            0.5 * share * np.log(variance),
            share * slope,
            share * (covariance / variance - 2 * np.outer(slope, slope)),
        )

    def _regression(self, H: Matrix, j: int, parents: Parents, p: int, derivatives: bool) -> _Part:
        blocks, form = self._blocks(H, self.pool[j] == p), self._fitted_form(H, j, parents, p)
        basis, gram = form.basis, form.gram / form.n_rows
        if form.n_rows < sum(map(len, blocks)):
            gram, _ = _gram(blocks, j, list(parents), basis)
        selections = basis.selections() if self.choose_features else [basis.everything()]
        costs = [self._price(selection, j) / self.n_rows for selection in selections]
        priced, share = list(zip(selections, costs, strict=True)), self._pools.shares[j, p]
        return _regress(gram, blocks, j, list(parents), basis, priced, share, derivatives)

    def _price(self, selection: Selection, j: int) -> float:
        """Return what features of its parents cost latent j.

        Where nothing intervenes on it, linear effects could be in the encoder as well.
        """
        n_linear = len(selection.brought) if self.pool[j].any() else 0
        price_alone = (1 + n_linear) * parameter_price(self.n_rows)
        return price_alone + price_together(self.n_rows, selection.brought)

    def _fitted_form(self, H: Matrix, j: int, parents: Parents, p: int) -> FormFit:
        """Fit the features of the parents to some rows of a pool."""
        columns = list(parents)
        blocks = self._blocks(H, self.pool[j] == p).some(ROWS_FOR_THE_FORM // BLOCK)
        return FormFit.of(Basis.plain(len(parents)), ((z[:, columns], z[:, j]) for z in blocks))

    def _blocks(self, H: Matrix, environments: NDArray[np.bool_]) -> _Blocks:
        """Return the latents of the rows of some environments, block by block."""
        places = [
            slice(start, min(start + BLOCK, last))
            for first, last in (self._ranges[e] for e in np.flatnonzero(environments))
            for start in range(first, last, BLOCK)
        ]
        return _Blocks(self._latents(H), places)

    def _latents(self, H: Matrix) -> Matrix:
        """Return the latents of all rows, centred; those of the last encoder are kept."""
        at, latents = self._latents_at
        if at != H.tobytes():
            latents = self._rows @ H.T.astype(np.float32)
            latents -= (H @ self._mean).astype(np.float32)
            self._latents_at = H.tobytes(), latents
        return latents


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Latents of some rows, as many at a time as stay in a processor's cache."""

    latents: Matrix
    places: Sequence[slice]

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Matrix]:
        return (self.latents[place] for place in self.places)

    def some(self, at_most: int) -> _Blocks:
        """Return at most so many of them, spread evenly."""
        return _Blocks(self.latents, self.places[:: -(-len(self) // at_most)])


@dataclass(frozen=True, eq=False)
class _Part:
    """What one pool adds to a node."""

    value: float
    gradient: Matrix
    hessian: Matrix


def _regress(
    gram: Matrix,
    blocks: _Blocks,
    j: int,
    parents: list[int],
    basis: Basis,
    priced: Sequence[tuple[Selection, float]],
    share: float,
    derivatives: bool,
) -> _Part:
    """Regress latent j on features of its parents; differentiate the logarithm of the variance.

    The best selection of features is taken, with what it adds to F. `gram` has the mean products of
    the features and, last, the child.
    """
    fits = [_least_squares(gram, selection.kept) for selection, _ in priced]
    values = [
        0.5 * share * np.log(fit.variance) + cost
        for fit, (_, cost) in zip(fits, priced, strict=True)
    ]
    best = int(np.argmin(values))
    value, fit = float(values[best]), fits[best]
    if not derivatives:
        return _Part(value, np.zeros(0), np.zeros((0, 0)))
    basis, kept = basis.reduced_to(fit.kept)
    coefficients = np.zeros(basis.size)
    coefficients[kept] = fit.beta
    moments = _derivatives(blocks, j, parents, basis, coefficients)
    slope = moments.with_residual / fit.variance
    factor, inside = _factor(moments.gram[np.ix_(kept, kept)]), moments.with_features[kept]
    curved = moments.squares - inside.T @ cho_solve(factor, inside, check_finite=False)
    hessian = share * (curved / fit.variance - 2 * np.outer(slope, slope))
    return _Part(value, share * slope, hessian)


def _gram(blocks: _Blocks, j: int, parents: list[int], basis: Basis) -> tuple[Matrix, int]:
    """Return the mean products of the features and, last, the child; and the number of rows."""
    size = basis.size
    gram, n_rows = np.zeros((size + 1, size + 1)), 0
    for z in blocks:
        values, child = basis(z[:, parents]).values, z[:, j]
        gram[:size, :size] += values.T @ values
        gram[:size, size] += values.T @ child
        gram[size, size] += child @ child
        n_rows += len(z)
    return gram / n_rows, n_rows


@dataclass(frozen=True, eq=False)
class _LeastSquares:
    """A regression on some of the features."""

    kept: NDArray[np.intp]
    beta: Matrix
    variance: float


def _least_squares(gram: Matrix, kept: NDArray[np.intp]) -> _LeastSquares:
    inside, with_child = gram[np.ix_(kept, kept)], gram[kept, -1]
    beta = cho_solve(_factor(inside), with_child, check_finite=False)
    variance = gram[-1, -1] - 2 * beta @ with_child + beta @ inside @ beta
    smallest = _PRECISION * gram[-1, -1]
    return _LeastSquares(kept, beta, float(max(variance, smallest)))


def _factor(gram: Matrix) -> tuple[Matrix, bool]:
    """Factorise with a small ridge, or a larger one if single precision asks for it."""
    ridge = np.diag(np.diag(gram))
    for size in (RIDGE, 1e2 * RIDGE, 1e4 * RIDGE):
        try:
            return cho_factor(gram + size * ridge, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    return cho_factor(gram + ridge, check_finite=False)


@dataclass(frozen=True, eq=False)
class _Derivatives:
    """Mean products with J, the derivative of the residual by the rows j and parents of D.

    Attributes
    ----------
    with_residual
        J'r, of all rows.
    gram, with_features, squares
        Phi'Phi, Phi'J + dPhi'r and J'J + r'd2Phi beta, of a part of the rows.
    """

    with_residual: Matrix
    gram: Matrix
    with_features: Matrix
    squares: Matrix


def _derivatives(
    blocks: _Blocks,
    j: int,
    parents: list[int],
    basis: Basis,
    coefficients: Matrix,
) -> _Derivatives:
    """Go through the rows once; every few blocks are the part for the second moments."""
    beta = coefficients.astype(np.float32)
    size = (1 + len(parents)) * blocks.latents.shape[1]
    with_residual, n_rows, n_some = np.zeros(size), 0, 0
    sums = np.zeros((basis.size, basis.size)), np.zeros((basis.size, size)), np.zeros((size, size))
    every = -(-len(blocks) // _BLOCKS_FOR_CURVATURE)
    for number, z in enumerate(blocks):
        features = basis(z[:, parents])
        slope, weighted = features.slope(beta), z * (z[:, [j]] - features.values @ beta[:, None])
        with_residual += np.concatenate([weighted.sum(axis=0), -(slope.T @ weighted).ravel()])
        n_rows += len(z)
        if number % every == 0:
            for total, moments in zip(
                sums, _second(z, features, slope, weighted, beta), strict=True
            ):
                total += moments
            n_some += len(z)
    return _Derivatives(with_residual / n_rows, *(total / n_some for total in sums))


def _second(
    z: Matrix, features: Features, slope: Matrix, weighted: Matrix, beta: Matrix
) -> tuple[Matrix, Matrix, Matrix]:
    """Return the second moments of a block; `weighted` are its latents times the residual."""
    n, p = z.shape[1], features.basis.n_parents
    J = np.concatenate([z[:, None, :], -slope[:, :, None] * z[:, None, :]], axis=1)
    J = J.reshape(len(z), -1)
    with_features = features.values.T @ J
    with_features[:, n:] += features.moments_of_slopes(weighted).reshape(-1, p * n)
    squares = J.T @ J
    bends = features.curvature(beta)
    second = np.empty((p, p, n, n), z.dtype)
    for a, b in zip(*features.basis.pairs, strict=True):
        second[a, b] = second[b, a] = (weighted * bends[:, a, [b]]).T @ z
    squares[n:, n:] -= second.transpose(0, 2, 1, 3).reshape(p * n, p * n)
    return features.values.T @ features.values, with_features, squares
