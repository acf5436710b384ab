from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from crlearn import ObservationalCRL, load
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.published._layer_regression import Basis, Regression


@dataclass(frozen=True, eq=False)
class FakeRival:
    graph: Any
    layers: Any
    evidence_gap: float
    agreement: float


@dataclass(frozen=True, eq=False)
class FakeFit:
    H: Any
    graph: Any
    layers: Any
    mechanisms: Any
    evidence: float
    gain: float
    rivals: tuple[FakeRival, ...]


SQUARE = Regression(
    np.zeros(2),
    np.ones(2),
    Basis(np.array([[2, 0]]), np.zeros((0, 2)), 1.0, np.zeros((0, 2)), np.zeros(0)),
    np.zeros(2),
    np.array([[0.0, 1.0]]),
)
RIVAL = FakeRival(((1,), ()), ((1,), (0,)), 40.0, 0.3)


@dataclass
class Engine:
    """Stands in for the likelihood: knows the answer, and remembers what it was asked."""

    Z: Any
    gain: float = 300.0
    rivals: tuple[FakeRival, ...] = (RIVAL,)
    asked: dict[str, Any] | None = None

    def __call__(self, y: Any, **options: Any) -> FakeFit:
        self.asked = {"y": y, **options}
        H = np.linalg.lstsq(y, self.Z - self.Z.mean(axis=0))[0].T
        return FakeFit(H, ((), (0,)), ((0,), (1,)), SQUARE, -123.0, self.gain, self.rivals)


@pytest.fixture
def two() -> tuple[Any, Any, Any]:
    """Features, latents and noises: z1 is the square of z0, plus noise."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 2)) * [2.0, 0.3]
    noise -= noise.mean(axis=0)
    Z = np.column_stack([noise[:, 0], noise[:, 0] ** 2 + noise[:, 1]])
    return Z @ rng.normal(size=(2, 5)) + 3.0, Z, noise


@pytest.fixture
def engine(two: Any, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(two[1])
    monkeypatch.setattr("crlearn.methods._observational.fit_observational", made)
    return made


def correlation(a: Any, b: Any) -> float:
    return float(np.corrcoef(a, b)[0, 1])


class TestTheLikelihood:
    def test_the_engine_sees_whitened_rows(self, two: Any, engine: Engine):
        X, Z, noise = two
        model: Any = ObservationalCRL(random_state=0).fit(X)
        asked = engine.asked
        assert asked is not None
        np.testing.assert_allclose(np.cov(asked["y"].T, bias=True), np.eye(2), atol=1e-8)
        assert isinstance(asked["rng"], np.random.Generator)
        assert "starts" not in asked
        latents = model.transform(X)
        assert [abs(correlation(latents[:, j], Z[:, j])) > 1 - 1e-9 for j in (0, 1)] == [True] * 2
        assert abs(correlation(model.noises(X)[:, 1], noise[:, 1])) > 0.999
        np.testing.assert_allclose(model.inverse_transform(latents), X, atol=1e-8)

    def test_units_are_readable(self, two: Any, engine: Engine):
        X, Z, noise = two
        model: Any = ObservationalCRL(random_state=0).fit(X)
        latents = model.transform(X)
        np.testing.assert_allclose(latents.std(axis=0), 1)
        matrix = model.result_.encoder.matrix * X.std(axis=0)
        assert (matrix[np.arange(2), np.abs(matrix).argmax(axis=1)] > 0).all()
        # Noises have the units and signs of the latents.
        sign = np.sign(correlation(latents[:, 1], Z[:, 1]))
        expected = sign * noise[:, 1] / Z[:, 1].std()
        np.testing.assert_allclose(model.noises(X)[:, 1].std(), expected.std(), rtol=0.01)
        assert correlation(model.noises(X)[:, 1], expected) > 0.999

    def test_the_result_says_what_was_found(self, two: Any, engine: Engine):
        model: Any = ObservationalCRL(random_state=0).fit(two[0])
        assert model.layers_ == [[1], [0]]  # from the leaves up
        details = model.result_.details
        assert details["layers"] == ((1,), (0,))
        assert details["adjacency"].tolist() == [[False, True], [False, False]]
        assert (details["evidence"], details["gain_over_gaussian"]) == (-123.0, 300.0)
        assert details["rival_gap"] == 40.0
        (rival,) = details["rivals"]
        assert rival["layers"] == ((0,), (1,))
        assert rival["adjacency"].tolist() == [[False, False], [True, False]]
        assert (rival["evidence_gap"], rival["agreement"]) == (40.0, 0.3)
        assert model.result_.adjacency is None
        guarantee = model.result_.guarantee
        assert (guarantee.latents, guarantee.graph) == ("layers", "layers")
        assert "inside a layer nothing more can be recovered" in guarantee.text

    def test_gaussian_data(self, two: Any, engine: Engine):
        engine.gain = 1.5
        with pytest.warns(AssumptionWarning, match=r"mechanisms gain 1\.5 nats over a Gaussian"):
            ObservationalCRL(random_state=0).fit(two[0])

    def test_a_rival_that_is_as_good(self, two: Any, engine: Engine):
        engine.rivals = (replace(RIVAL, evidence_gap=1.25),)
        with pytest.warns(AssumptionWarning, match=r"agreement of noises 0\.30.* 1\.2 nats worse"):
            ObservationalCRL(random_state=0).fit(two[0])

    def test_no_rival(self, two: Any, engine: Engine):
        engine.rivals = ()
        model: Any = ObservationalCRL(random_state=0).fit(two[0])
        assert model.result_.details["rival_gap"] is None
        assert model.result_.details["rivals"] == ()

    def test_save_and_load(self, two: Any, engine: Engine, tmp_path: Any):
        X = two[0]
        model: Any = ObservationalCRL(init=np.eye(2, 5), random_state=0).fit(X)
        model.save(tmp_path / "model.crl")
        loaded = load(tmp_path / "model.crl")
        np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
        np.testing.assert_array_equal(loaded.noises(X), model.noises(X))
        np.testing.assert_array_equal(loaded.init, model.init)
        assert loaded.layers_ == model.layers_
        assert loaded.result_.details["rivals"][0]["agreement"] == 0.3

    def test_a_start_of_ones_own(self, two: Any, engine: Engine):
        X, Z, _ = two
        truth = np.linalg.lstsq(X - X.mean(axis=0), Z - Z.mean(axis=0))[0].T
        ObservationalCRL(init=truth, random_state=0).fit(X)
        assert engine.asked is not None
        (start,) = engine.asked["starts"]
        np.testing.assert_allclose(engine.asked["y"] @ start.T, Z - Z.mean(axis=0), atol=1e-8)

    @pytest.mark.parametrize(
        ("init", "said"),
        [
            (np.eye(2), r"for each feature, \(2, 5\). Got shape \(2, 2\)"),
            (np.full((2, 5), np.nan), "The 'init' parameter must be finite"),
            (np.ones((2, 5)), "must be linearly independent"),
            ("truth", "The 'init' parameter of ObservationalCRL must be an array-like or None"),
        ],
    )
    def test_starts_that_are_none(self, two: Any, engine: Engine, init: Any, said: str):
        with pytest.raises(ValueError, match=said):
            ObservationalCRL(init=init).fit(two[0])


class TestBadInput:
    def test_labels_are_reported(self, two: Any, engine: Engine):
        with pytest.warns(AssumptionWarning, match="y has 3 labels and was not used"):
            ObservationalCRL(random_state=0).fit(two[0], np.arange(400) % 3)

    def test_too_few_rows(self, two: Any, engine: Engine):
        with pytest.raises(ValueError, match="2 latents need at least 6 rows"):
            ObservationalCRL().fit(two[0][:5])

    def test_more_latents_than_the_rank(self, two: Any, engine: Engine):
        with pytest.raises(IdentifiabilityError, match="at most the rank of X, which is 2"):
            ObservationalCRL(3).fit(two[0])

    def test_before_fit(self):
        with pytest.raises(AttributeError, match="call fit first"):
            ObservationalCRL().layers_  # noqa: B018
        with pytest.raises(ValueError, match="not fitted yet"):
            ObservationalCRL().noises(np.zeros((2, 2)))
