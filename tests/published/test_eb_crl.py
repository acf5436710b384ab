from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from crlearn import load
from crlearn.data import make_multi_domain
from crlearn.exceptions import AssumptionWarning, DivergenceError, IdentifiabilityError
from crlearn.inputs import read_environments
from crlearn.metrics import evaluate, frobenius, relmse
from crlearn.published import EBCRL, eb_crl
from crlearn.published._eb_crl import (
    causal_score,
    em_f_modelling,
    match_columns,
    polar,
    posterior_moments,
    unmix,
    update_columns,
)


@pytest.fixture(scope="module")
def world() -> Any:
    return make_multi_domain(n_features=20, n_samples=400, random_state=0)


def run(world: Any, start: Any, n_iterations: int, **options: Any) -> Any:
    intervened = world.truth.targets[world.y - 1]
    fit = lambda rows: causal_score(rows, intervened, world.truth.graph)  # noqa: E731
    variance = options.pop("noise_variance", 2.0)
    return em_f_modelling(
        world.X, intervened, start, variance, fit, n_iterations=n_iterations, **options
    )


def error(answer: Any, world: Any) -> float:
    return float(((answer.mixing - world.truth.mixing.matrix) ** 2).sum())


def fitted(world: Any, **options: Any) -> Any:
    known = {"graph": world.truth.graph, "targets": world.known_targets}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        return EBCRL(**{**known, **options}).fit(world.X, world.y)


def relative_error(model: Any, world: Any) -> float:
    return relmse(world.truth.Z, model.transform(world.X, world.y), align="none")


class TestSteps:
    def test_columns_are_matched_to_targets(self):
        rng = np.random.default_rng(0)
        targets = np.eye(3, dtype=bool)
        means = 10 * np.eye(3) + 0.1 * rng.standard_normal((3, 3))
        shuffled = np.eye(3)[:, [2, 0, 1]] * [1, -1, 1]
        matched = match_columns(shuffled, means, targets, np.zeros(3))
        np.testing.assert_array_equal(matched, np.eye(3))

    def test_polar_factor(self):
        matrix = np.random.default_rng(0).standard_normal((5, 3))
        factor = polar(matrix)
        np.testing.assert_allclose(factor.T @ factor, np.eye(3), atol=1e-12)
        symmetric = factor.T @ matrix
        np.testing.assert_allclose(symmetric, symmetric.T, atol=1e-12)

    def test_moments_of_a_gaussian(self):
        """A prior N(0, 3) under noise of variance 1 has the posterior N(0.75 y, 0.75)."""
        y = np.array([[2.0], [-4.0]])
        mean, second = posterior_moments(y, np.eye(1), -y / 4, np.full((2, 1), -0.25), 1.0)
        np.testing.assert_allclose(mean, 0.75 * y)
        np.testing.assert_allclose(second, 0.75**2 * 20 + 2 * 0.75)

    def test_correlated_noise_spreads_a_score(self):
        noise = np.array([[2.0, 1.0], [1.0, 2.0]])
        mean, _ = posterior_moments(
            np.zeros((1, 2)), noise, np.array([[1.0, 0.0]]), np.zeros((1, 2)), 0.5
        )
        np.testing.assert_allclose(mean, [[1.0, 0.5]])

    def test_the_update_is_the_minimum_it_is_derived_from(self):
        """No mixing of the kind near the answer has a smaller objective (4.7)."""
        rng = np.random.default_rng(0)
        cross = rng.standard_normal((6, 3))
        half = rng.standard_normal((3, 3))
        second = half @ half.T + np.eye(3)

        def objective(A: Any, moment: Any) -> float:
            return float(np.trace(A.T @ A @ moment) - 2 * np.trace(A.T @ cross))

        free = update_columns("any", np.eye(6, 3), cross, second)
        for _ in range(20):
            near = free + 0.01 * rng.standard_normal((6, 3))
            assert objective(near, second) > objective(free, second)
        bound = update_columns("orthogonal", np.eye(6, 3), cross, second)
        inner = bound.T @ bound
        np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)
        for factor in (0.99, 1.01):  # D given O, one latent at a time
            for j in range(3):
                near = bound * np.where(np.arange(3) == j, factor, 1.0)
                assert objective(near, second) > objective(bound, second)
        fixed = update_columns("orthonormal", np.eye(6, 3), cross, second)
        np.testing.assert_allclose(fixed.T @ fixed, np.eye(3), atol=1e-12)
        for _ in range(20):
            near = polar(fixed + 0.01 * rng.standard_normal((6, 3)))
            assert np.vdot(near, cross) < np.vdot(fixed, cross)

    def test_unmixing(self):
        columns = np.array([[1.0, 0.6], [0.0, 0.8], [0.0, 0.0]])
        unmixing, noise = unmix(columns)
        np.testing.assert_allclose(unmixing @ columns, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(noise, unmixing @ unmixing.T, atol=1e-12)


class TestIterations:
    def test_without_shrinkage_the_rotation_never_moves(self, world: Any):
        span = np.linalg.eigh(world.X.T @ world.X)[1][:, -4:]
        rotation = polar(np.random.default_rng(0).standard_normal((4, 4)))
        answer = run(world, span @ rotation, 3, shrinkage=0.0)
        np.testing.assert_allclose(answer.mixing, span @ rotation, atol=1e-8)

    def test_the_truth_is_no_fixed_point(self, world: Any):
        truth = world.truth.mixing.matrix
        first, last = (run(world, truth, n) for n in (1, 30))
        assert error(last, world) > 3 * error(first, world)

    def test_the_noise_variance_is_right_at_the_truth(self, world: Any):
        answer = run(world, world.truth.mixing.matrix, 1)
        assert answer.noise_variance == pytest.approx(2, rel=0.03)
        assert answer.history["step"].shape == (1,)

    def test_scales_are_learned_on_request_and_drift(self, world: Any):
        truth = world.truth.mixing.matrix
        answer = run(world, truth, 5, kind="orthogonal")
        scales = np.linalg.norm(answer.mixing, axis=0)
        assert (np.abs(scales - 1) < 0.1).all()
        assert (scales != 1).all()
        fixed = np.linalg.norm(run(world, truth, 5).mixing, axis=0)
        np.testing.assert_allclose(fixed, 1, atol=1e-12)

    def test_scales_are_not_identified(self, world: Any):
        """Another scale of a column stays where it is: only the latents are rescaled."""
        factors = np.array([2.0, 0.7, 1.0, 1.5])
        plain, other = (
            run(world, world.truth.mixing.matrix * scale, 3, kind="orthogonal")
            for scale in (1.0, factors)
        )
        np.testing.assert_allclose(other.mixing, plain.mixing * factors, rtol=1e-8)

    def test_a_known_noise_variance_is_held_fixed(self, world: Any):
        answer = run(world, world.truth.mixing.matrix, 3, noise_variance=1.5, noise_is_known=True)
        assert answer.noise_variance == 1.5

    def test_a_known_mixing_leaves_the_noise_to_be_learned(self, world: Any):
        truth = world.truth.mixing.matrix
        answer = run(world, truth, 200, kind="given", noise_variance=5.0)
        assert answer.mixing is truth
        assert answer.noise_variance == pytest.approx(2, rel=0.03)
        assert not answer.history["step"].any()

    def test_nothing_is_iterated_where_all_is_known(self, world: Any):
        answer = run(world, world.truth.mixing.matrix, 9, kind="given", noise_is_known=True)
        assert len(answer.history["step"]) == 0

    @pytest.mark.parametrize("score", [np.nan, 0.0])
    def test_divergence_is_said(self, score: float):
        """Scores that are not finite; rows without noise, whose variance becomes zero."""
        rows = np.random.default_rng(0).standard_normal((10, 1)) * [1.0, 0.0, 0.0]
        zero: Any = lambda rows: lambda rows, _: (score * rows, 0 * rows - 1e30)  # noqa: E731
        with pytest.raises(DivergenceError, match=r"diverged in iteration \d.*EmpiricalBayesCRL"):
            em_f_modelling(rows, rows[:, :1] > 9, np.eye(3, 1), 1.0, zero, n_iterations=1000)


class TestOracle:
    """Mixing and noise variance are known and held fixed, as in Figure 3."""

    @pytest.fixture
    def errors(self, world: Any) -> dict[str, float]:
        known = {"mixing": world.truth.mixing.matrix, "noise_variance": 2.0}
        models = {
            structure: fitted(world, structure=structure, **known)
            for structure in ("graph", "full", "empty", "pool")
        }
        for model in models.values():
            np.testing.assert_array_equal(model.result_.decoder.matrix, known["mixing"])
            assert model.result_.details["noise_variance"] == pytest.approx(2.0, rel=1e-12)
            assert model.n_iter_ == 1
            assert "given mixing" in model.result_.guarantee.text
        models["none"] = fitted(world, shrinkage=0.0, **known)
        return {name: relative_error(model, world) for name, model in models.items()}

    def test_the_order_of_the_oracle_panel(self, errors: dict[str, float]):
        assert errors["graph"] < errors["empty"] < errors["pool"] < errors["none"]
        assert errors["full"] < errors["pool"]

    @pytest.mark.parametrize("mixing", ["given", "any", "orthonormal", "orthogonal"])
    def test_a_given_mixing_of_any_kind_is_exactly_that_of_the_result(
        self, world: Any, mixing: str
    ):
        skewed = world.truth.mixing.matrix @ (np.eye(4) + 0.1) * [1, 2, 3, 4]
        if mixing == "given":
            model = fitted(world, mixing=skewed, max_iter=2)
            np.testing.assert_array_equal(model.result_.decoder.matrix, skewed)
            latents = model.result_.encoder.noisy(world.X)
            np.testing.assert_allclose(latents, world.X @ np.linalg.pinv(skewed).T, atol=1e-8)
        else:
            learned = fitted(world, mixing=mixing, max_iter=2).result_.decoder.matrix
            norms = np.linalg.norm(learned, axis=0)
            assert np.allclose(norms, 1) == (mixing != "orthogonal")


class TestLearned:
    def test_iterations_leave_principal_components(self, world: Any):
        """Better than its start, which is the paper's PCA, and worse again if it goes on."""
        pca = fitted(world, max_iter=0, shrinkage=0.0)
        loadings = pca.result_.decoder.matrix
        np.testing.assert_allclose(loadings.T @ loadings, np.eye(4), atol=1e-10)
        model, longer = (fitted(world, max_iter=n) for n in (60, 150))
        errors = [evaluate(m, world, ["frobenius"])["frobenius"] for m in (pca, model, longer)]
        assert errors[1] < 0.1 * errors[0]
        assert errors[2] > 3 * errors[1]
        assert model.n_iter_ == 60
        assert model.result_.history["noise_variance"][-1] == pytest.approx(2, rel=0.05)

    def test_columns_that_are_not_orthogonal(self):
        """Section 4.6: A = O Lambda comes nearer to such a mixing than A = O does."""
        data: Any = make_multi_domain(
            n_features=20, n_samples=500, mechanism="tanh", mixing_skew=0.15, random_state=2
        )
        bound, free = (
            frobenius(
                data.truth.mixing.matrix,
                fitted(data, mixing=mixing, max_iter=150).result_.decoder.matrix,
            )
            for mixing in ("orthonormal", "any")
        )
        assert free < 0.5 * bound

    def test_where_columns_are_orthogonal_both_agree(self):
        data: Any = make_multi_domain(
            n_features=20, n_samples=2000, mechanism="tanh", random_state=0
        )
        start = data.truth.mixing.matrix
        free = run(data, start, 3, kind="any")
        np.testing.assert_allclose(free.mixing.T @ free.mixing, np.eye(4), atol=0.1)
        assert error(free, data) < 0.05

    def test_pooled_domains_do_not_see_the_targets(self, world: Any):
        model = fitted(world, structure="pool", max_iter=3)
        latents = model.transform(world.X, world.y)
        np.testing.assert_array_equal(latents, model.transform(world.X))

    def test_weights_of_environments(self, world: Any):
        environments = read_environments(world.y)
        weights = np.where(world.y == 1, 4.0, 0.0)
        options: Any = {"kind": "given", "mixing": world.truth.mixing.matrix}
        plain, weighted = (
            eb_crl(world.X, environments, world.truth.graph, weights=w, n_iterations=1, **options)
            for w in (None, weights)
        )
        assert not np.allclose(plain.encoder(world.X), weighted.encoder(world.X))


class TestWarnings:
    def test_iterations_that_have_not_settled(self, world: Any):
        with pytest.warns(AssumptionWarning, match="have settled: fails.*raise max_iter"):
            EBCRL(graph=world.truth.graph, targets=world.known_targets, max_iter=3).fit(
                world.X, world.y
            )

    def test_latents_outside_the_knots(self, world: Any):
        model = EBCRL(
            graph=world.truth.graph,
            targets=world.known_targets,
            mixing=world.truth.mixing.matrix,
            noise_variance=200.0,
        )
        with pytest.warns(AssumptionWarning, match="within the knots: fails.*multiply X"):
            model.fit(10 * world.X, world.y)

    def test_no_targets(self, world: Any):
        with pytest.warns(AssumptionWarning, match="none were given"):
            model = EBCRL(4, max_iter=0).fit(world.X, world.y)
        assert model.graph_ is None
        assert model.result_.guarantee.latents == "none"

    def test_targets_without_a_graph(self, world: Any):
        with pytest.raises(ValueError, match="'graph' has to be given too"):
            EBCRL(targets=world.known_targets).fit(world.X, world.y)

    def test_latents_that_run_away(self):
        data = make_multi_domain(n_features=20, n_samples=200, mechanism="literal", random_state=1)
        with pytest.raises(IdentifiabilityError, match="run away"):
            fitted(data)


class TestInterface:
    def test_saves_what_it_knows(self, world: Any, tmp_path: Any):
        model = fitted(world, max_iter=2, mixing="any", structure="full")
        model.save(tmp_path / "model.crl")
        loaded = load(tmp_path / "model.crl")
        for y in (world.y, None):
            one, other = (m.posterior(world.X, y) for m in (loaded, model))
            np.testing.assert_array_equal(one.mean, other.mean)
            np.testing.assert_array_equal(one.variance, other.variance)

    def test_same_bits_again(self, world: Any):
        one, other = (fitted(world, max_iter=2).transform(world.X) for _ in range(2))
        np.testing.assert_array_equal(one, other)
