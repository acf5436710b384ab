from __future__ import annotations

import numpy as np
import pytest

from crlearn.exceptions import IdentifiabilityError
from crlearn.published.lscale._decisions import AbsoluteCuts, Evidence, NoiseTest, decoder_of


def evidence_in(directions: list[list[list[float]]], n_rows: int = 300, seed: int = 0) -> Evidence:
    """Differences that spread over given directions, one list for each environment."""
    rng = np.random.default_rng(seed)
    differences = [rng.normal(size=(n_rows, len(spanned))) @ spanned for spanned in directions]
    return Evidence(np.array(differences), np.array([np.eye(3)] * len(directions)))


def noisy(evidence: Evidence, seed: int, sd: float) -> Evidence:
    """The same, with noise that is linear in the rows' numbers."""
    rng = np.random.default_rng(seed)
    shape = evidence.differences.shape
    wave = np.sin(np.arange(shape[1]))[:, None]
    noise = sd * (rng.normal(size=(shape[0], 1, 3)) + rng.normal(size=(shape[0], 1, 3)) * wave)
    return Evidence(evidence.differences + noise, evidence.covariances)


SPANS = [[[1.0, 0, 0]], [[1.0, 0, 0], [0, 1, 0]], [[0, 1.0, 0], [0, 0, 1]]]


def keep_axes(evidence: Evidence) -> np.ndarray:
    return np.eye(3)


@pytest.fixture
def exact() -> Evidence:
    return evidence_in(SPANS)


@pytest.fixture
def tests_on_noise(exact: Evidence) -> NoiseTest:
    whole = noisy(exact, seed=0, sd=0.05)
    return NoiseTest(whole, [noisy(whole, seed, 0.05) for seed in range(1, 21)], level=0.05)


EDGES = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=bool)


def test_second_moments_are_not_centred():
    differences = np.array([[[1.0, 2.0], [3.0, 0.0]]])
    found = Evidence(differences, np.eye(2)[None]).second_moments
    np.testing.assert_allclose(found, [[[5.0, 1.0], [1.0, 2.0]]])


def test_cuts_compare_mean_squares(exact: Evidence):
    found = AbsoluteCuts(exact, edge_cut=0.5).edges(keep_axes)
    assert found.p_values is None
    np.testing.assert_array_equal(found.strength >= 1, EDGES)
    np.testing.assert_allclose(found.strength[0, 0], 2 * (exact.differences[0, :, 0] ** 2).mean())


def test_cuts_look_through_the_encoder(exact: Evidence):
    # With z2' = z1 + z2, what moves along z1 and z2 moves along the new axes otherwise.
    encoder = np.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    found = AbsoluteCuts(exact, edge_cut=1.0).edges(lambda _: encoder).strength
    expected = (exact.differences[2] @ np.linalg.inv(encoder)) ** 2
    np.testing.assert_allclose(found[:, 2], expected.mean(axis=0))


def test_cuts_count_ranks_and_shared_dimensions(exact: Evidence):
    cuts = AbsoluteCuts(exact)
    assert [cuts.rank([m]) for m in range(3)] == [1, 2, 2]
    assert cuts.rank([0, 2]) == 3
    assert [cuts.shared(0, 1), cuts.shared(1, 2), cuts.shared(0, 2)] == [1, 1, 0]
    assert AbsoluteCuts(exact, rank_cut=100.0).rank([1]) == 0


def test_noise_is_told_from_edges_and_dimensions(tests_on_noise: NoiseTest):
    found = tests_on_noise.edges(keep_axes)
    np.testing.assert_array_equal(found.strength >= 1, EDGES)
    assert found.p_values is not None
    np.testing.assert_array_equal(found.p_values < 0.05 / 6, EDGES)
    assert [tests_on_noise.rank([m]) for m in range(3)] == [1, 2, 2]
    assert [tests_on_noise.shared(*pair) for pair in ((0, 1), (1, 2), (0, 2))] == [1, 1, 0]
    # The cuts of the paper take this noise for signal.
    assert (AbsoluteCuts(tests_on_noise.evidence).edges(keep_axes).strength >= 1).sum() > 5


def test_without_noise_rounding_is_zero(exact: Evidence):
    rounded = Evidence(exact.differences + 1e-12, exact.covariances)
    decisions = NoiseTest(rounded, [rounded] * 5)
    np.testing.assert_array_equal(decisions.edges(keep_axes).strength >= 1, EDGES)
    assert decisions.rank([0]) == 1


def test_a_decoder_needs_different_rows():
    encoder = np.array([[2.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(decoder_of(encoder) @ encoder, np.eye(2))
    with pytest.raises(IdentifiabilityError, match="environments 1 and 3 are the most similar"):
        decoder_of(np.array([[1.0, 0, 0], [0, 1, 0], [-2.0, 0, 0]]))
