from __future__ import annotations

import numpy as np
import pytest

from crlearn.methods.additive._auxiliary import Cells, Labels, read_auxiliary


def test_labels_are_segments():
    found = read_auxiliary(np.array(["b", "a", "b"]), 0)
    assert isinstance(found, Labels)
    codes, covariates = found(np.array(["b", "a", "b"]))
    assert codes.tolist() == [1, 0, 1]
    assert covariates.shape == (3, 0)
    assert found.names == ("a", "b")


def test_whole_numbers_are_labels():
    assert isinstance(read_auxiliary(np.array([1.0, 2.0, 1.0]), 0), Labels)


def test_numbers_are_cut_into_cells_in_which_rows_lie_where_they_are():
    u = np.random.default_rng(0).uniform(-1, 1, size=3000)
    found = read_auxiliary(u, 0)
    assert isinstance(found, Cells)
    cells, along = found(u)
    assert len(found) == 5
    assert np.bincount(cells).min() > 300
    places = found.centres[cells] + along
    np.testing.assert_allclose(places[:, 0] * found.scale + found.mean, u)
    assert np.ptp(along) < np.ptp(u)
    assert found.names[0].startswith("u = ")


def test_matrices_have_cells_too():
    u = np.random.default_rng(0).normal(size=(3000, 2))
    found = read_auxiliary(u, 0)
    assert found(u)[1].shape == (3000, 2)
    assert found.n_covariates == 2


def test_unknown_labels_are_named():
    with pytest.raises(ValueError, match="Got 'c'"):
        Labels(np.array(["a", "b"]))(np.array(["a", "c"]))
