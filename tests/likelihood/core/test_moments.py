from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood.core._moments import Moments, Pools

SIZES = (40, 25, 60)


def environments(seed: int = 0, n: int = 3) -> list[np.ndarray]:
    """Rows of environments of different sizes, means and covariances."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal((size, n)) @ rng.standard_normal((n, n)) + rng.standard_normal(n)
        for size in SIZES
    ]


def test_moments_by_hand():
    moments = Moments.of([np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0, 1.0]] * 3)])
    np.testing.assert_array_equal(moments.sizes, [2, 3])
    np.testing.assert_allclose(moments.means, [[1, 2], [1, 1]])
    np.testing.assert_allclose(moments.covariances[0], [[1, 2], [2, 4]])
    np.testing.assert_allclose(moments.shares, [0.4, 0.6])
    assert (moments.n_samples, moments.n_variables) == (5, 2)


def test_free_means_leave_covariances_alone():
    rows, matrix = environments(), np.random.default_rng(1).standard_normal((3, 3))
    plain, free = Moments.of(rows), Moments.of(rows, free_means=True)
    shifted = Moments.of([each + e for e, each in enumerate(rows)], free_means=True)
    assert not free.means.any()
    np.testing.assert_array_equal(free.covariances, plain.covariances)
    np.testing.assert_allclose(shifted.pooled(free.sizes), free.pooled(free.sizes))
    within = np.tensordot(plain.shares, plain.covariances, 1)
    np.testing.assert_allclose(free.pooled(free.sizes), within)
    found, kept = free.quadratic_moments, plain.quadratic_moments
    assert found is not None
    assert kept is not None
    np.testing.assert_array_equal(found, kept[:, :, 3:, 3:])  # products alone
    assert free.transformed(matrix).free_means


def test_one_variable():
    moments = Moments.of([np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])])
    np.testing.assert_allclose(moments.covariances, [[[1.0]], [[0.0]]])


def test_transformed_moments_are_those_of_transformed_rows():
    matrix = np.random.default_rng(1).standard_normal((3, 3))
    moments = Moments.of(environments()).transformed(matrix)
    direct = Moments.of([rows @ matrix.T for rows in environments()])
    np.testing.assert_allclose(moments.means, direct.means)
    np.testing.assert_allclose(moments.covariances, direct.covariances)


@pytest.mark.parametrize("members", [[0, 1], [1, 2], [0, 1, 2], [2]])
def test_pooled_covariance_is_that_of_the_rows_put_together(members: list[int]):
    rows = environments()
    moments = Moments.of(rows)
    chosen = np.isin(np.arange(3), members)
    together = np.cov(np.vstack([rows[e] for e in members]).T, bias=True)
    np.testing.assert_allclose(moments.pooled(chosen * moments.shares), together)
    # weights need not be normalised, and several mixtures may be asked for at once
    pooled = moments.pooled(np.stack([chosen * moments.sizes, moments.sizes]))
    np.testing.assert_allclose(pooled[0], together)
    np.testing.assert_allclose(pooled[1], np.cov(np.vstack(rows).T, bias=True))


def test_saturated_is_the_best_gaussian_likelihood():
    rows = environments()
    moments = Moments.of(rows)
    total = 0.0
    for x in rows:
        centred = x - x.mean(axis=0)
        covariance = centred.T @ centred / len(x)
        quadratic = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariance), centred)
        total += 0.5 * (np.linalg.slogdet(covariance)[1] + quadratic - 3).sum()
    assert moments.saturated == pytest.approx(total / sum(SIZES))


def test_pools_hold_the_rows_of_their_environments():
    rows = environments()
    pool = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 2]])
    pools = Pools.of(Moments.of(rows), pool)
    assert pools.n_pools == 3
    np.testing.assert_allclose(pools.shares.sum(axis=1), 1)
    for j in range(3):
        for p in range(3):
            members = np.flatnonzero(pool[j] == p)
            share = sum(SIZES[e] for e in members) / sum(SIZES)
            assert pools.shares[j, p] == pytest.approx(share)
            if len(members):
                together = np.vstack([rows[e] for e in members])
                np.testing.assert_allclose(pools.covariances[j, p], np.cov(together.T, bias=True))


def test_empty_pools_weigh_nothing_and_are_finite():
    pools = Pools.of(Moments.of(environments()), np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]))
    np.testing.assert_array_equal(pools.shares[[0, 2], 1], 0)
    assert np.isfinite(pools.covariances).all()
    assert (np.linalg.eigvalsh(pools.covariances) > 0).all()


def test_quadratic_moments_are_the_identity_for_gaussian_rows(rows_of, multi_node):
    population = multi_node(0, 3)
    moments = Moments.of(rows_of(population, [40_000] * 4))
    found = moments.quadratic_moments
    assert found is not None
    assert found.shape == (2, 4, 9, 9)
    np.testing.assert_allclose(found, np.broadcast_to(np.eye(9), found.shape), atol=0.12)
    assert population.moments.quadratic_moments is None


def test_quadratic_moments_follow_a_transformation():
    rng = np.random.default_rng(0)
    rows, matrix = [rng.laplace(size=(500, 2)) for _ in range(2)], rng.standard_normal((2, 2))
    moved = Moments.of(rows).transformed(matrix).quadratic_moments
    direct = Moments.of([each @ matrix.T for each in rows]).quadratic_moments
    assert moved is not None
    assert direct is not None
    np.testing.assert_allclose(moved, direct, atol=1e-8)


def test_quadratic_moments_show_heavy_tails():
    found = Moments.of([np.random.default_rng(0).laplace(size=(50_000, 1))]).quadratic_moments
    assert found is not None
    assert found[:, 0, 1, 1].mean() == pytest.approx(2.5, abs=0.2)  # half of kurtosis less one
