from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Fit
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._local import climb
from crlearn.likelihood.targets import revised_targets
from crlearn.likelihood.targets._revision import row_costs

TARGETS = np.array([[0, 1, 1, 0], [0, 0, 1, 1]])
GRAPH = ((), (0,))


def environments(n_rows: int = 1500) -> list[np.ndarray]:
    """z1 = |z0| + noise; a target has three times the noise and no parents."""
    rng = np.random.default_rng(0)
    rows = []
    for first, second in TARGETS.T:
        z0 = rng.normal(0, 3 if first else 1, n_rows)
        z1 = (1 - second) * np.abs(z0) + rng.normal(0, 1.5 if second else 0.5, n_rows)
        rows.append(np.column_stack([z0, z1 + 0.5 * z0]))
    return rows


UNMIXED = np.array([[1.0, 0.0], [-0.5, 1.0]])


@pytest.mark.parametrize("hard", [True, False])
def test_costs_are_those_of_regressions(hard: bool):
    rng = np.random.default_rng(0)
    features = [np.column_stack([np.ones(40), rng.standard_normal((40, 2))]) for _ in range(4)]
    child = [rng.standard_normal(40) + 3 for _ in range(4)]
    columns = [np.column_stack([f, c]) for f, c in zip(features, child, strict=True)]
    products = np.array([c.T @ c for c in columns])
    rows = np.array([[0, 1, 0, 1], [0, 0, 0, 1]])
    expected = []
    for row in rows.astype(bool):
        total = 0.0
        for members in (~row, row):
            y = np.concatenate([c for c, used in zip(child, members, strict=True) if used])
            given = np.concatenate([f for f, used in zip(features, members, strict=True) if used])
            given = given[:, :1] if hard and members is row else given
            residual = y - given @ np.linalg.lstsq(given, y, rcond=None)[0]
            total += 0.5 * len(y) * np.log(np.mean(residual**2))
        expected.append(total)
    np.testing.assert_allclose(
        row_costs(products, rows, hard), expected, atol=1e-2
    )  # a small ridge


def fitted(model: SelectedModel) -> Fit:
    return climb(model, model.refitted(Fit(UNMIXED, GRAPH, -np.inf), GRAPH))


@pytest.mark.parametrize("wrong", [[[0, 1, 0, 0], [0, 0, 1, 1]], [[0, 1, 1, 0], [0, 1, 0, 0]]])
def test_wrong_targets_are_mended(wrong: list[list[int]]):
    model = SelectedModel(environments(), np.array(wrong), hard=True)
    start = fitted(model)
    mended, found = revised_targets(model, start)
    assert (mended.pool == TARGETS).all()
    assert found.graph == GRAPH
    assert found.score > start.score + 5
    assert (found.pool == TARGETS).all()


def test_right_targets_are_left_alone():
    model = SelectedModel(environments(), TARGETS, hard=True)
    found = fitted(model)
    assert revised_targets(model, found) == (model, found)
