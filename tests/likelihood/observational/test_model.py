"""The evidence of a structure: zero for a Gaussian, best near the truth, whatever the units."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from crlearn.likelihood.observational._model import Structure, complete, unit_rows

pytestmark = pytest.mark.usefixtures("one_thread")

Matrix = NDArray[np.floating]
LINE = ((), (0,), (1,))


def _line(n_rows: int = 1000) -> tuple[Matrix, Matrix, Matrix]:
    """Whitened rows of a line of three latents with squares, the encoder, and the noises."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n_rows, 3)) * [1.0, 0.5, 0.7]
    Z = noise.copy()
    for j in (1, 2):
        Z[:, j] += 0.7 * (Z[:, j - 1] ** 2 - 1)
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / n_rows)).T
    return y, np.linalg.lstsq(y, Z, rcond=None)[0].T, noise


def test_a_gaussian_without_edges_has_zero() -> None:
    y, *_ = _line()
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    assert Structure.start(rotation, ((),) * 3).evidence(y) == pytest.approx(0, abs=1e-8)


def test_complete() -> None:
    assert complete(3) == ((), (0,), (0, 1))


def test_rows_have_length_one() -> None:
    H = unit_rows(np.array([[3.0, 4.0], [0.0, 2.0]]))
    assert np.allclose(H, [[0.6, 0.8], [0, 1]])


def test_the_fit_finds_the_truth_again_from_nearby() -> None:
    y, H, noise = _line()
    rng = np.random.default_rng(2)
    start = Structure.start(H + 0.1 * rng.standard_normal((3, 3)), LINE)
    fitted = start.fitted(y, max_steps=100)
    assert fitted.evidence(y) < start.evidence(y) - 10
    for j in range(3):
        assert abs(np.corrcoef(fitted.noises(y)[:, j], noise[:, j])[0, 1]) > 0.99


def test_the_complete_graph_is_as_good_as_the_true_one() -> None:
    y, H, _ = _line()
    sparse = Structure.start(H, LINE).fitted(y, max_steps=100).evidence(y)
    dense = Structure.start(H, complete(3)).fitted(y, max_steps=100).evidence(y)
    assert dense == pytest.approx(sparse, abs=6)


def test_useless_units_are_left_out() -> None:
    y, H, _ = _line()
    structure = Structure.start(H, complete(3), units=True)
    assert structure.shapes[2].n_units > 0
    assert structure.shapes[1].n_units == 0
    kept = structure.fitted(y, max_steps=40).only_useful_units(y)
    assert all(shape.n_units == 0 for shape in kept.shapes)


def test_the_objective_is_the_evidence_where_nothing_has_units() -> None:
    y, H, _ = _line()
    structure = Structure.start(H, complete(3))
    assert structure.objective(y) == pytest.approx(structure.evidence(y))


def _network(n_rows: int = 800) -> tuple[Matrix, Matrix]:
    """Whitened rows of two causes and their effect, a network of them, and the encoder."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((n_rows, 3)) * [1.0, 1.0, 0.2]
    hidden = np.tanh(Z[:, :2] @ rng.standard_normal((2, 8)) + rng.standard_normal(8))
    Z[:, 2] += hidden @ rng.standard_normal(8)
    Z -= Z.mean(axis=0)
    y = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / n_rows)).T
    return y, np.linalg.lstsq(y, Z, rcond=None)[0].T


def test_units_from_other_starts_are_taken_where_they_fit_better() -> None:
    y, H = _network()
    poor = Structure.start(H, ((), (), (0, 1)), units=True)
    better = poor.with_better_units(y)
    assert better.evidence(y) < poor.evidence(y) - 10
    assert better.shapes[0] is poor.shapes[0]
    again = better.with_better_units(y)
    assert again.shapes[2] is better.shapes[2]
