"""What methods with a graph and targets share that denoise, and the linear methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from crlearn import (
    EmpiricalBayesCRL,
    GaussianPriorCRL,
    LinearInterventionCRL,
    MultiNodeCRL,
    StructuralPriorCRL,
    load,
)
from crlearn.data import (
    make_count_interventional,
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
)
from crlearn.exceptions import AssumptionWarning
from crlearn.methods import PosteriorEncoder
from crlearn.methods._denoising import ExplicitPriorCRL
from crlearn.metrics import correlation_matrix, mcc
from crlearn.persist._values import decode, encode
from crlearn.published import EBCRL


@pytest.fixture(scope="module")
def data() -> Any:
    return make_multi_domain(n_latents=3, n_features=10, n_samples=300, random_state=1)


@pytest.fixture(
    scope="module", params=[EmpiricalBayesCRL, StructuralPriorCRL, GaussianPriorCRL, EBCRL]
)
def model(request: Any, data: Any) -> Any:
    known = {"graph": data.truth.graph, "targets": data.known_targets}
    if request.param is EBCRL:
        known |= {"mixing": data.truth.mixing.matrix}
    if request.param is StructuralPriorCRL:
        known |= {"n_steps": 200, "n_restarts": 1, "random_state": 0}
    return request.param(**known).fit(data.X, data.y)


def test_transform_gives_the_means_of_the_posterior(data: Any, model: Any):
    for y in (data.y, None):
        np.testing.assert_array_equal(model.transform(data.X, y), model.posterior(data.X, y).mean)


def test_fit_transform_is_told_the_labels(data: Any, model: Any):
    unfitted: Any = clone(model)
    found = unfitted.fit_transform(data.X, data.y)
    np.testing.assert_array_equal(found, model.transform(data.X, data.y))
    assert not np.allclose(found, model.transform(data.X))


def test_labels_say_more_than_none(data: Any, model: Any):
    true = data.truth.Z
    with_labels, without = (
        ((model.transform(data.X, y) - true) ** 2).mean() for y in (data.y, None)
    )
    noisy = data.X @ data.truth.mixing.matrix  # whose columns are orthonormal
    assert with_labels < without < ((noisy - true) ** 2).mean()


def test_labels_that_are_not_known(data: Any, model: Any):
    with pytest.raises(ValueError, match=r"y names .* not .*: 9. Known are 1, 2, 3"):
        model.transform(data.X[:2], [1, 9])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.transform(data.X[:2], [1])


def test_labels_are_read_where_no_targets_are_known(data: Any):
    with pytest.warns(AssumptionWarning, match="targets are known: fails"):
        spanned = EmpiricalBayesCRL(3).fit(data.X, data.y)
    np.testing.assert_array_equal(spanned.transform(data.X, data.y), spanned.transform(data.X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        spanned.transform(data.X[:2], [1])


@pytest.mark.parametrize("name", ["graph", "targets", "mixing", "center", "scale", "n_steps"])
def test_explicit_priors_take_the_same_parameters(name: str):
    models = GaussianPriorCRL, StructuralPriorCRL
    assert all(issubclass(model, ExplicitPriorCRL) for model in models)
    one, other = (model._parameter_constraints[name] for model in models)
    assert one is other
    assert len({getattr(model(), name) for model in models}) == 1


def test_rows_far_outside_the_range_of_the_fit(data: Any, model: Any):
    message = f"{type(model).__name__}: 2 of 3 rows have latents far outside"
    with pytest.warns(AssumptionWarning, match=message):
        model.transform(data.X[:3] * [[100], [1], [-100]])
    with pytest.warns(AssumptionWarning, match=message):
        model.posterior(data.X[:3] * [[100], [1], [-100]])


@pytest.fixture(scope="module")
def measured() -> Any:
    return make_linear_interventional(
        3, 20, 4000, variance_factor=5.0, measurement_noise=0.5, random_state=0
    )


@pytest.fixture(scope="module")
def linear(measured: Any) -> LinearInterventionCRL:
    return LinearInterventionCRL(n_latents=3, random_state=0).fit(measured.X, measured.y)


def limit(world: Any) -> np.ndarray:
    """Posterior means with the true parameters."""
    truth, X, y = world.truth, world.X, np.asarray(world.y)
    G, Z = truth.mixing.matrix, np.empty_like(truth.Z)
    for e in np.unique(y):
        z, x = truth.Z[y == e], X[y == e]
        C = np.cov(z.T)
        gain = C @ G.T @ np.linalg.inv(G @ C @ G.T + 0.25 * np.eye(len(G)))
        Z[y == e] = z.mean(axis=0) + (x - x.mean(axis=0)) @ gain.T
    return Z


class TestLinearMethods:
    def test_noise_is_taken_off_as_far_as_it_can_be(
        self, measured: Any, linear: LinearInterventionCRL
    ):
        assert not linear.result_.failed_checks
        np.testing.assert_array_equal(linear.result_.adjacency, measured.truth.graph)
        np.testing.assert_allclose(linear.result_.details["noise_sds"], 0.5, rtol=0.05)
        own = np.diag(
            correlation_matrix(measured.truth.Z, linear.transform(measured.X, measured.y))
        )
        best = np.diag(correlation_matrix(measured.truth.Z, limit(measured)))
        assert (own > best - 0.003).all()

    def test_labels_help(self, measured: Any, linear: LinearInterventionCRL):
        known = np.diag(
            correlation_matrix(measured.truth.Z, linear.transform(measured.X, measured.y))
        )
        unknown = np.diag(correlation_matrix(measured.truth.Z, linear.transform(measured.X)))
        assert known.mean() >= unknown.mean()

    def test_fit_transform_is_told_the_labels(self, measured: Any, linear: LinearInterventionCRL):
        again = LinearInterventionCRL(n_latents=3, random_state=0)
        np.testing.assert_array_equal(
            again.fit_transform(measured.X, measured.y), linear.transform(measured.X, measured.y)
        )

    def test_posterior_variances_are_those_of_the_errors(
        self, measured: Any, linear: LinearInterventionCRL
    ):
        """In units of the truth, whose scale the model does not know."""
        posterior = linear.posterior(measured.X, measured.y)
        for j in range(3):
            scale = np.polyfit(posterior.mean[:, j], measured.truth.Z[:, j], 1)[0]
            errors = measured.truth.Z[:, j] - scale * posterior.mean[:, j]
            assert errors.var() == pytest.approx(
                scale**2 * posterior.variance[:, j].mean(), rel=0.15
            )

    def test_the_decoder_is_the_mixing(self, measured: Any, linear: LinearInterventionCRL):
        decoded = linear.inverse_transform(np.eye(3)) - linear.inverse_transform(np.zeros((3, 3)))
        for column, true in zip(decoded, measured.truth.mixing.matrix.T, strict=True):
            cosine = abs(column @ true) / np.linalg.norm(column) / np.linalg.norm(true)
            assert cosine > 0.99

    def test_labels_of_another_type(self, measured: Any, linear: LinearInterventionCRL):
        Z = linear.transform(measured.X, measured.y)
        np.testing.assert_array_equal(linear.transform(measured.X, measured.y.astype(float)), Z)
        np.testing.assert_array_equal(linear.transform(measured.X, measured.y.astype(str)), Z)

    def test_labels_that_fit_has_not_seen(self, measured: Any, linear: LinearInterventionCRL):
        with pytest.raises(ValueError, match=r"has not seen: 7\."):
            linear.transform(measured.X[:2], [0, 7])

    def test_it_is_saved(self, measured: Any, linear: LinearInterventionCRL, tmp_path: Path):
        linear.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl")
        assert isinstance(again.result_.encoder, PosteriorEncoder)
        np.testing.assert_array_equal(
            again.transform(measured.X, measured.y), linear.transform(measured.X, measured.y)
        )

    def test_without_noise_posteriors_have_no_variance(self):
        world = make_linear_interventional(2, 5, 500, random_state=0)
        model = LinearInterventionCRL(random_state=0).fit(world.X, world.y)
        posterior = model.posterior(world.X)
        np.testing.assert_array_equal(posterior.mean, model.transform(world.X, world.y))
        assert (posterior.variance == 0).all()

    def test_unknown_targets_behind_noise(self):
        world: Any = make_multi_node(3, 20, 4000, measurement_noise=0.3, random_state=0)
        model: Any = MultiNodeCRL(n_latents=3, random_state=0).fit(world.X, world.y)
        correlations = correlation_matrix(world.truth.Z, model.transform(world.X, world.y))
        assert correlations.max(axis=1).min() > 0.95
        place = correlations.argmax(axis=1)
        np.testing.assert_array_equal(model.result_.targets[:, place], world.truth.targets)


@pytest.fixture(scope="module")
def counted() -> Any:
    """Counts with means that differ between environments, and so their noise."""
    return make_count_interventional(3, 20, 4000, mean_count=5, shift=3.0, random_state=1)


@pytest.fixture(scope="module")
def by_counts(counted: Any) -> LinearInterventionCRL:
    model = LinearInterventionCRL(3, noise="poisson", mechanisms="linear", random_state=0)
    return model.fit(counted.X, counted.y)


class TestCounts:
    def test_noise_is_that_of_each_environment(
        self, counted: Any, by_counts: LinearInterventionCRL
    ):
        encoder: Any = by_counts.result_.encoder
        assert not by_counts.result_.failed_checks
        np.testing.assert_array_equal(by_counts.result_.adjacency, counted.truth.graph)
        matrix, X, y = encoder.matrix, counted.X, counted.y
        for e in range(4):
            own = matrix @ np.diag(X[y == e].mean(axis=0)) @ matrix.T
            np.testing.assert_allclose(encoder.noise[e], own)
        np.testing.assert_allclose(encoder.pooled_noise, encoder.noise.mean(axis=0))
        sds = by_counts.result_.details["noise_sds"]
        np.testing.assert_allclose(sds, np.sqrt(X.mean(axis=0)))

    @pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
    def test_it_is_better_than_other_noise(self, counted: Any, by_counts: LinearInterventionCRL):
        found = {"poisson": mcc(counted.truth.Z, by_counts.transform(counted.X, counted.y))}
        for noise in ("gaussian", "none"):
            other = LinearInterventionCRL(3, noise=noise, mechanisms="linear", random_state=0)
            other.fit(counted.X, counted.y)
            failed = {check.name for check in other.result_.failed_checks}
            assert "single-node interventions fit" in failed
            found[noise] = mcc(counted.truth.Z, other.transform(counted.X, counted.y))
        assert found["poisson"] > found["gaussian"] + 0.02 > found["none"] + 0.04

    def test_posterior_variances_are_those_of_the_errors(
        self, counted: Any, by_counts: LinearInterventionCRL
    ):
        posterior = by_counts.posterior(counted.X, counted.y)
        for j in range(3):
            scale = np.polyfit(posterior.mean[:, j], counted.truth.Z[:, j], 1)[0]
            for e in range(4):
                rows = counted.y == e
                errors = (counted.truth.Z[:, j] - scale * posterior.mean[:, j])[rows]
                expected = scale**2 * posterior.variance[rows, j].mean()
                assert errors.var() == pytest.approx(expected, rel=0.2)

    def test_labels_help(self, counted: Any, by_counts: LinearInterventionCRL):
        Z = counted.truth.Z
        known, unknown = (mcc(Z, by_counts.transform(counted.X, y)) for y in (counted.y, None))
        assert known > unknown

    def test_order_of_features_and_environments_does_not_matter(
        self, counted: Any, by_counts: LinearInterventionCRL
    ):
        X, y = counted.X[:, ::-1], np.array([9, 3, 2, 1])[counted.y]
        model = LinearInterventionCRL(
            3, noise="poisson", mechanisms="linear", reference=9, random_state=0
        ).fit(X, y)
        turned = correlation_matrix(
            by_counts.transform(counted.X, counted.y), model.transform(X, y)
        )
        np.testing.assert_allclose(turned[:, ::-1].diagonal(), 1, atol=1e-5)

    def test_it_is_saved(self, counted: Any, by_counts: LinearInterventionCRL, tmp_path: Path):
        by_counts.save(tmp_path / "model.crl")
        again = load(tmp_path / "model.crl")
        for y in (counted.y, None):
            np.testing.assert_array_equal(
                again.transform(counted.X, y), by_counts.transform(counted.X, y)
            )

    def test_unknown_targets(self):
        world: Any = make_count_interventional(
            3, 20, 4000, mean_count=50, kind="multi-node", random_state=1
        )
        model: Any = MultiNodeCRL(3, noise="poisson", random_state=0).fit(world.X, world.y)
        correlations = correlation_matrix(world.truth.Z, model.transform(world.X, world.y))
        place = correlations.argmax(axis=1)
        np.testing.assert_array_equal(model.result_.targets[:, place], world.truth.targets)

    @pytest.mark.parametrize("estimator", [LinearInterventionCRL, MultiNodeCRL])
    def test_what_is_left_without_covariates_are_no_counts(self, estimator: Any, counted: Any):
        batches = np.arange(len(counted.X)) % 2
        with pytest.raises(ValueError, match=r"noise='poisson' X must hold counts.*no covariates"):
            estimator(3, noise="poisson").fit(counted.X, counted.y, covariates=batches)


def test_encoders_of_older_files_have_one_noise(measured: Any, linear: LinearInterventionCRL):
    """Files had one matrix for all environments, and none for all together."""
    encoder: Any = linear.result_.encoder
    tensors: dict[str, Any] = {}
    older = encode(encoder, tensors, "encoder")
    del older["fields"]["pooled_noise"]
    older["fields"]["noise"] = encode(encoder.noise[0], tensors, "noise") | {"$array": "noise"}
    tensors["noise"] = encoder.noise[0]
    again = decode(older, tensors)
    codes = np.asarray(measured.y)
    for given in (codes, None):
        expected, found = (each.posterior(measured.X, given) for each in (encoder, again))
        np.testing.assert_allclose(found.mean, expected.mean)
        np.testing.assert_allclose(found.variance, expected.variance)
