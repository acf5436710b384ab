from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.methods.additive._auxiliary import Labels
from crlearn.methods.additive._mechanisms import (
    Basis,
    SegmentMechanisms,
    Triangular,
    TriangularInverse,
)

N = 3
RNG = np.random.default_rng(0)
BASIS = Basis("nonlinear", RNG.normal(size=(N, 2, N)), RNG.normal(size=(N, 2)))


def test_features_are_functions_of_the_latents_before():
    z = RNG.normal(size=(7, N))
    assert BASIS(z, 0).shape == (7, 0)
    assert BASIS(z, 2).shape == (7, 2 * 5 + 2) == (7, BASIS.width)
    other = z.copy()
    other[:, 1:] += 1
    np.testing.assert_array_equal(BASIS(z, 1), BASIS(other, 1))
    assert np.abs(BASIS(z, 2) - BASIS(other, 2)).max() > 0.1


@pytest.mark.parametrize(("kind", "width"), [("linear", 2), ("polynomial", 2 * 3 + 4)])
def test_kinds_have_features_of_their_own(kind: Any, width: int):
    basis = Basis(kind, BASIS.projections, BASIS.thresholds)
    assert basis(RNG.normal(size=(4, N)), 2).shape == (4, width)


def test_triangular_maps_are_undone_exactly():
    encoder = Triangular(
        BASIS, RNG.normal(size=(N, BASIS.width)), RNG.normal(size=N), RNG.uniform(0.5, 2, size=N)
    )
    e = RNG.normal(size=(20, N))
    np.testing.assert_allclose(TriangularInverse(encoder)(encoder(e)), e, atol=1e-12)
    np.testing.assert_allclose(encoder(e)[:, 0], (e[:, 0] - encoder.mean[0]) / encoder.scale[0])


def chain() -> SegmentMechanisms:
    """z0 -> z1 -> z2 with linear effects: 2 and -1 in segment a, none in segment b."""
    basis = Basis("linear", np.zeros((N, 0, N)), np.zeros((N, 0)))
    coefficients = np.zeros((2, N, 2))
    coefficients[0, 1, 0], coefficients[0, 2, 1] = 2.0, -1.0
    offsets = np.array([[0.0, 1.0, 0.0], [5.0, 0.0, 0.0]])
    graph = np.eye(N, k=1, dtype=bool)
    slopes = np.zeros((2, N, 0))
    return SegmentMechanisms(
        basis, graph, coefficients, offsets, slopes, Labels(np.array(["a", "b"]))
    )


def test_noises_are_what_parents_and_segments_leave():
    Z = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    found = chain().noises(Z, np.array(["a", "b"]))
    assert found.tolist() == [[1.0, -1.0, 5.0], [-4.0, 2.0, 3.0]]


def test_an_intervention_goes_down_the_chain_and_not_up():
    Z, y = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]), np.array(["a", "b"])
    assert chain().intervened(Z, y, {0: 2.0}).tolist() == [[2.0, 4.0, 1.0], [2.0, 2.0, 3.0]]
    assert chain().intervened(Z, y, {2: np.array([0.0, 9.0])}).tolist() == [
        [1.0, 2.0, 0.0],
        [1.0, 2.0, 9.0],
    ]
    np.testing.assert_allclose(chain().intervened(Z, y, {}), Z)
