from __future__ import annotations

import numpy as np

from crlearn.report._matched import Matched

Z = np.array([[1.0, 0, 2], [0, 3, 1], [2, 1, 0], [5, 4, 4]])


def test_pairs_meet_and_the_others_follow():
    Z_hat = np.stack([-Z[:, 2], Z[:, 0]], axis=1)
    latents = Matched.of(Z, Z_hat, np.array([[0, 1], [2, 0]]))
    assert latents.n_pairs == 2
    assert latents.true_names == ["z0", "z2", "z1"]
    assert latents.recovered_names == ["z1", "z0"]
    assert np.allclose(latents.correlations.diagonal(), 1)
    assert np.array_equal(latents.Z, Z[:, [0, 2, 1]])


def test_noises():
    noises = Matched.of(Z, Z, np.array([[0, 0], [1, 1], [2, 2]]), "noise")
    assert noises.true_names == noises.recovered_names == ["e0", "e1", "e2"]


def test_more_recovered_than_true():
    latents = Matched.of(Z[:, :1], Z, np.array([[0, 2]]))
    assert latents.recovered.tolist() == [2, 0, 1]
    assert latents.correlations.shape == (1, 3)
