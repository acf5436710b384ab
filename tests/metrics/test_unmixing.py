import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crlearn.graph import adjacency_of, graph_of, surrounding_parents
from crlearn.metrics import (
    ancestor_error,
    nested_error,
    parent_error,
    scale_error,
    surrounding_error,
)

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 5)
CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)


def world(seed, n_latents, n_features=6):
    """Mixing, a noisy encoder for it, a DAG in index order."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(n_features, n_latents))
    encoder = np.linalg.pinv(mixing) + 0.1 * rng.normal(size=(n_latents, n_features))
    graph = np.triu(rng.random((n_latents, n_latents)) < 0.5, k=1)
    return encoder, mixing, graph, rng


@given(seeds, widths)
def test_bounds_and_order_of_the_errors(seed, n):
    encoder, mixing, graph, _ = world(seed, n)
    scale = scale_error(encoder, mixing)
    parent = parent_error(encoder, mixing, graph)
    ancestor = ancestor_error(encoder, mixing, graph)
    for error in (scale, parent, ancestor):
        assert 0 <= error <= np.sqrt(n)
    assert parent_error(encoder, mixing, np.zeros((n, n))) == pytest.approx(scale)


@given(seeds, widths)
def test_row_order_sign_and_scale_do_not_matter(seed, n):
    encoder, mixing, graph, rng = world(seed, n)
    scale = 10.0 ** rng.uniform(-12, 12, n) * rng.choice([-1, 1], n)
    other = (encoder * scale[:, None])[rng.permutation(n)]
    assert scale_error(other, mixing) == pytest.approx(scale_error(encoder, mixing))
    assert parent_error(other, mixing, graph) == pytest.approx(parent_error(encoder, mixing, graph))


@given(seeds, widths)
def test_what_the_theory_allows_is_no_error(seed, n):
    _, mixing, graph, rng = world(seed, n)
    unmixing = np.linalg.pinv(mixing)
    assert scale_error(3 * unmixing, mixing) == pytest.approx(0, abs=1e-10)
    with_parents = unmixing + 0.3 * (graph * rng.uniform(-1, 1, (n, n))).T @ unmixing
    assert parent_error(with_parents, mixing, graph, match=False) == pytest.approx(0, abs=1e-10)
    assert ancestor_error(with_parents, mixing, graph, match=False) == pytest.approx(0, abs=1e-10)


def test_by_hand():
    # The last latent has 0.6 of the root, its grandparent.
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.6, 0.0, 0.8]])
    assert scale_error(rows, np.eye(3)) == pytest.approx(0.6)
    assert parent_error(rows, np.eye(3), CHAIN) == pytest.approx(0.6)
    assert ancestor_error(rows, np.eye(3), CHAIN) == pytest.approx(0)
    # The root has 0.6 of its child, which it must not have.
    rows = np.array([[0.8, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert parent_error(rows, np.eye(3), CHAIN) == pytest.approx(0.6)
    assert parent_error(rows, np.eye(3), CHAIN.T) == pytest.approx(0)


def test_surrounding_parents_by_hand():
    # In a chain the leaf may have its parent; the one before it not: the root lacks its child.
    rows = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])
    assert surrounding_error(rows, np.eye(3), CHAIN) == pytest.approx(0.6)
    assert surrounding_error(rows[[0, 2, 1]], np.eye(3), CHAIN) == pytest.approx(0.6)
    complete = np.triu(np.ones((3, 3)), 1)
    assert surrounding_error(rows, np.eye(3), complete) == pytest.approx(0)


def test_nested_children_by_hand():
    # Two leaves of one root: neither is a parent of the other, but both have no children.
    fork = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 0.8, 0.6], [0.0, 0.0, 1.0]])
    assert nested_error(rows, np.eye(3), fork) == pytest.approx(0)
    assert surrounding_error(rows, np.eye(3), fork) == pytest.approx(0.6)
    rows = np.array([[0.8, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert nested_error(rows, np.eye(3), fork) == pytest.approx(0.6)  # a leaf lacks the children


@given(seeds, widths)
def test_mixtures_with_surrounding_parents_are_no_error(seed, n):
    _, mixing, graph, rng = world(seed, n)
    surrounding = adjacency_of(surrounding_parents(graph_of(graph)))
    unmixing = np.linalg.pinv(mixing)
    mixed = unmixing + 0.3 * (surrounding * rng.uniform(-1, 1, (n, n))).T @ unmixing
    for error in (surrounding_error, nested_error, parent_error):
        assert error(mixed, mixing, graph, match=False) == pytest.approx(0, abs=1e-10)


def test_spectral_norm_of_two_wrong_rows():
    rows = np.array([[0.8, 0.6], [0.6, 0.8]])
    assert scale_error(rows, np.eye(2)) == pytest.approx(0.6)
    rows = np.array([[0.8, 0.0, 0.6], [0.0, 0.8, 0.6], [0.0, 0.0, 1.0]])
    assert scale_error(rows, np.eye(3)) == pytest.approx(0.6 * np.sqrt(2))


def test_match_can_be_switched_off():
    swapped = np.eye(2)[::-1]
    assert scale_error(swapped, np.eye(2)) == pytest.approx(0)
    assert scale_error(swapped, np.eye(2), match=False) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale_error(np.eye(3), np.eye(2)), r"Got \(3, 3\) and \(2, 2\)"),
        (lambda: scale_error(np.ones((2, 4)), np.ones((4, 3))), r"Got \(2, 4\) and \(4, 3\)"),
        (lambda: scale_error(np.diag([1.0, 0.0]), np.eye(2)), "Row 1 of encoder @ mixing is zero"),
        (lambda: parent_error(np.eye(2), np.eye(2), CHAIN), r"shape \(2, 2\).*Got shape \(3, 3\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
