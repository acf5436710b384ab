"""Score matching with causal structure: one small ridge regression for each latent.

The score of latent j, the slope of the log-density of noisy latents in direction j, is a sum of
terms. A term is a product of cubic splines of a few latents, and may be switched off where some
latent is intervened on. Implicit score matching is quadratic in the coefficients, so that they
solve a linear system; latents that are intervened on have coefficients of their own.

Which latents appear together in a term:

=============  ===================================================================================
``"pairs"``    each neighbour (parents, children, parents of children) with the latent itself:
               ``K^2`` features a neighbour; latents two edges away with ``K`` features each
``"sums"``     each neighbour alone: ``K`` features a neighbour
``"tensor"``   all parents with the latent, as in Wu et al. (2026): ``K^(parents + 1)`` features
=============  ===================================================================================

K is the number of basis functions, knots + 2. With F features of a latent the cost is O(N F^2) time
for its normal equations and O(F^3) to solve them; memory is O(N n K + F^2). Terms of P > 2 latents
have a sparse design instead: O(N 4^P) memory, and as much time for each of some dozen products
(`crlearn.scores.structured._equations`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from crlearn.graph import topological_order
from crlearn.scores.structured._equations import (
    Equations,
    SparseEquations,
    refuse_large_design,
    tensor_design,
)
from crlearn.scores.structured._splines import Basis, CubicSplines
from crlearn.scores.structured._terms import (
    Penalty,
    Term,
    is_sparse,
    matched,
    normal_equations,
    penalties_of,
    product_of,
    those_of,
)
from crlearn.tags import stored

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Interactions = Literal["pairs", "sums", "tensor"]
Structure = Literal["graph", "full", "empty", "pool"]


def score_graph(graph: BoolMatrix, structure: Structure) -> BoolMatrix:
    """Return the graph that a score's terms follow: the given one, no edges, or all of its order.

    ``"pool"`` has the given graph; what it leaves out are the targets.
    """
    if structure == "empty":
        return np.zeros_like(graph)
    if structure == "full":
        place = np.argsort(topological_order(graph))
        return place[:, None] < place[None, :]
    return graph


def neighbourly_terms(
    graph: BoolMatrix,
    latent: int,
    is_target: bool,
    *,
    hard: bool = True,
    interactions: Interactions = "pairs",
    dense: bool = False,
) -> tuple[Term, ...]:
    """Return the terms of a latent's score that its neighbours in the graph give rise to.

    A hard intervention cuts a latent off its parents: where it is a target they say nothing of it.
    With `dense`, all other latents have a term of their own: for noise that is not independent.
    """
    parents = _nodes(graph[:, latent]) if not (hard and is_target) else ()
    near = [(k, ()) for k in parents]
    near += [(k, (k,)) for k in _nodes(graph[latent])]
    far = [(k, (p,)) for p in parents for k in _nodes(graph[:, p])]
    far += [(k, (k,)) for p in parents for k in _nodes(graph[p])]
    far += [(k, (child, k)) for child in _nodes(graph[latent]) for k in _nodes(graph[child])]
    married = [(k, (child,)) for child in _nodes(graph[latent]) for k in _nodes(graph[:, child])]
    near += _not_yet(married, near, latent)
    terms = [Term((latent,))]
    for k, gates in near:
        together = (latent, k) if interactions == "pairs" else (k,)
        terms.append(Term(together, unless=gates))
        if gates and not hard:
            terms.append(Term(together, only_if=gates[:1]))
    if not dense:
        far = _not_yet(far, near, latent)
        terms += [Term((k,), unless=gates) for k, gates in far]
    else:
        rest = _not_yet([(k, ()) for k in range(len(graph))], [], latent)
        terms += [Term((k,)) for k, _ in rest]
    return tuple(terms)


def tensor_terms(graph: BoolMatrix, latent: int) -> tuple[Term, ...]:
    """Return the one term of the published score: the latent with all its parents."""
    return (Term((latent, *_nodes(graph[:, latent]))),)


def _not_yet(
    candidates: Sequence[tuple[int, tuple[int, ...]]],
    there: Sequence[tuple[int, tuple[int, ...]]],
    latent: int,
) -> list[tuple[int, tuple[int, ...]]]:
    """Return those latents, each once, that are not there already.

    One that is reached along several paths is never switched off: another path may be open.
    """
    known = {k for k, _ in there} | {latent}
    new: dict[int, tuple[int, ...]] = {}
    for k, gates in candidates:
        if k not in known:
            new[k] = gates if new.get(k, gates) == gates else ()
    return list(new.items())


def _nodes(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.flatnonzero(mask))


@stored("score/structured")
@dataclass(frozen=True, eq=False)
class StructuredScore:
    """A fitted score: call it with rows and what is intervened on in each of them.

    Attributes
    ----------
    splines
        Basis of each latent.
    graph, hard, interactions, dense
        What its terms are made from.
    coefficients
        For each latent, those where it is no target and those where it is one; None where no row
        was of that kind.
    ridges
        What cross-validation chose for each of them.
    """

    splines: CubicSplines
    graph: BoolMatrix
    hard: bool
    interactions: Interactions
    dense: bool
    coefficients: tuple[tuple[Matrix | None, Matrix | None], ...]
    ridges: tuple[tuple[float, float], ...]

    @classmethod
    def fit(
        cls,
        rows: Matrix,
        intervened: BoolMatrix,
        graph: BoolMatrix,
        *,
        splines: CubicSplines,
        hard: bool = True,
        interactions: Interactions = "pairs",
        dense: bool = False,
        ridge: float | None = None,
        penalty: Penalty = "curvature",
        weights: NDArray[np.floating] | None = None,
    ) -> StructuredScore:
        """Match the score to the rows; see the module's text.

        Parameters
        ----------
        rows
            Noisy latents, one column each.
        intervened
            Of the same shape: True where the row's environment intervenes on the latent.
        graph
            ``graph[i, j]`` is True if latent i causes latent j.
        splines
            Basis of each latent.
        hard, interactions, dense
            See `neighbourly_terms`.
        ridge
            Weight of the penalty, relative to the mean over rows; None: two-fold
            cross-validation, for each latent and kind of row.
        penalty
            On the coefficients' ``"curvature"`` (with a small one on their size) or on their
            ``"size"``.
        weights
            One for each row.
        """
        model = cls(splines, graph, hard, interactions, dense, (), ())
        basis, slopes = splines(rows)
        weights = np.ones(len(rows)) if weights is None else weights
        coefficients, ridges = [], []
        for latent in range(rows.shape[1]):
            parts = []
            for kind in (False, True):
                chosen = np.flatnonzero((intervened[:, latent] == kind) & (weights > 0))
                if not len(chosen):
                    parts.append((None, np.nan))
                    continue
                # Halves are told apart for cross-validation only.
                pieces = (chosen,) if ridge is not None else (chosen[0::2], chosen[1::2])
                equations = [
                    model._equations(latent, kind, rows, basis, slopes, intervened, weights, piece)
                    for piece in pieces
                ]
                penalties = penalties_of(model.terms(latent, kind), splines.n_basis, penalty)
                parts.append(matched(equations, penalties, ridge))
            coefficients.append((parts[0][0], parts[1][0]))
            ridges.append((parts[0][1], parts[1][1]))
        return replace(model, coefficients=tuple(coefficients), ridges=tuple(ridges))

    def terms(self, latent: int, is_target: bool) -> tuple[Term, ...]:
        """Return the terms of a latent's score."""
        if self.interactions == "tensor":
            return tensor_terms(self.graph, latent)
        return neighbourly_terms(
            self.graph,
            latent,
            is_target,
            hard=self.hard,
            interactions=self.interactions,
            dense=self.dense,
        )

    def __call__(
        self, rows: Matrix, intervened: BoolMatrix, *, jacobian: bool = False
    ) -> tuple[Matrix, NDArray[np.floating]]:
        """Return the score at each row and its slopes: ``d s_j / d y_j``, or the whole Jacobian."""
        basis, slopes = self.splines(rows)
        n_rows, n = rows.shape
        score = np.zeros((n_rows, n))
        slope = np.zeros((n_rows, n, n) if jacobian else (n_rows, n))
        for latent in range(n):
            for kind in (False, True):
                chosen = np.flatnonzero(intervened[:, latent] == kind)
                if not len(chosen):
                    continue
                theta = self.coefficients[latent][int(kind)]
                if theta is None:
                    raise ValueError(_unseen(latent, kind))
                on = intervened[chosen]
                terms = self.terms(latent, kind)
                if is_sparse(terms):
                    along = terms[0].latents if jacobian else (latent,)
                    score[chosen, latent] = self._design(terms[0], rows[chosen]) @ theta
                    for k in along:
                        place = (chosen, latent, k) if jacobian else (chosen, latent)
                        slope[place] = self._design(terms[0], rows[chosen], k) @ theta
                    continue
                values = those_of(terms, basis, chosen)
                steep = those_of(terms if jacobian else (Term((latent,)),), slopes, chosen)
                for term, block in self._pieces(terms, theta):
                    score[chosen, latent] += product_of(term, block, values, on)
                    for k in set(steep) & set(term.latents):
                        place = (chosen, latent, k) if jacobian else (chosen, latent)
                        slope[place] += product_of(term, block, {**values, k: steep[k]}, on)
        return score, slope

    def _pieces(self, terms: Sequence[Term], theta: Matrix) -> Iterator[tuple[Term, Matrix]]:
        """Yield each term with its coefficients, one axis for each of its latents."""
        start, size = 0, self.splines.n_basis
        for term in terms:
            stop = start + size ** len(term.latents)
            yield term, theta[start:stop].reshape((size,) * len(term.latents))
            start = stop

    def _equations(
        self,
        latent: int,
        kind: bool,
        rows: Matrix,
        basis: Basis,
        slopes: Basis,
        intervened: BoolMatrix,
        weights: NDArray[np.floating],
        chosen: NDArray[np.intp],
    ) -> Equations:
        """Return the normal equations of one latent in some rows of one kind."""
        terms = self.terms(latent, kind)
        if not is_sparse(terms):
            return normal_equations(terms, (latent,), basis, slopes, intervened, weights, chosen)
        weight = weights[chosen]
        refuse_large_design(len(rows), len(terms[0].latents), self.splines.n_basis, latent)
        steep = self._design(terms[0], rows[chosen], latent)
        design = self._design(terms[0], rows[chosen], weight=np.sqrt(weight))
        return SparseEquations(design, steep.T @ weight, float(weight.sum()))

    def _design(
        self,
        term: Term,
        rows: Matrix,
        steep: int | None = None,
        weight: NDArray[np.floating] | None = None,
    ) -> csr_array:
        """Return the features of a term; with the slopes of latent `steep`, their slopes along it.

        `weight` multiplies the rows.
        """
        places, values, slopes = self.splines.local(rows)
        factors = [slopes[k] if k == steep else values[k] for k in term.latents]
        if weight is not None:
            factors[0] = factors[0] * weight[:, None]
        return tensor_design([places[k] for k in term.latents], factors, self.splines.n_basis)


def _unseen(latent: int, kind: bool) -> str:
    what = "intervenes on" if kind else "leaves alone"
    return (
        f"No environment of the fit {what} latent {latent}, so that nothing is known about its "
        "distribution there. Fit with such an environment, or leave these rows out."
    )
