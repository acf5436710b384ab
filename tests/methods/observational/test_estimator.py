from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from crlearn import ObservationalCRL, load
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError

# Features, latents and noises: z1 is the square of z0, plus noise.
NOISE = np.random.default_rng(0).normal(size=(400, 2)) * [2.0, 0.3]
NOISE -= NOISE.mean(axis=0)
Z = np.column_stack([NOISE[:, 0], NOISE[:, 0] ** 2 + NOISE[:, 1]])
X = Z @ np.random.default_rng(1).normal(size=(2, 5)) + 3.0


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(a, b)[0, 1])


@pytest.fixture(scope="module")
def square() -> Any:
    return ObservationalCRL(random_state=0).fit(X)


class TestTheLikelihood:
    def test_a_square_is_recovered(self, square: Any):
        latents, noises = square.transform(X), square.noises(X)
        assert abs(correlation(noises[:, 0], NOISE[:, 0])) > 0.999
        assert abs(correlation(noises[:, 1], NOISE[:, 1])) > 0.99
        assert abs(correlation(latents[:, 1], Z[:, 1])) > 0.999
        np.testing.assert_allclose(square.inverse_transform(latents), X, atol=1e-8)

    def test_units_are_readable(self, square: Any):
        latents = square.transform(X)
        np.testing.assert_allclose(latents.std(axis=0), 1)
        matrix = square.result_.encoder.matrix * X.std(axis=0)
        assert (matrix[np.arange(2), np.abs(matrix).argmax(axis=1)] > 0).all()
        # Noises have the units and signs of the latents.
        sign = np.sign(correlation(latents[:, 1], Z[:, 1]))
        expected = sign * NOISE[:, 1] / Z[:, 1].std()
        np.testing.assert_allclose(square.noises(X)[:, 1].std(), expected.std(), rtol=0.05)
        assert correlation(square.noises(X)[:, 1], expected) > 0.99

    def test_the_result_says_what_was_found(self, square: Any):
        result = square.result_
        assert square.layers_ == [[1], [0]]  # childless latents first
        assert result.layers == ((1,), (0,))
        assert result.adjacency is None
        assert result.details["adjacency"].tolist() == [[False, True], [False, False]]
        assert result.details["gain_over_gaussian"] > 100
        assert (result.guarantee.latents, result.guarantee.graph) == ("layers", "layers")
        assert "inside a layer nothing more can be recovered" in result.guarantee.text

    def test_competing_structures_are_behind(self, square: Any):
        others = square.result_.alternatives
        assert others
        assert [other.gap for other in others] == sorted(other.gap for other in others)
        assert all(other.gap >= 0 for other in others)
        assert all(other.adjacency.shape == (2, 2) for other in others)
        assert square.result_.evidence_gap > 5
        assert not square.result_.failed_checks

    def test_gaussian_data(self):
        rows = np.random.default_rng(0).normal(size=(len(X), 2))
        with pytest.warns(AssumptionWarning, match=r"not Gaussian: fails .* nats over a Gaussian"):
            nothing: Any = ObservationalCRL(random_state=0).fit(rows)
        assert nothing.result_.details["gain_over_gaussian"] < 5

    @pytest.mark.parametrize("last", ["linear", "bent"])
    def test_one_linear_mechanism_among_nonlinear_ones_is_named(self, last: str):
        """z2 is an effect of z1; as linear effects are part of latents, it looks like no effect."""
        effect = Z[:, 1] if last == "linear" else 4 * np.tanh(Z[:, 1] / 4)
        rows = np.column_stack([Z, effect + np.random.default_rng(2).normal(size=len(Z)) / 3])
        model: Any = ObservationalCRL(random_state=0).fit(rows)
        result = model.result_
        name = "mechanisms are nonlinear along every direction"
        (check,) = (check for check in result.checks if check.name == name)
        assert not result.failed_checks
        assert result.guarantee.latents == "layers"
        if last == "bent":
            assert check.passed
            assert "This is seen of" not in result.guarantee.text
            assert model.layers_ == [[2], [1], [0]]
            assert result.details["straight_p_values"].max() < 1e-3
        else:
            assert check.passed is None
            assert "no nonlinear effect on or of z2" in check.detail
            assert "This is seen of z0, z1; that z2 is in the last layer" in result.guarantee.text
            assert abs(correlation(model.noises(rows)[:, 0], NOISE[:, 0])) > 0.99

    def test_an_effect_that_the_data_hardly_show(self):
        noise = np.random.default_rng(0).normal(size=(400, 2))
        rows = np.column_stack([noise[:, 0], 0.13 * noise[:, 0] ** 2 + noise[:, 1]])
        said = r"determined by the data: fails .* nats behind.* see result_\.alternatives"
        with pytest.warns(AssumptionWarning) as caught:
            model: Any = ObservationalCRL(random_state=0).fit(rows)
        assert any(re.search(said, str(warning.message)) for warning in caught)
        assert model.result_.evidence_gap < 10
        assert any(other.is_another_answer for other in model.result_.alternatives)

    def test_one_latent_has_no_structure_to_check(self):
        model = ObservationalCRL(1, random_state=0).fit(NOISE[:, :1] * [1.0, 2.0])
        assert all(check.passed for check in model.result_.checks)
        assert model.result_.guarantee.latents == "layers"

    def test_more_dimensions_than_latents(self):
        with pytest.warns(AssumptionWarning):
            model = ObservationalCRL(1, random_state=0).fit(X)
        assert "rank of X" in {check.name for check in model.result_.failed_checks}
        assert model.result_.guarantee.latents == "none"

    def test_save_and_load(self, square: Any, tmp_path: Any):
        square.save(tmp_path / "model.crl")
        loaded = load(tmp_path / "model.crl")
        np.testing.assert_array_equal(loaded.transform(X), square.transform(X))
        np.testing.assert_array_equal(loaded.noises(X), square.noises(X))
        assert loaded.layers_ == square.layers_
        assert str(loaded.result_) == str(square.result_)
        assert loaded.result_.evidence_gap == square.result_.evidence_gap

    def test_a_start_of_ones_own(self, tmp_path: Any):
        truth = np.linalg.lstsq(X - X.mean(axis=0), Z - Z.mean(axis=0))[0].T
        model: Any = ObservationalCRL(init=truth, random_state=0).fit(X)
        assert abs(correlation(model.noises(X)[:, 1], NOISE[:, 1])) > 0.99
        model.save(tmp_path / "model.crl")
        np.testing.assert_array_equal(load(tmp_path / "model.crl").init, truth)

    @pytest.mark.parametrize(
        ("init", "said"),
        [
            (np.eye(2), r"for each feature, \(2, 5\). Got shape \(2, 2\)"),
            (np.full((2, 5), np.nan), "The 'init' parameter must be finite"),
            (np.ones((2, 5)), "must be linearly independent"),
            ("truth", "The 'init' parameter of ObservationalCRL must be an array-like or None"),
        ],
    )
    def test_starts_that_are_none(self, init: Any, said: str):
        with pytest.raises(ValueError, match=said):
            ObservationalCRL(init=init).fit(X)


class TestBadInput:
    def test_labels_are_reported(self):
        with pytest.warns(AssumptionWarning, match="y has 3 labels and was not used"):
            ObservationalCRL(random_state=0).fit(X, np.arange(400) % 3)

    def test_numbers_in_y_are_no_labels(self):
        model = ObservationalCRL(random_state=0).fit(X, np.linspace(0, 1, 400))
        assert "one environment" not in {check.name for check in model.result_.checks}

    def test_too_few_rows(self):
        with pytest.raises(ValueError, match="2 latents need at least 6 rows"):
            ObservationalCRL().fit(X[:5])

    def test_more_latents_than_the_rank(self):
        with pytest.raises(IdentifiabilityError, match="at most the rank of X, which is 2"):
            ObservationalCRL(3).fit(X)

    def test_no_search_at_all(self):
        with pytest.raises(
            ValueError, match="The 'n_starts' parameter of ObservationalCRL must be"
        ):
            ObservationalCRL(n_starts=0).fit(X)

    def test_before_fit(self):
        with pytest.raises(AttributeError, match="call fit first"):
            ObservationalCRL().layers_  # noqa: B018
        with pytest.raises(ValueError, match="not fitted yet"):
            ObservationalCRL().noises(np.zeros((2, 2)))
