from __future__ import annotations

import numpy as np
import pytest

from crlearn.flows import learn_autoencoder, share_lost


@pytest.mark.parametrize("n_codes", [1, 2])
def test_codes_are_white_and_each_stays_close_to_its_component(n_codes: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, n_codes)) * [3.0, 0.1][:n_codes] + 5
    codes = learn_autoencoder(X, n_codes, seed=0)(X)
    np.testing.assert_allclose(np.cov(codes.T).reshape(n_codes, -1), np.eye(n_codes), atol=1e-5)
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-5)


def test_as_many_steps_as_asked_for_whatever_the_number_of_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    # 300 rows are one batch: two steps would be two epochs, and a chunk has 20.
    few, more = (learn_autoencoder(X, 2, seed=0, width=4, n_steps=n) for n in (20, 300))
    assert more.error < few.error


def test_the_share_lost_is_a_mean_over_features_that_vary():
    X = np.array([[0.0, 1e200, 7.0], [2.0, 3e200, 7.0]])
    back = np.array([[0.0, 2e200, 7.0], [2.0, 2e200, 7.0]])
    assert share_lost(X, X) == 0
    assert share_lost(X, back) == pytest.approx(0.5)
    assert share_lost(np.ones((3, 2)), np.ones((3, 2))) == 0
