from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.scores import CubicSplines
from crlearn.scores.structured._terms import (
    Term,
    features_of,
    normal_equations,
    penalties_of,
    product_of,
    those_of,
)


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(0).standard_normal((200, 3))


def basis_of(rows: Any) -> Any:
    return CubicSplines.spanning(rows, 4)(rows)


def test_terms_are_off_where_their_latents_are_intervened_on(rows: Any):
    intervened = np.random.default_rng(1).random(rows.shape) < 0.5
    assert Term((0, 1)).gate(intervened) is None
    unless: Any = Term((0, 1), unless=(1,)).gate(intervened)
    np.testing.assert_array_equal(unless, ~intervened[:, 1])
    only: Any = Term((0, 1), only_if=(2,)).gate(intervened)
    np.testing.assert_array_equal(only, intervened[:, 2])


def test_products_are_those_of_the_features(rows: Any):
    basis, _ = basis_of(rows)
    values = those_of([Term((0, 2))], basis, np.arange(len(rows)))
    off = np.zeros(rows.shape, dtype=bool)
    block = np.random.default_rng(2).standard_normal((6, 6))
    features = features_of(Term((0, 2)), values, off)
    np.testing.assert_allclose(
        product_of(Term((0, 2)), block, values, off), features @ block.ravel()
    )


def test_slopes_are_those_of_all_columns_that_move_with_the_latent(rows: Any):
    """A latent that stands in two columns: moved by a little, both move."""
    twice = np.hstack([rows, rows[:, :1] - 1.0])
    splines = CubicSplines.spanning(twice, 4)
    terms = [Term((0,)), Term((3, 1)), Term((1,))]
    off, every = np.zeros(rows.shape, dtype=bool), np.arange(len(rows))
    equations = normal_equations(terms, (0, 3), *splines(twice), off, np.ones(len(rows)), every)

    def total(step: float) -> Any:
        values = those_of(terms, splines(twice + step * np.array([1, 0, 0, 1]))[0], every)
        return np.concatenate([features_of(term, values, off).sum(axis=0) for term in terms])

    numeric = (total(1e-6) - total(-1e-6)) / 2e-6
    np.testing.assert_allclose(equations.slopes, numeric, atol=1e-4)


def test_straight_lines_are_hardly_penalised():
    penalty = penalties_of([Term((0,))], 6, "curvature")(1.0)
    line, bent = np.arange(6.0), np.arange(6.0) ** 2
    assert line @ penalty @ line < 1e-2 < bent @ penalty @ bent
    np.testing.assert_array_equal(penalties_of([Term((0,))], 6, "size")(2.0), 2 * np.eye(6))
