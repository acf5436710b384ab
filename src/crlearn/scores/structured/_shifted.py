"""Scores of latents to which known doses are added: one mechanism for all doses.

A dose a adds a s to a latent: z = f(parents) + a s + noise. What is left after the dose,
z - a s, depends on the parents as it does everywhere, while effects depend on z itself. The score
of a latent therefore has each latent twice, as it is and without its dose. In terms with its
parents the latent comes without its dose, in terms with an effect the effect does. There is one set
of coefficients for all rows, whatever their doses, so that doses that no row of the fit had have a
score, too.

Cost: as that of `StructuredScore`, with two terms for the latent itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.scores.structured._splines import Basis, CubicSplines
from crlearn.scores.structured._terms import (
    Term,
    matched,
    normal_equations,
    penalties_of,
    product_of,
    those_of,
)
from crlearn.tags import stored

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]


def shifted_terms(graph: BoolMatrix, latent: int, *, dense: bool = False) -> tuple[Term, ...]:
    """Return the terms of a latent's score.

    Column k of the basis is latent k, column n + k the same without its dose. With `dense` all
    latents have a term: for noise that is not independent.
    """
    n = len(graph)
    parents, children = np.flatnonzero(graph[:, latent]), np.flatnonzero(graph[latent])
    married = np.flatnonzero(graph[:, children].any(axis=1))
    pairs = [(n + latent, k) for k in parents]
    pairs += [(latent, n + k) for k in children]
    pairs += [(latent, k) for k in married if k != latent and k not in parents]
    near = {latent, *parents, *children, *married}
    around = [*parents, *children]
    far = np.arange(n) if dense else np.flatnonzero((graph | graph.T)[around].any(axis=0))
    alone = [latent, n + latent] + [k for k in far if k not in near]
    return tuple(Term(tuple(map(int, columns))) for columns in [*((k,) for k in alone), *pairs])


@stored("score/shifted")
@dataclass(frozen=True, eq=False)
class ShiftedScore:
    """A fitted score: call it with rows and the doses of each of them.

    Attributes
    ----------
    splines
        Basis of each latent, and of each without its dose.
    graph, dense
        What its terms are made from.
    shift
        What a dose of one of each latent adds to the columns of the rows.
    coefficients, ridges
        For each latent; ridges are what cross-validation chose.
    """

    splines: CubicSplines
    graph: BoolMatrix
    dense: bool
    shift: Matrix
    coefficients: tuple[Matrix, ...]
    ridges: tuple[float, ...]

    @classmethod
    def fit(
        cls,
        rows: Matrix,
        doses: Matrix,
        graph: BoolMatrix,
        shift: Matrix,
        *,
        n_knots: int,
        dense: bool = False,
        ridge: float | None = None,
        weights: NDArray[np.floating] | None = None,
    ) -> ShiftedScore:
        """Match the score to the rows; see the module's text.

        Parameters
        ----------
        rows, doses
            Noisy latents, one column each, and the doses that were added to them.
        graph
            ``graph[i, j]`` is True if latent i causes latent j.
        shift
            ``shift[j]`` is what a dose of one of latent j adds to the columns of the rows.
        n_knots
            Of the splines.
        dense, ridge, weights
            See `StructuredScore.fit`.
        """
        splines = CubicSplines.spanning(np.hstack([rows, rows - doses @ shift]), n_knots)
        model = cls(splines, graph, dense, shift, (), ())
        basis, slopes = model._basis(rows, doses)
        weights = np.ones(len(rows)) if weights is None else weights
        chosen = np.flatnonzero(weights > 0)
        pieces = (chosen,) if ridge is not None else (chosen[0::2], chosen[1::2])
        n, found = rows.shape[1], []
        for latent in range(n):
            terms = model.terms(latent)
            columns = latent, n + latent
            nothing = np.zeros(rows.shape, dtype=bool)
            equations = [
                normal_equations(terms, columns, basis, slopes, nothing, weights, piece)
                for piece in pieces
            ]
            penalties = penalties_of(terms, splines.n_basis, "curvature")
            found.append(matched(equations, penalties, ridge))
        coefficients, ridges = zip(*found, strict=True)
        return replace(model, coefficients=coefficients, ridges=ridges)

    def terms(self, latent: int) -> tuple[Term, ...]:
        """Return the terms of a latent's score."""
        return shifted_terms(self.graph, latent, dense=self.dense)

    def __call__(
        self, rows: Matrix, doses: Matrix, *, jacobian: bool = False
    ) -> tuple[Matrix, NDArray[np.floating]]:
        """Return the score at each row and its slopes: ``d s_j / d y_j``, or the whole Jacobian."""
        basis, slopes = self._basis(rows, np.asarray(doses, dtype=float))
        n_rows, n = rows.shape
        everywhere, nothing = np.arange(n_rows), np.zeros(rows.shape, dtype=bool)
        score, slope = np.zeros((n_rows, n)), np.zeros((n_rows, n, n))
        size = self.splines.n_basis
        for latent, theta in enumerate(self.coefficients):
            terms, start = self.terms(latent), 0
            values = those_of(terms, basis, everywhere)
            for term in terms:
                stop = start + size ** len(term.latents)
                block = theta[start:stop].reshape((size,) * len(term.latents))
                score[:, latent] += product_of(term, block, values, nothing)
                for k in term.latents:
                    if jacobian or k % n == latent:
                        moved = {**values, k: slopes[k]}
                        slope[:, latent, k % n] += product_of(term, block, moved, nothing)
                start = stop
        return score, slope if jacobian else np.einsum("ijj->ij", slope)

    def _basis(self, rows: Matrix, doses: Matrix) -> tuple[Basis, Basis]:
        return self.splines(np.hstack([rows, rows - doses @ self.shift]))
