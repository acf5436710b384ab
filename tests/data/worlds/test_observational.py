# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import numpy as np

from crlearn.data import make_observational, y_graph


class TestObservational:
    def test_shape_and_truth(self):
        world = make_observational(random_state=0)
        truth = world.truth
        assert world.X.shape == (1000, 4)
        assert world.y is None
        assert not truth.targets.any()
        np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
        np.testing.assert_allclose(truth.scms[0].from_noise(truth.noise), truth.Z)
        np.testing.assert_allclose(truth.Z.std(0), 1.0)

    def test_minmax_as_in_the_paper(self):
        Z = make_observational(rescale="minmax", graph="y", random_state=0).truth.Z
        np.testing.assert_allclose(Z.min(0), 0.0, atol=1e-12)
        np.testing.assert_allclose(Z.max(0), 1.0)

    def test_leaf_directions_have_a_constant_score_jacobian(self):
        truth = make_observational(graph=y_graph(), random_state=0).truth
        diagonal = np.diagonal(truth.score_jacobian(truth.Z[:50]), axis1=1, axis2=2)
        spread = diagonal.std(0)
        np.testing.assert_allclose(spread[2:], 0.0, atol=1e-10)
        assert (spread[:2] > 0.01).all()

    def test_same_seed_same_bits(self):
        first, again = (make_observational(mechanism="tanh_mlp", random_state=3) for _ in "ab")
        np.testing.assert_array_equal(first.X, again.X)
