from __future__ import annotations

import numpy as np

from crlearn.published.umni._combinations import (
    RankCuts,
    RankTests,
    Samples,
    beyond,
    combined,
    compressed,
)


def samples_in(directions: list[list[list[float]]], n_rows: int = 400) -> Samples:
    """Differences that spread over given directions, one list for each environment."""
    rng = np.random.default_rng(0)
    differences = [rng.normal(size=(n_rows, len(spanned))) @ spanned for spanned in directions]
    return Samples(np.array(differences)[None], ())


SPANS = [[[1.0, 0, 0]], [[1.0, 0, 0], [0, 1, 0]], [[0, 0, 1.0]]]


def noisy(samples: Samples, n_halves: int = 20, sd: float = 0.05) -> Samples:
    """The same with noise, and with halves."""
    rng = np.random.default_rng(1)
    _, m, n_rows, n = samples.differences.shape
    wave = np.sin(np.arange(n_rows))[:, None]
    whole = samples.differences + sd * rng.normal(size=(1, m, 1, n)) * wave
    halves = whole + sd * rng.normal(size=(n_halves, m, 1, n)) * wave
    return Samples(np.concatenate([whole, halves]), ())


def test_moments_of_combinations():
    samples = samples_in(SPANS)
    combination = np.array([2, -1, 1])
    direct = np.tensordot(samples.differences[0], combination, ((0,), (0,)))
    found = combined(samples.cross_moments[0], combination[None])[0]
    np.testing.assert_allclose(found, direct.T @ direct / len(direct))


def test_fewer_rows_have_the_same_moments():
    differences = noisy(samples_in(SPANS), n_halves=2).differences
    few = compressed(differences)
    assert few.shape[2] < differences.shape[2]
    flat, few_flat = (d.transpose(2, 0, 1, 3).reshape(d.shape[2], -1) for d in (differences, few))
    np.testing.assert_allclose(
        few_flat.T @ few_flat / len(few_flat), flat.T @ flat / len(flat), atol=1e-10
    )


def test_beyond_known_rows():
    np.testing.assert_allclose(beyond(np.zeros((0, 2))), np.eye(2))
    np.testing.assert_allclose(beyond(np.array([[3.0, 0.0]])), [[0, 0], [0, 1]], atol=1e-12)


COMBINATIONS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]])


def test_cuts_count_directions():
    cuts = RankCuts(samples_in(SPANS), cut=0.05)
    nothing = cuts.excess(COMBINATIONS, np.zeros((1, 0, 3)))
    np.testing.assert_array_equal(nothing <= 1, [True, False, True, False])
    first = cuts.excess(COMBINATIONS, np.array([[[1.0, 0, 0]]]))
    np.testing.assert_array_equal(first <= 1, [False, True, True, True])
    assert first[0] == np.inf
    assert (
        RankCuts(samples_in(SPANS), cut=100.0).excess(COMBINATIONS, np.zeros((1, 0, 3))).min() > 1
    )


def test_tests_count_directions_in_noise():
    tests = RankTests(noisy(samples_in(SPANS)))
    nothing = tests.excess(COMBINATIONS, np.zeros((21, 0, 3)))
    np.testing.assert_array_equal(nothing <= 1, [True, False, True, False])
    known = np.repeat([[[1.0, 0, 0]]], 21, axis=0)
    first = tests.excess(COMBINATIONS, known)
    np.testing.assert_array_equal(first <= 1, [False, True, True, True])
    assert first[0] == np.inf


def test_two_equally_strong_directions_are_two():
    # Halves must not jump from the one to the other: that would look like noise.
    tests = RankTests(noisy(samples_in([[[1.0, 0, 0], [0, 1, 0]]])))
    assert tests.excess(np.array([[1]]), np.zeros((21, 0, 3)))[0] > 5
