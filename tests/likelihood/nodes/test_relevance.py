"""The evidence of one latent: exact derivatives, exact values, groups that vanish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood.nodes._relevance import (
    MOST_LOG_PRECISION,
    N_HIDDEN,
    Shape,
    curvature_along,
    functions_of,
    gradient,
    linear_effects,
    loss_without,
    occam,
    refit,
    regress,
    slope,
    steps_of_unit_curvature,
)

Matrix = NDArray[np.floating]


def _rows(n_rows: int = 300, n_parents: int = 2) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    parents = rng.standard_normal((n_rows, n_parents))
    child = np.tanh(parents.sum(axis=1)) + 0.3 * rng.standard_normal(n_rows)
    return child, parents


@pytest.mark.parametrize(
    ("n_parents", "hidden_units"), [(0, False), (1, False), (2, False), (2, True), (3, True)]
)
def test_derivatives(n_parents: int, hidden_units: bool) -> None:
    child, parents = _rows(n_parents=n_parents)
    shape = Shape.start(n_parents, hidden_units=hidden_units)
    point = slope(child, parents, shape)
    rng = np.random.default_rng(1)
    by = (
        rng.standard_normal(child.shape),
        rng.standard_normal(parents.shape),
        rng.standard_normal(point.by_shape.shape),
    )

    def value(step: float) -> float:
        moved = shape.filled(shape.flat() + step * by[2])
        return slope(child + step * by[0], parents + step * by[1], moved).value

    expected = (value(1e-5) - value(-1e-5)) / 2e-5
    centred = point.by_child - point.by_child.mean()
    found = centred @ by[0] + (point.by_parents * by[1]).sum() + point.by_shape @ by[2]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("hidden_units", [False, True])
def test_gradient_of_the_prediction(hidden_units: bool) -> None:
    child, parents = _rows()
    shape = Shape.start(2, hidden_units=hidden_units)
    fit = regress(child, parents, shape)
    found = gradient(fit, parents, shape)
    for k in range(2):
        step = 1e-5 * (np.arange(2) == k)
        up, down = (functions_of(parents + by, shape).values for by in (step, -step))
        assert np.allclose(found[:, k], (up - down) @ fit.coefficients / 2e-5, atol=1e-6)


def test_a_parent_with_a_linear_effect_is_no_loss() -> None:
    rng = np.random.default_rng(0)
    parents = rng.standard_normal((2000, 2))
    child = np.sin(2 * parents[:, 0]) + parents[:, 1] + 0.3 * rng.standard_normal(2000)
    _, shape = refit(child, parents, Shape.start(2), max_steps=60)
    fit = regress(child, parents, shape)
    assert loss_without(fit, parents, shape, 0) > 500
    assert loss_without(fit, parents, shape, 1) < 5


def test_a_parent_that_only_mends_another_is_no_loss() -> None:
    rng = np.random.default_rng(0)
    parents = rng.standard_normal((2000, 2))
    # What is seen as parent 0 has a little too much of parent 1 in it.
    true = parents[:, 0] - 0.02 * parents[:, 1]
    child = true**2 + 0.01 * rng.standard_normal(2000)
    _, shape = refit(child, parents, Shape.start(2), max_steps=100)
    fit = regress(child, parents, shape)
    alone, _ = refit(child, parents[:, :1], Shape.start(1), max_steps=100)
    assert alone - fit.value > 500  # at this encoder the edge is needed
    assert loss_without(fit, parents, shape, 1) < 20


def test_linear_effects_beside_others() -> None:
    rng = np.random.default_rng(0)
    cause = rng.standard_normal((500, 1))
    other = cause + cause**2 + rng.standard_normal((500, 1))
    child = 0.7 * other[:, 0] + cause[:, 0] ** 2
    found = linear_effects(child, other, np.column_stack([cause, cause**2]))
    assert found == pytest.approx([0.7], abs=1e-3)


def test_evidence_is_the_marginal_density_of_the_child() -> None:
    child, parents = _rows(n_rows=60)
    shape = Shape.start(2)
    fit = regress(child, parents, shape)
    functions = functions_of(parents, shape).values
    functions = functions - functions.mean(axis=0)
    groups = np.concatenate([np.arange(5), np.repeat([5, 6], 5)])
    prior = 1 / np.exp(shape.flat())[groups]
    covariance = np.eye(60) + (functions * prior) @ functions.T
    centred = child - child.mean()
    spread = centred @ np.linalg.solve(covariance, centred)
    expected = 30 * np.log(spread / 60) + 0.5 * np.linalg.slogdet(covariance)[1]
    assert fit.value == pytest.approx(expected, rel=1e-9)


def test_a_parent_without_effect_costs_nothing() -> None:
    rng = np.random.default_rng(0)
    parents = rng.standard_normal((1000, 2))
    child = parents[:, 0] ** 2 + rng.standard_normal(1000)
    alone, _ = refit(child, parents[:, :1], Shape.start(1), max_steps=100)
    both, shape = refit(child, parents, Shape.start(2), max_steps=100)
    assert both == pytest.approx(alone, abs=4)  # knots differ
    assert shape.linear[1] > MOST_LOG_PRECISION - 8
    assert shape.products[1, 1] > MOST_LOG_PRECISION - 8
    assert shape.products[0, 0] < 3


def test_hidden_units_pay_for_what_sums_cannot_say_and_only_then() -> None:
    rng = np.random.default_rng(0)
    parents = rng.standard_normal((2000, 2))
    noise = 0.3 * rng.standard_normal(2000)
    for child, wanted in (
        (np.tanh(3 * parents[:, 0] * parents[:, 1] + 2 * parents[:, 0]) + noise, True),
        (np.sin(parents[:, 0]) + np.sin(parents[:, 1]) + noise, False),
    ):
        without, _ = refit(child, parents, Shape.start(2), max_steps=60)
        richer, _ = refit(child, parents, Shape.start(2, hidden_units=True), max_steps=200)
        assert (richer < without) == wanted


def test_occam_costs_nothing_without_hidden_units() -> None:
    child, parents = _rows()
    plain = Shape.start(2)
    assert occam(regress(child, parents, plain), parents, plain) == 0


def test_what_more_rows_determine_better_costs_more() -> None:
    """Laplace's method: a volume of directions that shrinks with the number of rows."""
    shape = Shape.start(2, hidden_units=True)
    few, many = (
        occam(regress(child, parents, shape), parents, shape)
        for child, parents in (_rows(n_rows=300), _rows(n_rows=3000))
    )
    assert few < many < few + 0.5 * shape.n_weights * np.log(10)


def test_shapes_go_flat_and_back() -> None:
    shape = Shape.start(3, hidden_units=True)
    flat = shape.flat() + np.arange(len(shape.flat()))
    assert np.array_equal(shape.filled(flat).flat(), flat)


def test_hidden_units_have_other_starts() -> None:
    shape = Shape.start(3, hidden_units=True)
    starts = [shape, *shape.with_other_hidden_units()]
    assert len({start.directions.tobytes() for start in starts}) == 4
    assert {start.directions.shape for start in starts} == {shape.directions.shape}


def test_hidden_units_come_and_go() -> None:
    plain = Shape.start(2)
    rich = plain.with_hidden_units()
    assert (plain.n_hidden, rich.n_hidden) == (0, N_HIDDEN)
    assert rich.n_weights == N_HIDDEN * 3
    assert np.array_equal(rich.flat(), Shape.start(2, hidden_units=True).flat())
    assert np.array_equal(rich.without_hidden_units().flat(), plain.flat())
    assert Shape.start(1).with_hidden_units().n_hidden == 0  # hinges say it all of one parent


def test_parents_come_and_go() -> None:
    shape = Shape.start(3, hidden_units=True)
    assert shape.without(1).n_parents == 2
    assert shape.without(1).without(0).n_hidden == 0
    again = shape.without(1).with_parent(1)
    assert np.allclose(again.directions[:, [0, 2]], shape.directions[:, [0, 2]])


def _evidence(child: Matrix, parents: Matrix, shape: Shape) -> float:
    fit = regress(child, parents, shape)
    return fit.value + occam(fit, parents, shape)


def test_the_evidence_is_that_of_every_equivalent_description() -> None:
    child, parents = _rows(n_parents=3)
    shape = Shape.start(3, hidden_units=True)
    rng = np.random.default_rng(1)
    shape = shape.filled(shape.flat() + 0.3 * rng.standard_normal(len(shape.flat())))
    expected = pytest.approx(_evidence(child, parents, shape))

    order = np.array([2, 0, 1])
    assert _evidence(child, parents[:, order], shape.reordered(order)) == expected
    rows = rng.permutation(len(child))
    assert _evidence(child[rows], parents[rows], shape) == expected
    assert _evidence(3 - child, parents, shape) == expected
    mirror = np.array([1.0, -1.0, 1.0])
    mirrored = replace(shape, directions=shape.directions * mirror)
    assert _evidence(child, parents * mirror, mirrored) == expected
    signs = np.where(np.arange(shape.n_hidden) % 2, -1.0, 1.0)
    negated = replace(
        shape, directions=shape.directions * signs[:, None], thresholds=shape.thresholds * signs
    )
    assert _evidence(child, parents, negated) == expected
    assert _evidence(child, parents, mirrored) != expected


@pytest.mark.parametrize("hidden_units", [False, True])
def test_units_of_the_child_are_its_log_volume(hidden_units: bool) -> None:
    """Coefficients have their prior in units of the noise."""
    child, parents = _rows()
    shape = Shape.start(2, hidden_units=hidden_units)
    larger = _evidence(5 * child, parents, shape)
    assert larger - _evidence(child, parents, shape) == pytest.approx(len(child) * np.log(5))


def test_steps_make_any_curvature_one() -> None:
    mixed = np.random.default_rng(0).standard_normal((4, 4)) * [1e6, 1.0, 1e-3, 10.0]
    curvature = mixed.T @ mixed
    steps = steps_of_unit_curvature(curvature)
    assert np.allclose(steps.T @ curvature @ steps, np.eye(4), atol=1e-5)


def test_parents_that_are_nearly_one_another_are_regressed_on() -> None:
    child, parents = _rows(n_parents=1)
    alike = np.column_stack([parents, parents * (1 + 1e-13)]) * 1e6
    flat = replace(
        Shape.start(2),
        linear=np.full(2, -MOST_LOG_PRECISION),
        products=np.full((2, 2), -MOST_LOG_PRECISION),
    )
    found = regress(child, alike, flat)
    assert np.isfinite(found.value)
    assert np.all(np.isfinite(found.coefficients))


def test_curvature_is_that_of_the_penalised_squares() -> None:
    child, parents = _rows()
    step = np.random.default_rng(1).standard_normal(len(child)) + parents.sum(axis=1)

    def spread(child: Matrix) -> float:
        return regress(child, parents, Shape.start(2)).spread

    curvature = (spread(child + step) + spread(child - step)) / 2 - spread(child)
    found = curvature_along(step[:, None], regress(child, parents, Shape.start(2)))
    assert found[0, 0] == pytest.approx(curvature * len(child) / spread(child))


def test_what_coefficients_leave_is_not_lost_in_rounding() -> None:
    child, parents = _rows()
    fit = regress(child, parents, Shape.start(2))
    left = np.random.default_rng(1).standard_normal((len(child), 2))
    left -= left.mean(axis=0)
    functions = fit.functions.values
    left -= functions @ np.linalg.lstsq(functions, left, rcond=None)[0]
    explained = functions @ np.linalg.lstsq(functions, parents * 1e9, rcond=None)[0]
    free = replace(
        fit,
        covariance=np.linalg.pinv(functions.T @ functions),
        precisions=np.zeros(functions.shape[1]),
    )
    found = curvature_along(explained + left, free)
    expected = left.T @ left * (len(child) / fit.spread)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * expected.max())


def test_curvature_with_rounding_is_factored() -> None:
    column = np.random.default_rng(0).standard_normal(4)
    curvature = np.outer(column, column) * (1 - 1e-7 * np.eye(4))
    assert np.all(np.isfinite(steps_of_unit_curvature(curvature)))
