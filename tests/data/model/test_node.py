from __future__ import annotations

import numpy as np

from crlearn.data import Gaussian, Linear, Node


def test_value_and_factor():
    node = Node(Linear([2.0]), Gaussian(0.5), offset=1.0)
    assert node.without_noise(np.array([3.0])) == 7.0
    expected = -0.5 * 4.0 - np.log(0.5 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(node.log_factor(np.array([8.0, 3.0])), expected)


def test_root_is_its_offset():
    assert Node(None, Gaussian()).without_noise(np.empty(0)) == 0.0
    assert Node(None, Gaussian(), offset=2.0).without_noise(np.empty(0)) == 2.0
