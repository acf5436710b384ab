from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.metrics import coverage, frobenius, relmse, relmse_by_environment, relmse_worst

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 4)
ALIGNS = ("signed_permutation", "scaled_permutation", "none")


def samples(seed, n_latents, n_recovered, n_samples=20):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_samples, n_latents)), rng.normal(size=(n_samples, n_recovered)), rng


def signed_permutation(rng, n):
    return (np.eye(n) * rng.choice([-1.0, 1.0], n))[rng.permutation(n)]


@given(seeds, widths)
def test_signed_permutation_is_the_best_of_all(seed, n):
    Z, Z_hat, _ = samples(seed, n, n)
    best = min(
        ((Z_hat[:, order] * signs - Z) ** 2).sum()
        for order in map(list, permutations(range(n)))
        for signs in product([-1, 1], repeat=n)
    )
    assert frobenius(Z, Z_hat) == pytest.approx(best)
    assert relmse(Z, Z_hat) == pytest.approx(best / (Z**2).sum())


@given(seeds, widths, widths)
def test_scaled_permutation_never_exceeds_the_error_of_zero(seed, n_latents, n_recovered):
    Z, Z_hat, rng = samples(seed, n_latents, n_recovered)
    error = relmse(Z, Z_hat, "scaled_permutation")
    assert 0 <= error <= 1
    scaled = Z_hat * 10.0 ** rng.uniform(-6, 6, n_recovered) @ signed_permutation(rng, n_recovered)
    assert relmse(Z, scaled, "scaled_permutation") == pytest.approx(error)
    if n_latents == n_recovered:
        assert error <= relmse(Z, Z_hat) <= relmse(Z, Z_hat, "none") + 1e-12


@given(seeds, widths, widths)
def test_signed_permutation_invariance(seed, n_latents, n_recovered):
    Z, Z_hat, rng = samples(seed, n_latents, n_recovered)
    same = Z_hat @ signed_permutation(rng, n_recovered)
    assert relmse(Z, same) == pytest.approx(relmse(Z, Z_hat))
    assert frobenius(Z, same) == pytest.approx(frobenius(Z, Z_hat))


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("average", ["pooled", "samples"])
@given(seeds, widths)
def test_self_comparison_is_zero(align, average, seed, n):
    Z, _, _ = samples(seed, n, n)
    assert relmse(Z, Z, align, average) == pytest.approx(0)
    assert frobenius(Z, Z, align) == pytest.approx(0)


@given(seeds, st.floats(1e-6, 1e6))
def test_relmse_has_no_units(seed, scale):
    Z, Z_hat, _ = samples(seed, 3, 3)
    assert relmse(scale * Z, scale * Z_hat) == pytest.approx(relmse(Z, Z_hat))


def test_relmse_by_hand():
    Z = np.array([[1.0, 0.0], [0.0, 3.0]])
    Z_hat = np.array([[0.0, -2.0], [3.0, 0.0]])
    assert relmse(Z, Z_hat, "none") == pytest.approx(((1 + 4) + (9 + 9)) / (1 + 9))
    assert relmse(Z, Z_hat) == pytest.approx(1 / 10)
    assert relmse(Z, Z_hat, average="samples") == pytest.approx((1 / 1 + 0) / 2)
    assert relmse(Z, Z_hat, "scaled_permutation") == pytest.approx(0)


def test_frobenius_by_hand():
    A = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    A_hat = np.array([[0.0, -2.0], [1.0, 0.0], [0.0, 0.0]])
    assert frobenius(A, A_hat) == pytest.approx(1)
    assert frobenius(A, A_hat, "none") == pytest.approx(1 + 4 + 1 + 1)
    assert frobenius(A, A_hat, "scaled_permutation") == pytest.approx(0)


def test_a_shift_is_an_error():
    Z = np.array([[1.0], [-1.0]])
    assert relmse(Z, Z + 1) == pytest.approx(1)


def test_latents_without_partner_are_estimated_by_zero():
    Z = np.array([[1.0, 2.0], [1.0, -2.0]])
    assert relmse(Z, Z[:, [1]]) == pytest.approx(2 / 10)
    assert relmse(Z[:, [0]], Z[:, [1, 0]]) == pytest.approx(0)


def test_zero_columns_do_not_divide_by_zero():
    Z = np.eye(3)
    assert relmse(Z, np.zeros((3, 3)), "scaled_permutation") == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: relmse(np.eye(3), np.eye(3)[:, :2], "none"),
            "Z and Z_hat .* Got 3 and 2",
        ),
        (lambda: frobenius(np.eye(3), np.eye(3)[:, :2], "none"), "A and A_hat .* Got 3 and 2"),
        (lambda: frobenius(np.eye(3), np.eye(2)), "same features. Got 3 and 2 rows"),
        (lambda: relmse(np.zeros((3, 2)), np.ones((3, 2))), "Got 3 of 3 rows that are all zero"),
        (lambda: relmse(np.eye(3)[:, :2], np.eye(3)[:, :2], average="samples"), "Got 1 of 3 rows"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_worst_environment():
    Z = np.ones((6, 2))
    Z_hat = Z.copy()
    Z_hat[4:] += 0.5
    labels = np.array(["a", "a", "b", "b", "c", "c"])
    assert relmse_worst(Z, Z_hat, labels) == pytest.approx(0.25)
    assert relmse(Z, Z_hat) == pytest.approx(0.25 / 3)
    assert relmse_worst(Z, -Z_hat[:, ::-1], labels) == pytest.approx(0.25)


def test_each_environment():
    Z = np.random.default_rng(0).normal(size=(6, 2))
    Z_hat = Z.copy()
    Z_hat[[0, 3]] *= 2  # label 1
    Z_hat[[1, 4]] *= 1.5  # label 10, after 2
    labels = np.array([1, 10, 2, 1, 10, 2])
    expected = pytest.approx([1, 0, 0.25])
    assert relmse_by_environment(Z, Z_hat, labels) == expected
    assert relmse_by_environment(Z, -Z_hat[:, ::-1], labels) == expected


def test_coverage_does_not_ask_for_order_and_signs():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1000, 3)) * [1, 2, 3]
    middle = Z + rng.normal(size=Z.shape) * 0.1
    turned = middle[:, [2, 0, 1]] * [-1, 1, -1]
    assert coverage(Z, turned - 0.1645, turned + 0.1645) == pytest.approx(0.9, abs=0.02)
    assert coverage(Z, turned + 5, turned + 6) < 0.1
