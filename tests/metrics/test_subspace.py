import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LinearRegression

from crlearn.metrics import (
    block_recovery,
    correlation_matrix,
    layer_recovery,
    mac,
    mcc,
    r2,
    r2_across_blocks,
    r2_within_blocks,
)

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 5)

# Orthogonal, centred columns.
BASE = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=float)


def samples(seed, n_latents, n_recovered, n_samples=40):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n_samples, n_latents))
    noise = rng.normal(size=(n_samples, n_recovered))
    return Z, Z @ rng.normal(size=(n_latents, n_recovered)) + noise, rng


def random_groups(rng, n):
    """A random partition of the columns."""
    cuts = np.flatnonzero(rng.random(n - 1) < 0.5) + 1
    return np.split(rng.permutation(n), cuts)


def mixed_inside(Z, groups, rng):
    """An invertible affine map inside each group."""
    mixed = np.empty_like(Z)
    for group in groups:
        matrix = np.linalg.qr(rng.normal(size=(len(group), len(group)))).Q
        mixed[:, group] = Z[:, group] @ (matrix * rng.uniform(0.5, 2, len(group)))
    return mixed + rng.normal(size=Z.shape[1])


@given(seeds, widths, widths)
def test_r2_is_that_of_a_regression(seed, n_latents, n_recovered):
    Z, Z_hat, rng = samples(seed, n_latents, n_recovered)
    expected = LinearRegression().fit(Z_hat, Z).score(Z_hat, Z)
    assert r2(Z, Z_hat) == pytest.approx(expected)
    assert 0 <= r2(Z, Z_hat) <= 1
    affine = Z_hat @ rng.normal(size=(n_recovered, n_recovered)) + rng.normal(size=n_recovered)
    assert r2(Z, affine) == pytest.approx(expected, rel=1e-6)


@given(seeds, widths)
def test_r2_of_itself_is_one(seed, n_latents):
    Z, _, rng = samples(seed, n_latents, 1)
    assert r2(Z, Z) == pytest.approx(1)
    assert r2(Z, Z * 10.0 ** rng.uniform(-12, 12, n_latents)) == pytest.approx(1)


def test_r2_by_hand():
    Z_hat = 3 * BASE[:, [0]] + 4 * BASE[:, [1]] + 5
    assert r2(BASE, Z_hat) == pytest.approx((0.36 + 0.64 + 0) / 3)


def test_r2_counts_dependent_and_constant_columns_once_and_not_at_all():
    Z_hat = np.concatenate([BASE[:, [0]], 2 * BASE[:, [0]], np.full((4, 1), 3.0)], axis=1)
    assert r2(BASE, Z_hat) == pytest.approx(1 / 3)
    assert r2(np.full((4, 1), 3.0), BASE) == 0


@given(seeds, widths)
def test_layers_of_one_are_mac_and_blocks_of_one_are_mcc(seed, n):
    Z, Z_hat, _ = samples(seed, n, n)
    ones = [[i] for i in range(n)]
    assert layer_recovery(Z, Z_hat, ones) == pytest.approx(mac(Z, Z_hat))
    assert layer_recovery(Z, Z_hat, ones, ones) == pytest.approx(mac(Z, Z_hat))
    assert block_recovery(Z, Z_hat, ones) == pytest.approx(mac(Z, Z_hat))
    assert block_recovery(Z, Z_hat, ones, ones) == pytest.approx(mcc(Z, Z_hat))
    assert block_recovery(Z, Z_hat, blocks_hat=ones) == pytest.approx(mcc(Z, Z_hat))


@given(seeds, widths)
def test_perfect_up_to_groups(seed, n):
    Z, _, rng = samples(seed, n, n)
    groups = random_groups(rng, n)
    mixed = mixed_inside(Z, groups, rng)
    shuffled = [groups[k] for k in rng.permutation(len(groups))]
    assert layer_recovery(Z, mixed, groups) == pytest.approx(1)
    assert block_recovery(Z, mixed, groups) == pytest.approx(1)
    assert block_recovery(Z, mixed, groups, shuffled) == pytest.approx(1)
    assert block_recovery(Z, mixed, blocks_hat=shuffled) == pytest.approx(1)


@given(seeds, widths)
def test_bounds_and_invariance_inside_groups(seed, n):
    Z, Z_hat, rng = samples(seed, n, n)
    groups, groups_hat = random_groups(rng, n), random_groups(rng, n)
    Z_mixed, Z_hat_mixed = mixed_inside(Z, groups, rng), mixed_inside(Z_hat, groups_hat, rng)
    for recovery in (layer_recovery, block_recovery):
        score = recovery(Z, Z_hat, groups, groups_hat)
        assert 0 <= score <= 1
        assert recovery(Z_mixed, Z_hat_mixed, groups, groups_hat) == pytest.approx(score)
    unknown = block_recovery(Z, Z_hat, blocks_hat=groups_hat)
    assert 0 <= unknown <= 1
    assert block_recovery(Z, Z_hat_mixed, blocks_hat=groups_hat) == pytest.approx(unknown)
    assert block_recovery(Z, Z_hat, groups, groups_hat) >= (
        layer_recovery(Z, Z_hat, groups, groups_hat) - 1e-12
    )


@given(seeds, widths)
def test_upstream_layers_may_be_mixed_in(seed, n):
    Z, _, rng = samples(seed, n, n)
    groups = random_groups(rng, n)
    layer_of = np.empty(n, dtype=int)
    for k, group in enumerate(groups):
        layer_of[group] = k
    weights = rng.normal(size=(n, n)) * (layer_of[:, None] > layer_of[None, :])
    Z_hat = mixed_inside(Z, groups, rng) + Z @ weights
    assert layer_recovery(Z, Z_hat, groups, upstream=True) == pytest.approx(1)


def test_a_downstream_layer_may_not_be_mixed_in():
    Z_hat = np.stack([BASE[:, 0], 3 * BASE[:, 1] + 4 * BASE[:, 0]], axis=1)
    assert layer_recovery(BASE[:, :2], Z_hat, [[0], [1]], upstream=True) == pytest.approx(0.6)
    assert layer_recovery(BASE[:, :2], Z_hat, [[0], [1]]) == pytest.approx(0.8)


def test_a_variable_in_the_wrong_layer_counts_nothing():
    assert layer_recovery(BASE, BASE, [[0], [1, 2]], [[0, 1], [2]]) == pytest.approx(2 / 3)
    assert layer_recovery(BASE, BASE, [[0], [1, 2]], [[0, 1, 2]]) == pytest.approx(1 / 3)
    assert layer_recovery(BASE, BASE, [[0], [1], [2]], [[2], [0], [1]]) == pytest.approx(0)
    assert block_recovery(BASE, BASE, [[0], [1], [2]], [[2], [0], [1]]) == pytest.approx(1)


def test_missing_columns_count_nothing():
    assert layer_recovery(BASE, BASE[:, :2], [[0], [1, 2]], [[0], [1]]) == pytest.approx(2 / 3)
    assert block_recovery(BASE, BASE[:, :2], [[0], [1, 2]], [[1], [0]]) == pytest.approx(2 / 3)
    assert block_recovery(BASE, BASE[:, :2], blocks_hat=[[0, 1]]) == pytest.approx(2 / 3)
    constant = np.concatenate([BASE[:, :2], np.ones((4, 1))], axis=1)
    assert layer_recovery(BASE, constant, [[0], [1, 2]]) == pytest.approx(2 / 3)


def test_blocks_take_no_more_than_their_size():
    Z_hat = np.stack([BASE @ [1, 1, 0], BASE[:, 2]], axis=1)
    expected = (np.sqrt(0.5) + 1) / 3
    assert block_recovery(BASE, Z_hat, blocks_hat=[[0], [1]]) == pytest.approx(expected)


def test_groups_are_needed_when_columns_differ():
    with pytest.raises(ValueError, match="Got 3 and 2; say with layers_hat which belong together"):
        layer_recovery(BASE, BASE[:, :2], [[0], [1, 2]])
    with pytest.raises(ValueError, match="say with blocks_hat"):
        block_recovery(BASE, BASE[:, :2], [[0], [1, 2]])
    with pytest.raises(ValueError, match="must not both be None"):
        block_recovery(BASE, BASE)


# Blocks that are known


def test_shares_by_hand():
    blocks = [[0, 1], [2]]
    # Shares of the blocks: (0.8, 0.2), (0, 1), (0.9, 0.1).
    Z_hat = BASE @ np.sqrt([[0.3, 0, 0.5], [0.5, 0, 0.4], [0.2, 1, 0.1]]) + 7
    assert r2_within_blocks(BASE, Z_hat, blocks) == pytest.approx((0.8 + 1 + 0.9) / 3)
    assert r2_across_blocks(BASE, Z_hat, blocks) == pytest.approx((0.2 + 0 + 0.1) / 3)


def test_a_block_has_as_many_places_as_columns():
    Z_hat = BASE @ np.sqrt([[0.9, 0.8], [0, 0], [0.1, 0.2]])
    # Both want latent 0, which has one place: the second one loses less by going to latent 2.
    assert r2_within_blocks(BASE, Z_hat, [[0], [1], [2]]) == pytest.approx((0.9 + 0.2) / 3)
    assert r2_across_blocks(BASE, Z_hat, [[0], [1], [2]]) == pytest.approx((0.05 + 0.4) / 2)
    # Without room for the second one it is ignored.
    assert r2_within_blocks(BASE, Z_hat, [[0]]) == pytest.approx(0.9)


@given(seeds, widths)
def test_mixtures_inside_blocks_are_perfect_and_single_latents_are_squared_correlations(seed, n):
    Z, Z_hat, rng = samples(seed, n, n)
    groups = random_groups(rng, n)
    mixed = mixed_inside(Z, groups, rng)[:, rng.permutation(n)]
    assert r2_within_blocks(Z, mixed, groups) == pytest.approx(1)
    assert 0 <= r2_within_blocks(Z, Z_hat, groups) <= 1
    ones = [[i] for i in range(n)]
    best = linear_sum_assignment(correlation_matrix(Z, Z_hat) ** 2, maximize=True)
    expected = (correlation_matrix(Z, Z_hat) ** 2)[best].mean()
    assert r2_within_blocks(Z, Z_hat, ones) == pytest.approx(expected)


def test_across_needs_another_block():
    with pytest.raises(ValueError, match=r"two or more. Got 1"):
        r2_across_blocks(BASE, BASE, [[0, 1, 2]])
