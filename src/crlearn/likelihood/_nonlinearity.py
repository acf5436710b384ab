"""What nonlinear mechanisms tell: parents from other ancestors, layers without interventions.

With linear mechanisms soft interventions show ancestors only. A mechanism outside its intervention
and inside, f and g, tells all its parents apart if there is no direction b among them along which
both are linear: b'f' and b'g' constant. Then scores of the two differ in as many directions as
there are parents, and one more: the condition of Varıcı et al. (2025) for the exact graph. Where
there is such a direction, a latent and its parents could be replaced by combinations of them
without another mechanism taking note.

By the paper's condition an effect that is linear, but has another slope inside, is told apart, too.
It does not count here: two parents with such effects never are, but after one of them is replaced
by the combination that matters they look like a single parent, which would be.

Without interventions f alone counts. Layers are determined where no b has b'f' = c everywhere, as a
childless latent is a direction along which the Jacobian of the score does not vary. The directional
nonlinearity of Welch et al. (2024) is that f has no b with b'f''b = 0 everywhere. It asks for more:
z1 z2 is straight along z1 at each z2, but with another slope, which tells as much.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26(112), 2025. Welch, Zhang and Uhler, Identifiability guarantees for
causal disentanglement from purely observational data, NeurIPS 2024. Bartlett, Further aspects of
the theory of multiple regression, Proceedings of the Cambridge Philosophical Society 34, 1938: the
test where rows are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log, prod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.stats import chi2

from crlearn.graph import Graph, Parents
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import price_together
from crlearn.likelihood.core._subsample import part_of_each
from crlearn.likelihood.nodes._basis import RIDGE, Basis, Selection, solved

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]

# Directions are searched with some rows of each environment, then with more from where that led.
_ROWS_TO_SEARCH, _ROWS_TO_TEST = 2_000, 20_000
_FAR, _NEAR = 0.3, 0.03  # first steps
_TRIES = 20  # for each parent but the first
_SMALLEST_SHARE = 1e-5  # of squares: beyond the rounding of features in single precision


@dataclass(frozen=True, eq=False)
class _Pool:
    """Rows that share a mechanism: parents in standard units, and the child."""

    parents: Matrix
    child: Matrix

    @classmethod
    def of(
        cls, latents: Sequence[Matrix], j: int, parents: Parents, pool: IntMatrix
    ) -> list[_Pool]:
        """Return the pools of a latent, but for environments whose pool is negative."""
        columns = list(parents)
        whole = np.concatenate([z[:, columns] for z in latents])
        mean, scale = whole.mean(axis=0), whole.std(axis=0)
        found = []
        for p in np.unique(pool[j][pool[j] >= 0]):
            z = np.concatenate([latents[e] for e in np.flatnonzero(pool[j] == p).tolist()])
            found.append(cls((z[:, columns] - mean) / scale, z[:, j]))
        return found

    @cached_property
    def basis(self) -> Basis:
        """Features of the parents."""
        return Basis.plain(self.parents.shape[1]).fitted_to([(self.parents, self.child)])

    @cached_property
    def _values(self) -> Matrix:
        return self.basis(self.parents).values.astype(float)

    def selected(self, n_rows: int) -> Matrix:
        """Return the features that pay among so many rows of all pools."""
        return self._values[:, self._best(n_rows).kept]

    @property
    def n_choices(self) -> int:
        """Number of sets of features beside the linear ones."""
        return len(self.basis.selections()) - 1

    def is_bent(self, n_rows: int) -> bool:
        """Whether others than linear ones do."""
        return len(self._best(n_rows).kept) > 1 + self.parents.shape[1]

    def _best(self, n_rows: int) -> Selection:
        gram, right = self._values.T @ self._values, self._values.T @ self.child
        square = self.child @ self.child

        def cost(selection: Selection) -> float:
            beta = solved(gram[np.ix_(selection.kept, selection.kept)], right[selection.kept])
            left = float(max(square - beta @ right[selection.kept], RIDGE * square))
            return 0.5 * len(self.child) * log(left) + price_together(n_rows, selection.brought)

        return min(self.basis.selections(), key=cost)

    def slopes(self) -> Matrix:
        """Return the derivatives of the mechanism by the parents in each row."""
        beta = solved(self._values.T @ self._values, self._values.T @ self.child)
        slopes = self.basis(self.parents).slope(beta.astype(np.float32))
        return np.broadcast_to(slopes, self.parents.shape).astype(float)

    def straight_along(self, axis: Matrix) -> Matrix:
        """Return features of the parents that do not vary along an axis.

        Among them is the root of the mechanism as it is, without what varies: that of a form which
        is fitted anew could be a little worse, and the difference would look like a bend.
        """
        beyond = null_space(axis[None, :])
        if not beyond.size:
            return np.ones((len(self.child), 1))
        across = np.eye(1 + len(axis))
        across[1:, 1:] -= np.outer(axis, axis)
        flat = replace(self.basis, form=(across @ self.basis.form @ across).astype(np.float32))
        combined = self.parents @ beyond
        basis = Basis.plain(beyond.shape[1]).fitted_to([(combined, self.child)])
        root = flat(self.parents).values[:, -1:]
        return np.hstack([basis(combined).values, root]).astype(float)


def has_bent_mechanisms(rows: Sequence[Matrix], H: Matrix, graph: Graph, pool: IntMatrix) -> bool:
    """Whether smooth functions of parents explain more than linear ones, beyond their price."""
    latents = [each @ H.T for each in rows]
    n_rows = sum(map(len, rows))
    return any(
        part.is_bent(n_rows)
        for j, parents in enumerate(graph)
        if parents
        for part in _Pool.of(latents, j, parents, pool)
    )


def straight_p_values(rows: Sequence[Matrix], fit: Fit, *, outside: bool = False) -> Matrix:
    """Return, for each latent, the p-value of a direction in which its parents are not told apart.

    It is the largest over all directions: a mechanism with a small one is nonlinear along each.
    Latents without parents, for which there is nothing to tell, have zero.

    Parameters
    ----------
    rows, fit
        With the pools of each latent.
    outside
        Whether the mechanism outside of interventions alone is to tell them, by its bends.
    """
    pool = np.zeros((len(fit.graph), len(rows)), dtype=np.intp) if fit.pool is None else fit.pool
    if outside:
        pool = np.where(pool, -1, 0)
    few, many = (
        [each @ fit.H.T for each in part_of_each(rows, n_rows)]
        for n_rows in (_ROWS_TO_SEARCH, _ROWS_TO_TEST)
    )
    p_values = np.zeros(len(fit.graph))
    for j, parents in enumerate(fit.graph):
        if parents:
            search = _Directions.of(_Pool.of(few, j, parents, pool))
            axis = search.worst(search.flattest(), _FAR, _TRIES)
            test = _Directions.of(_Pool.of(many, j, parents, pool))
            p_values[j] = test.p_value(test.worst(axis, _NEAR, _TRIES))
    return p_values


def straightest_parent(rows: Sequence[Matrix], fit: Fit, j: int) -> tuple[int, float, float]:
    """Return the parent of a latent whose effect is most nearly linear, its p-value and its slope.

    The latent has parents, and one mechanism in all environments.
    """
    assert fit.pool is not None
    parents = fit.graph[j]
    latents = [each @ fit.H.T for each in part_of_each(rows, _ROWS_TO_TEST)]
    (pool,) = pools = _Pool.of(latents, j, parents, fit.pool)
    test = _Directions.of(pools)
    p_values = [test.p_value(axis) for axis in np.eye(len(parents))]
    k = int(np.argmax(p_values))
    scale = np.concatenate(latents)[:, parents[k]].std()
    return parents[k], p_values[k], float(pool.slopes()[:, k].mean() / scale)


@dataclass(frozen=True, eq=False)
class _Directions:
    """Tests of directions of the parents of a latent.

    Attributes
    ----------
    pools
        Of the latent.
    features
        Those that pay, in each pool: the mechanism as it is.
    """

    pools: Sequence[_Pool]
    features: Sequence[Matrix]

    @classmethod
    def of(cls, pools: Sequence[_Pool]) -> _Directions:
        n_rows = sum(len(part.child) for part in pools)
        return cls(pools, [part.selected(n_rows) for part in pools])

    def flattest(self) -> Matrix:
        """Return the direction along which slopes vary least, over all rows of all pools."""
        slopes = np.concatenate([part.slopes() for part in self.pools])
        scatter = slopes - slopes.mean(axis=0)
        return np.linalg.eigh(scatter.T @ scatter)[1][:, 0]

    def worst(self, first: Matrix, step: float, n_tries: int) -> Matrix:
        """Search the direction along which mechanisms are most nearly linear."""
        beyond = null_space(first[None, :])
        if not beyond.size:
            return first
        simplex = step * np.eye(beyond.shape[1] + 1, beyond.shape[1], k=-1)
        place = minimize(
            lambda place: self._distance(first + beyond @ place),
            simplex[0],
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "maxfev": n_tries * beyond.shape[1]},
        ).x
        found = first + beyond @ place
        return found / np.linalg.norm(found)

    def p_value(self, direction: Matrix) -> float:
        """Return the p-value of mechanisms without bends along a direction.

        Each pool's features are those of several sets that fit best: whichever are chosen, it is no
        smaller than the chance that one of them comes out like this (Bonferroni).
        """
        value, freedom = self._test(direction)
        n_choices = prod(part.n_choices for part in self.pools)
        return min(1.0, n_choices * float(chi2.sf(value, freedom))) if freedom else 1.0

    def _distance(self, direction: Matrix) -> float:
        """Return how far a statistic is from what it should be, in standard deviations."""
        value, freedom = self._test(direction)
        return (value - freedom) / np.sqrt(2 * max(freedom, 1))

    def _test(self, direction: Matrix) -> tuple[float, int]:
        """Return the statistic, and its degrees of freedom."""
        axis = direction / np.linalg.norm(direction)
        value, freedom = 0.0, 0
        for part, features in zip(self.pools, self.features, strict=True):
            along = part.parents @ axis
            straight = _orthonormal(_unit(np.column_stack([along, part.straight_along(axis)])))
            child, free = (
                each - straight @ (straight.T @ each) for each in (part.child, _unit(features))
            )
            free = _orthonormal(free)
            gain = float(np.sum((free.T @ child) ** 2))
            left = max(float(child @ child) - gain, RIDGE * float(part.child @ part.child))
            n_free = free.shape[1]
            spare = len(child) - straight.shape[1] - n_free
            if spare > 0:  # as many features as rows would explain anything
                value += (spare + n_free / 2 - 1) * np.log1p(gain / left)  # Bartlett (1938)
            freedom += n_free
        return value, freedom


def _unit(features: Matrix) -> Matrix:
    return features / np.maximum(np.linalg.norm(features, axis=0), np.finfo(float).tiny)


def _orthonormal(features: Matrix) -> Matrix:
    """Return a basis of what features span, up to single precision where they had unit norm."""
    values, vectors = np.linalg.eigh(features.T @ features)
    kept = values > _SMALLEST_SHARE
    return features @ (vectors[:, kept] / np.sqrt(values[kept]))
