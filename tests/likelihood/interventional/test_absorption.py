from __future__ import annotations

import numpy as np

from crlearn.likelihood import Fit
from crlearn.likelihood.interventional._absorption import absorbed, turned, without_stand_ins
from crlearn.likelihood.nodes._selected import SelectedModel

# Latent 0 alone is intervened on.
POOL = np.array([[0, 1], [0, 0], [0, 0]])


def rows_of(effect: float = 0.0) -> list[np.ndarray]:
    """z1 with an effect of the square of z0, z2 with one of the length of z1."""
    rng = np.random.default_rng(0)
    environments = []
    for scale in (1.0, 0.5):
        a = scale * rng.standard_normal(3000)
        b = effect * a**2 + rng.standard_normal(3000)
        c = np.abs(b) + 0.5 * rng.standard_normal(3000)
        environments.append(np.column_stack([a, b, c]))
    return environments


def test_a_linear_effect_goes_into_the_latent():
    """With z1 + z0 in place of z1, z0 has an effect on it, and both have one on z2."""
    rows = rows_of()
    model = SelectedModel(rows, POOL, hard=True)
    H = np.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    mixed = model.fitted(H, ((), (0,), (1,)), 0)
    found = absorbed(model, rows, mixed)
    assert found.graph == ((), (), (1,))
    assert found.score > mixed.score
    z1 = found.H[1] / found.H[1, 1]
    np.testing.assert_allclose(z1[[0, 2]], 0, atol=0.05)


def test_effects_that_are_bent_stay():
    rows = rows_of(effect=0.5)
    model = SelectedModel(rows, POOL, hard=True)
    fit = model.fitted(np.eye(3), ((), (0,), (1,)))
    assert absorbed(model, rows, fit) is fit


def test_linear_effects_on_latents_that_are_intervened_on_stay():
    rows = [each[:, ::-1] for each in rows_of()]  # |z1| -> z0, and z2 alone
    rows = [np.column_stack([0.7 * z[:, 1] + z[:, 0], z[:, 1:]]) for z in rows]
    model = SelectedModel(rows, POOL, hard=True)
    fit = model.fitted(np.eye(3), ((1,), (), ()))
    assert absorbed(model, rows, fit) is fit


def test_turns_leave_what_is_intervened_on():
    fit = Fit(np.diag([1.0, 2.0, 3.0]), ((), (), ()), 0.0, pool=POOL)
    found = list(turned(fit))
    assert len(found) > 1
    for H in found:
        np.testing.assert_array_equal(H[0], fit.H[0])
        np.testing.assert_allclose(np.linalg.det(H[1:, 1:]) ** 2, 36)
        assert np.abs(H[1, 2]) > 1e-3
    again = list(turned(fit))
    np.testing.assert_array_equal(found, again)


def test_one_latent_has_nothing_to_be_turned_into():
    pool = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert not list(turned(Fit(np.eye(3), ((), (), ()), 0.0, pool=pool)))


def test_an_effect_of_two_that_is_one_of_their_combination_is_one_of_one():
    """With z1 + 2 z0 in place of z1, what has an effect on z2 is a combination with z0."""
    rows = rows_of(effect=0.5)
    model = SelectedModel(rows, POOL, hard=True)
    mixed = np.array([[1.0, 0, 0], [2, 1, 0], [0, 0, 1]])
    start = model.fitted(mixed, ((), (0,), (0, 1)))
    found = without_stand_ins(model, rows, start)
    assert found.graph == ((), (0,), (1,))
    assert found.score > start.score
    assert abs(found.H[1, 0] / found.H[1, 1]) < 0.1


def test_parents_that_no_combination_stands_for_stay():
    """The length of z1 and a bend of z0 are no function of one combination."""
    rows = [np.column_stack([z[:, :2], z[:, 2] + np.abs(z[:, 0])]) for z in rows_of(effect=0.5)]
    model = SelectedModel(rows, POOL, hard=True)
    fit = model.fitted(np.eye(3), ((), (0,), (0, 1)))
    assert without_stand_ins(model, rows, fit) is fit
