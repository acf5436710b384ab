import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from crlearn.metrics import correlation_matrix, mac, mac_matched, match, mcc

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 5)
METHODS = ("pearson", "spearman")

# Orthogonal, centred columns: correlations can be read off the mixing weights.
BASE = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=float)


def samples(seed, n_latents, n_recovered, n_samples=30):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n_samples, n_latents))
    return Z, Z @ rng.normal(size=(n_latents, n_recovered)), rng


def relabelled(Z, rng):
    """Another order, sign, scale and shift of each column."""
    n = Z.shape[1]
    scale = 10.0 ** rng.uniform(-6, 6, n) * rng.choice([-1, 1], n)
    return (Z * scale + scale * rng.normal(size=n))[:, rng.permutation(n)]


@pytest.mark.parametrize("method", METHODS)
@given(seeds, widths, widths)
def test_correlations_are_those_of_numpy(method, seed, n_latents, n_recovered):
    Z, Z_hat, _ = samples(seed, n_latents, n_recovered)
    ours = correlation_matrix(Z, Z_hat, method)
    assert ours.shape == (n_latents, n_recovered)
    for i in range(n_latents):
        for j in range(n_recovered):
            pair = np.stack([Z[:, i], Z_hat[:, j]])
            if method == "spearman":
                pair = rankdata(pair, axis=1)
            theirs = np.asarray(np.corrcoef(pair))[0, 1]
            assert ours[i, j] == pytest.approx(abs(theirs), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@given(seeds, widths, widths)
def test_mcc_bounds_and_invariance(method, seed, n_latents, n_recovered):
    Z, Z_hat, rng = samples(seed, n_latents, n_recovered)
    score = mcc(Z, Z_hat, method)
    assert 0 <= score <= 1
    assert mcc(relabelled(Z, rng), relabelled(Z_hat, rng), method) == pytest.approx(score)


@given(seeds, widths)
def test_self_comparison_is_perfect(seed, n_latents):
    Z, _, rng = samples(seed, n_latents, 1)
    assert mcc(Z, relabelled(Z, rng)) == pytest.approx(1)
    assert mac_matched(Z, relabelled(Z, rng)) == pytest.approx(1)
    assert mac(Z, -3 * Z + 7) == pytest.approx(1)


@given(seeds, widths, widths)
def test_mac_is_no_larger_than_matched(seed, n_latents, n_recovered):
    Z, Z_hat, _ = samples(seed, n_latents, n_recovered)
    assert 0 <= mac(Z, Z_hat) <= mac_matched(Z, Z_hat) + 1e-12
    assert mac_matched(Z, Z_hat) == mcc(Z, Z_hat)


@given(seeds)
def test_spearman_sees_through_monotone_maps(seed):
    Z, Z_hat, _ = samples(seed, 3, 3)
    assert mcc(Z, np.exp(Z_hat), "spearman") == pytest.approx(mcc(Z, Z_hat, "spearman"))


def test_values_by_hand():
    Z_hat = np.stack([3 * BASE[:, 0] + 4 * BASE[:, 1], BASE[:, 0]], axis=1)
    expected = [[0.6, 1.0], [0.8, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(correlation_matrix(BASE, Z_hat), expected, atol=1e-15)
    assert match(BASE, Z_hat).tolist() == [[0, 1], [1, 0]]
    assert mcc(BASE, Z_hat) == pytest.approx(1.8 / 3)
    assert mac(BASE, Z_hat) == pytest.approx(0.6 / 3)


def test_surplus_columns_are_ignored():
    Z_hat = np.concatenate([BASE[:, :1] + BASE[:, 1:2], BASE[:, [2, 0]]], axis=1)
    assert mcc(BASE[:, [0]], Z_hat) == pytest.approx(1)
    assert match(BASE[:, [0]], Z_hat).tolist() == [[0, 2]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 1e12, -1e-12])
def test_a_constant_column_correlates_with_nothing(method, constant):
    Z_hat = np.concatenate([BASE[:, :1], np.full((4, 1), constant)], axis=1)
    assert correlation_matrix(BASE, Z_hat, method)[:, 1].tolist() == [0, 0, 0]
    assert mcc(BASE, Z_hat, method) == pytest.approx(1 / 3)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_extreme_scales(scale):
    Z, Z_hat, _ = samples(0, 3, 3)
    assert mcc(scale * Z, Z_hat / scale) == pytest.approx(mcc(Z, Z_hat))


def test_input_is_left_alone():
    Z, Z_hat, _ = samples(0, 3, 3)
    before = Z.copy(), Z_hat.copy()
    mcc(Z, Z_hat)
    np.testing.assert_array_equal(before, (Z, Z_hat))
