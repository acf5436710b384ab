from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from crlearn.inputs import read_covariates, without_effects

N_ROWS = 1200
RNG = np.random.default_rng(0)
CODES = np.repeat([0, 1, 2], N_ROWS // 3)
BATCH = RNG.choice(["a", "b", "c"], N_ROWS)
AGE = RNG.uniform(20, 60, N_ROWS)
NOISE = RNG.standard_normal((N_ROWS, 4)) @ RNG.standard_normal((4, 6))
BATCH_EFFECTS = {name: RNG.standard_normal(6) for name in "abc"}
AGE_EFFECT = RNG.standard_normal(6)


def measured(batch: Any = BATCH, age: Any = AGE) -> Any:
    means = 3 * np.arange(3)[:, None] * np.ones(6)
    effects = np.array([BATCH_EFFECTS[name] for name in batch])
    return means[CODES] + NOISE + effects + 0.1 * age[:, None] * AGE_EFFECT


def columns(**given: Any) -> Any:
    return read_covariates(given, N_ROWS)


def check(checks: Any, name: str) -> Any:
    return next(each for each in checks if each.name == name)


def test_effects_are_taken_off():
    rows, effects, checks = without_effects(measured(), CODES, columns(batch=BATCH, age=AGE))
    left = [rows[e == CODES] - rows[e == CODES].mean(axis=0) for e in range(3)]
    expected = [NOISE[e == CODES] - NOISE[e == CODES].mean(axis=0) for e in range(3)]
    for found, true in zip(left, expected, strict=True):
        assert np.abs(np.cov(found.T) - np.cov(true.T)).max() < 0.1 * np.abs(np.cov(true.T)).max()
    apart = effects({"batch": ["a", "b"], "age": [30.5, 30.5]}, 2)
    assert apart[1] - apart[0] == pytest.approx(BATCH_EFFECTS["b"] - BATCH_EFFECTS["a"], abs=0.3)
    older = effects({"batch": ["a", "a"], "age": [30.0, 40.0]}, 2)
    assert older[1] - older[0] == pytest.approx(AGE_EFFECT, abs=0.3)
    assert all(each.passed for each in checks)
    assert check(checks, "effects of covariates").detail.startswith("3 effects of batch, age")


def test_what_differs_between_environments_is_no_effect():
    rows, _, _ = without_effects(measured(), CODES, columns(batch=BATCH, age=AGE))
    apart = rows[CODES == 1].mean(axis=0) - rows[CODES == 0].mean(axis=0)
    assert apart == pytest.approx(3, abs=0.5)


def test_covariates_that_are_environments_stay_in_the_means():
    names = np.array(["x", "y", "z"])[CODES]
    X = measured()
    rows, effects, checks = without_effects(X, CODES, columns(batch=names))
    assert rows == pytest.approx(X)
    assert effects({"batch": ["x"]}, 1) == pytest.approx(0)
    said = check(checks, "effects of covariates").detail
    assert "do not vary inside of environments" in said
    assert "2 cannot be told from those of environments" in said


def test_batches_of_one_environment_each_can_be_told():
    """Batches of the second environment are no batches of the first."""
    nested = np.char.add(BATCH, CODES.astype(str))
    rows, _, checks = without_effects(measured(), CODES, columns(batch=nested, age=AGE))
    first = rows[CODES == 0]
    means = [first[BATCH[CODES == 0] == name].mean(axis=0) for name in "abc"]
    assert means[1] == pytest.approx(means[0])
    assert "7 effects" in check(checks, "effects of covariates").detail


def test_constant_and_repeated_columns_do_no_harm():
    once, _, _ = without_effects(measured(), CODES, columns(batch=BATCH))
    twice, _, _ = without_effects(
        measured(), CODES, columns(batch=BATCH, again=BATCH, same=["k"] * N_ROWS)
    )
    assert twice == pytest.approx(once)


def test_effects_that_differ_between_environments_are_noticed():
    X = measured() + np.where((CODES == 1) & (BATCH == "b"), 1.0, 0.0)[:, None] * AGE_EFFECT
    _, _, checks = without_effects(X, CODES, columns(batch=BATCH, age=AGE))
    assert not check(checks, "effects of covariates are alike in all environments").passed


def test_lost_degrees_of_freedom_are_made_up_for():
    many = RNG.integers(0, 100, N_ROWS)
    rows, _, _ = without_effects(NOISE, CODES, columns(batch=many))
    ratio = np.trace(np.cov(rows[CODES == 0].T)) / np.trace(np.cov(NOISE[CODES == 0].T))
    assert ratio == pytest.approx(1, abs=0.05)


def test_too_many_labels_are_refused():
    with pytest.raises(ValueError, match=r"too many effects for the rows.*'plate' has 1200 labels"):
        without_effects(measured(), CODES, columns(plate=np.arange(N_ROWS)))


def test_far_too_many_labels_are_refused_before_they_fill_the_memory():
    n_rows = 200_000
    totals = read_covariates({"total": np.arange(n_rows)}, n_rows)
    with pytest.raises(ValueError, match="'total' has 200000 labels"):
        without_effects(np.zeros((n_rows, 1)), np.arange(n_rows) % 2, totals)


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (np.array(["a", "b"]), ("a", "b")),
        (["a", "b"], ("a", "b")),
        ([1, 2], ("1", "2")),
        ([1.0, 2.0], ("1", "2")),
        ([True, False], ("False", "True")),
        ([0.5, 2.0], ()),
        (pd.Series(["a", "b"], dtype="category"), ("a", "b")),
        (pl.Series(["a", "b"]), ("a", "b")),
    ],
)
def test_texts_and_whole_numbers_are_labels(given: Any, labels: Any):
    (column,) = read_covariates(given, 2)
    assert column.labels == labels


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_columns_have_names(frame: Any):
    found = read_covariates(frame({"batch": ["a", "b"], "age": [1.5, 2.5]}), 2)
    assert [column.name for column in found] == ["batch", "age"]


def test_columns_of_a_matrix_are_numbered():
    found = read_covariates([[1, 0.5], [2, 1.5]], 2)
    assert [column.name for column in found] == ["covariate 0", "covariate 1"]
    assert [bool(column.labels) for column in found] == [True, False]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a"], r"one entry for each of the 2 rows of X. 'covariate 0' has 1"),
        (["a", None], r"'covariate 0' is missing in 1 of 2 rows"),
        ([1.5, np.nan], r"missing in 1 of 2 rows"),
        (pd.Series(["a", pd.NA], dtype="object"), r"'covariate 0' is missing in 1 of 2 rows"),
        (pd.Series([1, None], dtype="Int64"), r"missing in 1 of 2 rows"),
        ([1.5, np.inf], r"must be finite"),
        ([1.5, "a"], r"all of one kind. Got 'a' beside numbers"),
        ({}, r"have no column"),
        (np.zeros((2, 2, 2)), r"have the shape \(2, 2, 2\)"),
        ({"a": [[1], [2]]}, r"'a' has the shape"),
    ],
)
def test_bad_covariates_are_refused(given: Any, words: str):
    with pytest.raises(ValueError, match=words):
        read_covariates(given, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": ["d"], "age": [30.5]}, r"'batch' has labels that fit has not seen.*: d\."),
        ({"batch": ["a"]}, r"must be those of fit: batch, age. Got batch\."),
        (["a"], r"must be those of fit: batch, age. Got 1 columns"),
        ({"batch": ["a"], "age": ["old"]}, r"'age' must hold"),
    ],
)
def test_other_covariates_than_those_of_the_fit_are_refused(given: Any, words: str):
    _, effects, _ = without_effects(measured(), CODES, columns(batch=BATCH, age=AGE))
    with pytest.raises(ValueError, match=words):
        effects(given, 1)


@pytest.mark.parametrize(("fitted", "given"), [(bool, int), (int, bool), (bool, float)])
def test_truth_values_are_the_numbers_that_they_equal(fitted: Any, given: Any):
    treated = BATCH == "b"
    _, effects, _ = without_effects(measured(), CODES, columns(treated=treated.astype(fitted)))
    same = effects({"treated": treated.astype(given)}, N_ROWS)
    assert same == pytest.approx(effects({"treated": treated.astype(fitted)}, N_ROWS))
    with pytest.raises(ValueError, match=r"labels that fit has not seen.*: 2"):
        effects({"treated": [2]}, 1)


def test_columns_are_found_by_name_or_place():
    _, effects, _ = without_effects(measured(), CODES, columns(batch=BATCH, age=AGE))
    expected = effects({"batch": ["a"], "age": [30.0]}, 1)
    assert effects(pd.DataFrame({"age": [30], "batch": ["a"]}), 1) == pytest.approx(expected)
    assert effects(np.array([["a", 30.0]], dtype=object), 1) == pytest.approx(expected)
