"""Covariates and rows far out, through the estimators that take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from crlearn import (
    EmpiricalBayesCRL,
    LinearInterventionCRL,
    MultiNodeCRL,
    ObservationalCRL,
    load,
)
from crlearn.data import make_broken
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate

KINDS: dict[str, Any] = {
    "single-node": LinearInterventionCRL,
    "multi-node": MultiNodeCRL,
    "multi-domain": EmpiricalBayesCRL,
}


def world(kind: Any = "single-node", broken: str = "nothing", n_rows: int = 1000) -> Any:
    return make_broken(3, 8, n_rows, kind=kind, broken=broken, random_state=0)


def estimator(data: Any, kind: str, **options: Any) -> Any:
    if kind == "multi-domain":
        known = {"graph": np.array(data.truth.graph), "targets": data.known_targets}
        # The mean of the batches' effects is an offset, which nothing tells from that of X.
        return EmpiricalBayesCRL(**known, center=True, random_state=0, **options)
    return KINDS[kind](3, random_state=0, **options)


def fitted(data: Any, kind: str, **options: Any) -> Any:
    return estimator(data, kind, **options).fit(data.X, data.y, covariates=data.covariates)


def warnings_of(data: Any, kind: str, **options: Any) -> str:
    with pytest.warns(AssumptionWarning) as caught:
        fitted(data, kind, **options)
    return " ".join(str(warning.message) for warning in caught)


def check_of(model: Any, name: str) -> Any:
    return next(check for check in model.result_.checks if check.name == name)


@pytest.mark.parametrize("kind", KINDS)
def test_known_batches_do_no_harm(kind: str):
    clean, batches = world(kind), world(kind, "known batches")
    expected = evaluate(fitted(clean, kind), clean)["mcc"]
    model = fitted(batches, kind)
    assert evaluate(model, batches)["mcc"] == pytest.approx(expected, abs=0.02)
    assert check_of(model, "effects of covariates").detail.startswith("2 effects of batch")


def test_batches_that_nobody_names_do_harm():
    batches = replace(world(broken="known batches"), covariates=None)
    assert "fails" in warnings_of(batches, "single-node")


@pytest.mark.parametrize("kind", ["single-node", "multi-node"])
def test_rows_far_out_do_no_harm(kind: str):
    clean, broken = world(kind), world(kind, "outliers")
    moved = np.abs(broken.X - clean.X).max(axis=1) > 0
    expected = evaluate(fitted(clean, kind), clean)
    model = fitted(broken, kind, outliers="downweight")
    found = evaluate(model, clean)
    assert found["mcc"] == pytest.approx(expected["mcc"], abs=0.02)
    assert found["shd"] == expected["shd"]
    weights = model.result_.details["weights"]
    assert weights.shape == (len(broken.X),)
    assert (weights[moved] == 0).mean() > 0.95
    assert (weights[~moved] == 0).sum() <= 2
    said = f"{int((weights == 0).sum())} of {len(weights)} rows stand far out"
    assert said in str(model.result_)
    assert not model.result_.failed_checks


def test_domains_without_rows_far_out():
    clean = world("multi-domain")
    X = np.array(clean.X)
    X[::100] += 30 * X.std(axis=0) * np.random.default_rng(0).standard_normal((len(X[::100]), 8))
    model = fitted(replace(clean, X=X), "multi-domain", outliers="downweight")
    assert (model.result_.details["weights"][::100] == 0).mean() > 0.95
    expected = evaluate(fitted(clean, "multi-domain"), clean)["mcc"]
    assert evaluate(model, clean)["mcc"] == pytest.approx(expected, abs=0.02)


def test_the_failed_check_names_the_remedy():
    said = warnings_of(world("multi-node", "outliers"), "multi-node")
    assert "outliers='downweight' leaves rows far out aside" in said


@pytest.mark.parametrize("kind", ["single-node", "multi-node"])
def test_rows_are_named_as_they_were_given(kind: Any):
    """Ten rows are left out; too many to be left out lie far out in an environment."""
    clean = world(kind)
    X, rng = np.array(clean.X), np.random.default_rng(0)
    moved = np.flatnonzero(clean.y == 1)[::10]
    away = rng.standard_normal((len(moved), 3)) * clean.truth.Z.std(axis=0)
    X[moved] += 20 * away @ clean.truth.mixing.matrix.T
    first = np.flatnonzero(clean.y == 0)[:10]
    X[first] += 1000 * X.std(axis=0)
    said = warnings_of(
        replace(clean, X=X), kind, outliers="downweight", mechanisms="linear", noise="none"
    )
    assert f"fitted rows stand far out ({', '.join(map(str, moved[:8]))}, ...)" in said
    assert "without them the answer is another one)" in said


def test_effects_are_those_of_the_rows_that_are_kept():
    batches = world(broken="known batches")
    X = np.array(batches.X)
    X[::101] += 1000 * X.std(axis=0)
    model = fitted(replace(batches, X=X), "single-node", outliers="downweight")
    assert evaluate(model, batches)["mcc"] > 0.98
    assert (model.result_.details["weights"] == 0).sum() == len(X[::101])


def test_many_rows_far_out_are_no_outliers():
    """Three in a hundred are moved inside of the span, and three others outside of it."""
    clean = world()
    X = np.array(clean.X)
    X[::33] += 100 * (clean.truth.Z.std(axis=0) @ clean.truth.mixing.matrix.T)
    X[1::33, 0] += X[:, 0].std()
    said = warnings_of(replace(clean, X=X), "single-node", outliers="downweight")
    assert "rows left out are few: fails" in said


def test_effects_of_their_own_are_noticed():
    batches = world(broken="known batches")
    other = (batches.y == 1) & (batches.covariates["batch"] == "batch 1")
    X = np.where(other[:, None], batches.X + 2 * batches.X.std(axis=0), batches.X)
    said = warnings_of(replace(batches, X=X), "single-node")
    assert "alike in all environments: fails" in said


class TestObservational:
    @staticmethod
    def data(broken: str = "nothing") -> Any:
        return make_broken(
            2, 4, 800, kind="observational", mechanism="norm_squared", broken=broken, random_state=5
        )

    def test_rows_are_judged_by_their_noises(self):
        clean, broken = self.data(), self.data("outliers")
        model = ObservationalCRL(2, outliers="downweight", random_state=0).fit(broken.X)
        plain = ObservationalCRL(2, random_state=0).fit(clean.X)
        scores = [evaluate(each, clean)["layer_recovery"] for each in (model, plain)]
        assert scores[0] == pytest.approx(scores[1], abs=0.02)
        assert 4 <= (model.result_.details["weights"] == 0).sum() <= 10

    @pytest.mark.parametrize("noise", ["none", "gaussian"])
    def test_a_row_without_finite_noises_is_far_out(self, noise: str):
        X = self.data().X
        model = ObservationalCRL(
            2, noise=noise, outliers="downweight", n_starts=2, random_state=0
        ).fit(np.vstack([X, np.full((1, X.shape[1]), 1e60)]))
        weights = model.result_.details["weights"]
        assert weights[-1] == 0
        assert (weights == 0).sum() <= 10

    def test_known_batches(self):
        batches = self.data("known batches")
        model = ObservationalCRL(2, random_state=0)
        model.fit(batches.X, covariates=batches.covariates)
        plain = ObservationalCRL(2, random_state=0).fit(self.data().X)
        expected = evaluate(plain, self.data())["layer_recovery"]
        assert evaluate(model, batches)["layer_recovery"] == pytest.approx(expected, abs=0.02)
        assert model.noises(batches.X, covariates=batches.covariates).shape == (800, 2)
        with pytest.raises(ValueError, match="was fitted with covariates"):
            model.noises(batches.X)


class TestTransform:
    def test_effects_are_taken_off_again(self):
        batches = world(broken="known batches")
        model = fitted(batches, "single-node")
        some = {"batch": batches.covariates["batch"][:5]}
        whole = model.transform(batches.X, covariates=batches.covariates)
        assert model.transform(batches.X[:5], covariates=some) == pytest.approx(whole[:5])
        assert model.posterior(batches.X[:5], covariates=some).mean == pytest.approx(whole[:5])
        fresh: Any = clone(model)
        again = fresh.fit_transform(batches.X, batches.y, covariates=batches.covariates)
        assert again == pytest.approx(whole)

    def test_covariates_are_asked_for(self):
        batches = world(broken="known batches")
        with pytest.raises(ValueError, match=r"was fitted with covariates \(batch\)"):
            fitted(batches, "single-node").transform(batches.X)

    def test_covariates_that_fit_had_not_are_refused(self):
        clean = world()
        with pytest.raises(ValueError, match="was fitted without covariates"):
            fitted(clean, "single-node").transform(clean.X, covariates=["a"] * len(clean.X))

    def test_unknown_labels_are_refused(self):
        batches = world(broken="known batches")
        with pytest.raises(ValueError, match="labels that fit has not seen"):
            fitted(batches, "single-node").transform(batches.X[:1], covariates=["batch 9"])

    def test_data_frames(self):
        batches = world(broken="known batches")
        frame = pd.DataFrame(dict(zip(batches.names, batches.X.T, strict=True)))
        covariates = pd.DataFrame(batches.covariates)
        model = estimator(batches, "single-node").set_output(transform="pandas")
        latents = model.fit(frame, batches.y, covariates=covariates).transform(
            frame, covariates=covariates
        )
        assert list(latents.columns) == ["z0", "z1", "z2"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_files(self, kind: str, tmp_path: Path):
        batches = world(kind, "known batches", 400)
        model = fitted(batches, kind, outliers="downweight")
        model.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl")
        given = {"covariates": batches.covariates}
        assert again.transform(batches.X, **given) == pytest.approx(
            model.transform(batches.X, **given)
        )
        weights = again.result_.details["weights"]
        assert np.array_equal(weights, model.result_.details["weights"])


@pytest.mark.parametrize("outliers", ["keep", "downweight"])
def test_rows_that_do_not_vary(outliers: Any):
    with pytest.raises(ValueError, match="All columns of X are constant"):
        ObservationalCRL(2, outliers=outliers).fit(np.ones((50, 3)))


@pytest.mark.parametrize("outliers", ["keep", "downweight"])
def test_labels_of_several_kinds(outliers: str):
    batches = world(broken="known batches")
    labels = np.array([0, "a", 2, 3.5], dtype=object)[batches.y]
    model = estimator(batches, "single-node", outliers=outliers)
    with pytest.raises(ValueError, match="y must hold labels of one kind"):
        model.fit(batches.X, labels, covariates=batches.covariates)


def test_a_parameter_that_is_neither():
    clean = world()
    with pytest.raises(ValueError, match=r"'outliers' parameter.*'downweight'"):
        fitted(clean, "single-node", outliers="drop")


def test_nothing_changes_unless_it_is_asked_for():
    clean = world()
    details = fitted(clean, "single-node").result_.details
    assert "weights" not in details
    assert "covariate_effects" not in details
