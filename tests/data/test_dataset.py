from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from crlearn.data import Dataset, Intervention, make_world

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 0, 0, 1, 1, 1])


@pytest.fixture(scope="module")
def world():
    return make_world(
        3,
        5,
        n_samples=[40, 30],
        graph="chain",
        mechanism="sin",
        mixing="leaky_relu",
        interventions=[None, Intervention(1, "hard", variance_factor=4.0)],
        targets="known",
        random_state=0,
    )


class TestDataset:
    def test_defaults(self):
        dataset = Dataset(X)
        assert (dataset.n_samples, dataset.n_features, dataset.n_environments) == (6, 2, 1)
        assert dataset.names == ("x0", "x1")
        assert dataset.environments == ()
        assert dataset.y is None

    def test_copies_and_freezes(self):
        original = X.copy()
        dataset = Dataset(original, Y)
        original[:] = 0
        np.testing.assert_array_equal(dataset.X, X)
        with pytest.raises(ValueError, match="read-only"):
            dataset.X[0, 0] = 1
        with pytest.raises(FrozenInstanceError):
            dataset.X = X  # pyright: ignore[reportAttributeAccessIssue]

    def test_string_labels(self):
        dataset = Dataset(X, ["b", "b", "a", "a", "a", "a"])
        assert dataset.environments == ("a", "b")
        assert dataset.environment("b").n_samples == 2

    def test_order_of_environments(self):
        dataset = Dataset(X, Y, environments=[1, 0, 2])
        assert dataset.environments == (1, 0, 2)
        assert dataset.n_environments == 3

    def test_whole_numbers_are_labels_and_others_are_not(self):
        assert Dataset(X, Y.astype(float)).environments == (0, 1)
        assert Dataset(X, Y.astype(float) * 1e300).environments == ()
        continuous = Dataset(X, Y + 0.5)
        assert continuous.environments == ()
        assert continuous.n_environments == 1

    def test_auxiliary_vectors(self):
        vectors = X / 7
        dataset = Dataset(X, vectors)
        assert dataset.y is not None
        assert dataset.environments == ()
        assert dataset.n_environments == 1
        assert repr(dataset) == "Dataset(6 samples x 2 features, an auxiliary vector of 2)"
        np.testing.assert_array_equal(dataset.subset([4, 1]).y, vectors[[4, 1]])
        for part in dataset.split(0.5, random_state=0):
            np.testing.assert_array_equal(part.y, part.X / 7)
        with pytest.raises(ValueError, match="read-only"):
            dataset.y[0, 0] = 1
        assert np.asarray(Dataset(X, vectors[:, :1]).y).shape == (6, 1)
        assert np.asarray(Dataset(X, X.astype(int)).y).dtype == float

    def test_subset_by_mask_slice_and_index(self, world):
        mask = world.y == 1
        for rows in (mask, slice(40, None), np.flatnonzero(mask)):
            part = world.subset(rows)
            np.testing.assert_array_equal(part.X, world.X[40:])
            np.testing.assert_array_equal(part.truth.Z, world.truth.Z[40:])
            np.testing.assert_array_equal(part.truth.noise, world.truth.noise[40:])
            assert part.environments == world.environments

    def test_split_keeps_proportions(self, world):
        first, second = world.split(0.8, random_state=0)
        assert [int((part.y == e).sum()) for part in (first, second) for e in (0, 1)] == [
            32,
            24,
            8,
            6,
        ]
        rows = np.concatenate([first.X, second.X])
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(world.X, axis=0))

    def test_split_same_seed_same_rows(self, world):
        first, again = (world.split(0.5, random_state=1)[0] for _ in range(2))
        np.testing.assert_array_equal(first.X, again.X)

    def test_split_without_labels(self):
        first, second = Dataset(X).split(0.5, random_state=0)
        assert first.n_samples == second.n_samples == 3

    def test_replace_keeps_the_rest(self, world):
        renamed = replace(world, names=list("abcde"))
        assert renamed.names == tuple("abcde")
        assert renamed.truth is world.truth

    def test_repr(self, world):
        expected = "Dataset(70 samples x 5 features, 2 environments, 3 known latents)"
        assert repr(world) == expected
        assert repr(Dataset(X)) == "Dataset(6 samples x 2 features)"


class TestBadInput:
    @pytest.mark.parametrize("y", [Y[:5], Y[:, None]])
    def test_y_of_wrong_length(self, y):
        with pytest.raises(ValueError, match="one entry for each of the 6 rows"):
            Dataset(X, y)

    def test_columns_of_labels_are_told_from_vectors(self):
        with pytest.raises(
            ValueError, match=r"real numbers.*y\.ravel\(\) makes labels of a column"
        ):
            Dataset(X, Y[:, None])

    @pytest.mark.parametrize("y", [X[:5], X[None], X[:, :0], 1.0])
    def test_shape_of_auxiliary_vectors(self, y):
        with pytest.raises(ValueError, match="a matrix of real numbers with one row for each"):
            Dataset(X, y)

    def test_auxiliary_vectors_are_finite_numbers(self):
        with pytest.raises(
            ValueError, match="auxiliary vector for each row of X and must hold real"
        ):
            Dataset(X, X.astype(str))
        with pytest.raises(ValueError, match="'y' must be finite"):
            Dataset(X, np.where(X == 3, np.nan, X))

    @pytest.mark.parametrize("bad", [X[0], X[:0], X[:, :0], X[None]])
    def test_shape_of_x(self, bad):
        with pytest.raises(ValueError, match="'X' must have two axes"):
            Dataset(bad)

    def test_strings_in_x(self):
        with pytest.raises(ValueError, match="'X' must hold numbers only"):
            Dataset([["a", "b"]])

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_missing_values_are_located(self, bad):
        broken = X.copy()
        broken[2, 1] = bad
        with pytest.raises(ValueError, match="in the features height"):
            Dataset(broken, names=["width", "height"])

    def test_names(self):
        with pytest.raises(ValueError, match="one distinct name for each of the 2 features"):
            Dataset(X, names=["a"])
        with pytest.raises(ValueError, match="2 names, 1 of them distinct"):
            Dataset(X, names=["a", "a"])

    def test_mixed_labels(self):
        with pytest.raises(ValueError, match="all of one kind"):
            Dataset(X, np.array([0, "a", None, 1, 1, 1], dtype=object))

    def test_missing_labels(self):
        with pytest.raises(ValueError, match="'y' must be finite"):
            Dataset(X, [0, 0, 0, 1, 1, np.nan])

    def test_environments_that_miss_a_label(self):
        with pytest.raises(ValueError, match=r"every label of 'y' once.* missing: 1"):
            Dataset(X, Y, environments=[0, 2])
        with pytest.raises(ValueError, match="listed twice"):
            Dataset(X, Y, environments=[0, 1, 1])
        with pytest.raises(ValueError, match="need labels in 'y'"):
            Dataset(X, environments=[0, 1])

    def test_unknown_environment(self):
        with pytest.raises(ValueError, match=r"one of the environments 0, 1. Got 2"):
            Dataset(X, Y).environment(2)

    def test_shape_of_known_targets(self):
        with pytest.raises(ValueError, match="one row for each of the 2 environments"):
            Dataset(X, Y, known_targets=np.zeros((3, 2)))

    def test_truth_of_other_samples(self, world):
        with pytest.raises(ValueError, match=r"each of the 6 samples. Got 70"):
            Dataset(X, truth=world.truth)

    @pytest.mark.parametrize("fraction", [0.0, 1.0, 2.0])
    def test_fraction(self, world, fraction):
        with pytest.raises(ValueError, match="'fraction' must lie between 0 and 1"):
            world.split(fraction)

    def test_too_few_to_split(self):
        with pytest.raises(ValueError, match="too few"):
            Dataset(X[:1]).split(0.5)


class TestTruth:
    def test_arrays_are_read_only(self, world):
        assert not world.truth.Z.flags.writeable
        assert not world.truth.targets.flags.writeable

    def test_derivatives_are_those_of_the_environment(self, world):
        Z = world.truth.Z[:4]
        for e, scm in enumerate(world.truth.scms):
            np.testing.assert_array_equal(world.truth.log_density(Z, e), scm.log_density(Z))
            np.testing.assert_array_equal(world.truth.score(Z, e), scm.score(Z))
            np.testing.assert_array_equal(world.truth.score_jacobian(Z, e), scm.score_jacobian(Z))

    def test_score_difference_vanishes_off_target_and_parents(self, world):
        difference = world.truth.score_difference(world.truth.Z[:6], environment=1)
        np.testing.assert_array_equal(difference[:, 2], 0.0)
        assert (difference[:, :2] != 0).all()

    def test_observed_score_difference_pulls_back(self, world):
        truth, Z = world.truth, world.truth.Z[:6]
        observed = truth.observed_score_difference(Z, 1)
        pulled_back = np.einsum("nf,nfl->nl", observed, truth.mixing.jacobian(Z))
        np.testing.assert_allclose(pulled_back, truth.score_difference(Z, 1), atol=1e-12)

    def test_observed_score_difference_of_a_linear_mixing(self):
        world = make_world(
            2, 4, 50, interventions=[None, Intervention(0, variance_factor=2.0)], random_state=0
        )
        assert world.truth is not None
        assert world.truth.mixing.matrix is not None
        observed = world.truth.observed_score_difference(world.truth.Z, 1)
        expected = world.truth.score_difference(world.truth.Z, 1)
        np.testing.assert_allclose(observed @ world.truth.mixing.matrix, expected, atol=1e-12)

    def test_without_models_there_is_no_score(self, world):
        with pytest.raises(ValueError, match="need the structural causal models"):
            replace(world.truth, scms=None).score(world.truth.Z)

    def test_environment_out_of_range(self, world):
        with pytest.raises(ValueError, match=r"one of the 2 environments, from 0 to 1. Got 2"):
            world.truth.score(world.truth.Z, 2)


class TestCovariates:
    def test_rows_keep_theirs(self):
        dataset = Dataset(np.eye(3), [0, 1, 1], covariates={"batch": ["a", "b", "c"]})
        part = dataset.environment(1)
        assert part.covariates is not None
        assert part.covariates["batch"].tolist() == ["b", "c"]
        assert Dataset(np.eye(2)).covariates is None

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            (["a"], "one entry for each of the 2 rows"),
            ([1.5, np.nan], "none missing"),
            (["a", ""], "none missing"),
            ([None, "a"], "none missing"),
        ],
    )
    def test_bad_ones_are_refused(self, values: Any, words: str):
        with pytest.raises(ValueError, match=words):
            Dataset(np.eye(2), covariates={"batch": values})
