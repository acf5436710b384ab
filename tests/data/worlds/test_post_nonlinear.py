from __future__ import annotations

import numpy as np

from crlearn.data import SCM, Gaussian, Linear, Node
from crlearn.data.worlds._post_nonlinear import Bend, latents_of, random_bends, sample_bent

GRAPH = np.array([[False, True], [False, False]])


def test_bends_increase_and_are_not_straight():
    places = np.linspace(-6, 6, 500)
    for bend in random_bends(20, np.random.default_rng(0)):
        slopes = np.diff(bend(places))
        assert slopes.min() > 0
        assert slopes.max() > 1.5 * slopes.min()


def test_a_latent_is_bent_before_it_causes_others():
    noise = np.array([[1.0, 10.0], [2.0, 20.0]])
    double = Bend(slope=2.0, height=0.0, rate=1.0, place=0.0)
    Z = latents_of(GRAPH, noise, lambda j, parents: 3 * parents.sum(axis=1), [double, double])
    np.testing.assert_allclose(Z, [[2.0, 2 * (10 + 6)], [4.0, 2 * (20 + 12)]])


def test_straight_latents_are_those_of_the_model():
    scm = SCM(GRAPH, [Node(None, Gaussian()), Node(Linear([2.0]), Gaussian(0.5, 1.0))])
    straight = [Bend(1.0, 0.0, 1.0, 0.0)] * 2
    Z, noise = sample_bent(scm, 5, np.random.default_rng(0), straight)
    expected, expected_noise = scm.sample(5, 0)
    np.testing.assert_allclose(Z, expected)
    np.testing.assert_array_equal(noise, expected_noise)
