"""What every estimator must do, whatever its method."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from crlearn import (
    IVAE,
    BetaVAE,
    EmpiricalBayesCRL,
    GaussianPriorCRL,
    ICABaseline,
    LatentANM,
    LinearInterventionCRL,
    MultiNodeCRL,
    NonlinearInterventionCRL,
    ObservationalCRL,
    PCABaseline,
    SparseMixtureCRL,
    StructuralPriorCRL,
    VaDE,
    load,
    methods,
    published,
)
from crlearn import estimators as all_estimators
from crlearn.base import BaseCRL
from crlearn.data import make_segments
from crlearn.exceptions import AssumptionWarning, CorruptFileError, IdentifiabilityError
from crlearn.flows import InterventionalObjective, SegmentObjective, SpikeSlabObjective
from crlearn.published import (
    EBCRL,
    GSCALEI,
    LSCALEI,
    PDGMM,
    UMNICRL,
    ContrastiveCRL,
    LatentANMVAE,
    ScoreLayers,
)
from crlearn.result import LinearEncoder

ESTIMATORS: list[Any] = [
    PCABaseline(),
    ICABaseline(max_iter=500),
    BetaVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    VaDE(width=4, depth=1, max_epochs=3, n_restarts=1),
    IVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    LinearInterventionCRL(mechanisms="linear"),
    MultiNodeCRL(n_latents=1, mechanisms="linear"),
    NonlinearInterventionCRL(reduction="linear", n_steps=5, n_restarts=1),
    LatentANM(reduction="linear", n_steps=5, n_restarts=1),
    SparseMixtureCRL(mixing="affine"),
    ObservationalCRL(n_starts=2),
    EmpiricalBayesCRL(scale=True),
    StructuralPriorCRL(center=True, scale=True, n_steps=5, n_restarts=1),
    GaussianPriorCRL(prior="shift", center=True, scale=True),
    LSCALEI(scores="gaussian"),
    UMNICRL(n_latents=1, rank_cut=1e-9),
    GSCALEI(scores="gaussian", n_steps=20),
    ContrastiveCRL(width=4, max_epochs=3),
    ScoreLayers(),
    EBCRL(max_iter=3),
    LatentANMVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    PDGMM(width=2, n_steps=20, n_sparsity_steps=20),
]
# As they are constructed, but for what only takes time: epochs, starts, trained scores.
AS_CONSTRUCTED: list[Any] = [
    PCABaseline(),
    ICABaseline(),
    BetaVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    VaDE(width=4, depth=1, max_epochs=3, n_restarts=1),
    IVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    LinearInterventionCRL(noise="none"),
    MultiNodeCRL(noise="none"),
    NonlinearInterventionCRL(n_steps=5, n_restarts=1),
    LatentANM(n_steps=5, n_restarts=1),
    SparseMixtureCRL(slab="gaussian", n_steps=3),
    ObservationalCRL(n_starts=2),
    EmpiricalBayesCRL(),
    StructuralPriorCRL(n_steps=5, n_restarts=1),
    GaussianPriorCRL(),
    LSCALEI(scores="gaussian"),
    UMNICRL(),
    GSCALEI(scores="gaussian", n_steps=20),
    ContrastiveCRL(width=4, max_epochs=3),
    ScoreLayers(),
    EBCRL(),
    LatentANMVAE(width=4, depth=1, max_epochs=3, n_restarts=1),
    PDGMM(width=2, n_steps=20, n_sparsity_steps=20),
]
# Their encoders are networks, which have no exact inverse.
NETWORKS = (
    BetaVAE,
    VaDE,
    IVAE,
    NonlinearInterventionCRL,
    LatentANM,
    SparseMixtureCRL,
    GSCALEI,
    ContrastiveCRL,
    LatentANMVAE,
    PDGMM,
)
# Of five features, if six latents are asked for; the others refuse.
MOST_LATENTS = {SparseMixtureCRL: 5, PDGMM: 6}
# Published algorithms, which compare with constants in the units of X.
IN_UNITS_OF_X = tuple(published.ESTIMATORS.values())

# scikit-learn's checks with 3 to 10 features: a search for as many latents takes up to minutes, and
# a flow of as many variables takes long to compile.
OF_MANY_FEATURES = {
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
}


@pytest.fixture(autouse=True)
def _shallow_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let flows have one block: what is checked here is the same, and four compile longer."""
    one_block = partial(InterventionalObjective, n_blocks=1)
    where = "crlearn.methods.nonlinear._estimator"
    monkeypatch.setattr(f"{where}.InterventionalObjective", one_block)
    of_segments = partial(SegmentObjective, n_blocks=1)
    monkeypatch.setattr("crlearn.methods.additive._estimator.SegmentObjective", of_segments)
    of_spikes = partial(SpikeSlabObjective, n_blocks=1)
    monkeypatch.setattr("crlearn.methods.sparse._stages.SpikeSlabObjective", of_spikes)


def for_each(estimators: Sequence[Any]) -> pytest.MarkDecorator:
    names = [type(estimator).__name__ for estimator in estimators]
    return pytest.mark.parametrize("estimator", estimators, ids=names)


by_class = for_each(ESTIMATORS)
quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@pytest.fixture(scope="module")
def world() -> Any:
    return make_segments(n_latents=3, n_features=5, n_samples=60, n_segments=8, random_state=0)


def fresh(estimator: Any, **parameters: Any) -> Any:
    unfitted: Any = clone(estimator)
    return unfitted.set_params(random_state=0, **parameters)


def labels_for(estimator: Any, world: Any, n_latents: int) -> Any:
    """Labels that the estimator takes, or is quick with: one or two environments a latent."""
    one_each = (LSCALEI, ContrastiveCRL, LinearInterventionCRL, MultiNodeCRL)
    if isinstance(estimator, one_each):
        return world.y % (n_latents + 1)
    return world.y % (2 * n_latents + 1) if isinstance(estimator, GSCALEI) else world.y


def fitted(estimator: Any, world: Any, n_latents: int = 3, X: Any = None) -> Any:
    y = labels_for(estimator, world, n_latents)
    return fresh(estimator, n_latents=n_latents).fit(world.X if X is None else X, y)


@pytest.fixture(scope="module")
def once(world: Any) -> Callable[..., Any]:
    """Fits that tests share which only read them."""
    return cache(lambda estimator, n_latents=3: fitted(estimator, world, n_latents))


def as_frame(world: Any) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(world.names, world.X.T, strict=True)))


# No expected failures: scikit-learn's own small data sets contradict assumptions (few rows,
# Gaussian noise), which is what the warnings say.
@quiet
@parametrize_with_checks(AS_CONSTRUCTED)
def test_scikit_learn_contract(estimator: Any, check: Any):
    if check.func.__name__ in OF_MANY_FEATURES:
        if isinstance(estimator, ObservationalCRL | ScoreLayers | StructuralPriorCRL):
            estimator = fresh(estimator, n_latents=2)
        elif isinstance(estimator, NonlinearInterventionCRL | LatentANM | SparseMixtureCRL):
            estimator = fresh(estimator, n_latents=2, reduction="linear")
    check(estimator)


def test_every_public_estimator_is_checked_here():
    public = [getattr(part, name) for part in (methods, published) for name in part.__all__]
    classes = {thing for thing in public if isinstance(thing, type) and issubclass(thing, BaseCRL)}
    assert classes == {type(estimator) for estimator in ESTIMATORS}
    assert classes == {type(estimator) for estimator in AS_CONSTRUCTED}
    assert classes == set(all_estimators.ESTIMATORS.values())


@quiet
@by_class
class TestContract:
    def test_same_seed_same_bits(self, estimator: Any, world: Any, once: Any):
        first, second = once(estimator), fitted(estimator, world)
        np.testing.assert_array_equal(first.transform(world.X), second.transform(world.X))

    def test_result_says_what_was_done(self, estimator: Any, once: Any):
        result = once(estimator).result_
        assert result.n_latents == 3
        assert len(str(result.guarantee)) > 20
        assert result.checks
        assert result.seconds > 0
        assert result.device
        assert {"crlearn", "jax", "numpy"} <= set(result.versions)

    def test_graph_has_the_names_of_the_latents(self, estimator: Any, once: Any):
        model = once(estimator)
        assert list(model.get_feature_names_out()) == ["z0", "z1", "z2"]
        if model.graph_ is not None:
            assert list(model.graph_.nodes) == ["z0", "z1", "z2"]

    def test_graph_before_fit(self, estimator: Any, world: Any):
        with pytest.raises(AttributeError, match="call fit first"):
            fresh(estimator).graph_  # noqa: B018

    def test_inverse_transform_leads_back_to_the_data_space(
        self, estimator: Any, world: Any, once: Any
    ):
        model = once(estimator)
        if isinstance(estimator, ContrastiveCRL):
            assert not hasattr(model, "inverse_transform")
            return
        assert model.inverse_transform(model.transform(world.X)).shape == world.X.shape
        with pytest.raises(ValueError, match="one column for each of the 3 latents"):
            model.inverse_transform(np.zeros((2, 4)))

    def test_pandas_and_polars_in_and_out(self, estimator: Any, world: Any):
        frame = as_frame(world)
        labels = pd.Series(labels_for(estimator, world, 2))
        model = fresh(estimator, n_latents=2).fit(frame, labels)
        plain = model.transform(frame)
        as_pandas = model.set_output(transform="pandas").transform(frame)
        assert list(as_pandas.columns) == list(model.get_feature_names_out())
        np.testing.assert_array_equal(as_pandas.to_numpy(), plain)
        polars_frame = pl.DataFrame(world.X, schema=list(world.names))
        as_polars = model.set_output(transform="polars").transform(polars_frame)
        assert isinstance(as_polars, pl.DataFrame)
        np.testing.assert_array_equal(as_polars.to_numpy(), plain)

    def test_works_in_a_pipeline(self, estimator: Any, world: Any):
        pipeline = make_pipeline(StandardScaler(), fresh(estimator, n_latents=2))
        y = labels_for(estimator, world, 2)
        assert np.isfinite(pipeline.fit(world.X, y).transform(world.X)).all()

    def test_saves_and_loads_to_the_same_bits(
        self, estimator: Any, world: Any, once: Any, tmp_path: Any
    ):
        model = once(estimator)
        model.save(tmp_path / "model.crl")
        loaded = load(tmp_path / "model.crl")
        assert loaded.get_params() == model.get_params()
        np.testing.assert_array_equal(loaded.transform(world.X), model.transform(world.X))
        assert str(loaded.result_) == str(model.result_)
        assert type(model).load(tmp_path / "model.crl").n_features_in_ == 5

    def test_set_output_survives_saving(self, estimator: Any, world: Any, once: Any, tmp_path: Any):
        model = copy.copy(once(estimator))
        model.set_output(transform="pandas").save(tmp_path / "model.crl")
        assert isinstance(load(tmp_path / "model.crl").transform(world.X), pd.DataFrame)

    def test_memory_layout_does_not_matter(self, estimator: Any, world: Any, once: Any):
        in_columns = fitted(estimator, world, 3, X=np.asfortranarray(world.X))
        plain = once(estimator)
        np.testing.assert_array_equal(in_columns.transform(world.X), plain.transform(world.X))

    def test_an_unfitted_estimator_can_be_saved(self, estimator: Any, world: Any, tmp_path: Any):
        fresh(estimator, n_latents=2).save(tmp_path / "model.crl")
        assert load(tmp_path / "model.crl").n_latents == 2

    def test_pickles_for_joblib(self, estimator: Any, world: Any, once: Any):
        model = once(estimator)
        pickled = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(pickled.transform(world.X), model.transform(world.X))

    def test_does_not_change_its_input(self, estimator: Any, world: Any):
        X = world.X.copy()
        fitted(estimator, world, 2, X=X).transform(X)
        np.testing.assert_array_equal(X, world.X)


def test_load_refuses_another_class(tmp_path: Any):
    PCABaseline().save(tmp_path / "model.crl")
    with pytest.raises(CorruptFileError, match="holds a PCABaseline, not a IVAE"):
        IVAE.load(tmp_path / "model.crl")


def test_classes_of_ones_own_are_not_saved(tmp_path: Any):
    class MyPCA(PCABaseline):
        pass

    with pytest.raises(TypeError, match="MyPCA is not one of crlearn's own"):
        MyPCA().save(tmp_path / "model.crl")


def test_a_checkpoint_path_can_be_saved(tmp_path: Any):
    IVAE(checkpoint=tmp_path / "state.crl").save(tmp_path / "model.crl")
    assert load(tmp_path / "model.crl").checkpoint == str(tmp_path / "state.crl")


@quiet
@by_class
class TestBadInput:
    """Each kind of bad input gets a sentence that says what is wrong; nothing returns NaN."""

    def refused(self, estimator: Any, X: Any, y: Any, message: str, **parameters: Any) -> None:
        with pytest.raises(ValueError, match=message):
            fresh(estimator, **parameters).fit(X, y)

    def test_nan(self, estimator: Any, world: Any):
        X = world.X.copy()
        X[3, 1] = np.nan
        message = "Input X contains NaN: 1 values in 1 of its 480 rows .* column: 1 in 1. Nothing"
        self.refused(estimator, X, world.y, message)
        frame = pd.DataFrame(X, columns=pd.Index(world.names))
        self.refused(estimator, frame, world.y, f"by column: 1 in '{world.names[1]}'. .* drop")

    def test_infinity(self, estimator: Any, world: Any):
        X = world.X.copy()
        X[3, 1] = np.inf
        self.refused(estimator, X, world.y, "Input X contains infinity")

    def test_strings(self, estimator: Any, world: Any):
        self.refused(estimator, world.X.astype(str).astype(object) + "a", world.y, "string")

    def test_text_column_of_a_frame(self, estimator: Any, world: Any):
        frame = as_frame(world).assign(batch="a")
        self.refused(estimator, frame, world.y, "These columns hold text: batch")
        polars_frame = pl.DataFrame(world.X).with_columns(batch=pl.lit("a"))
        self.refused(estimator, polars_frame, world.y, "These columns hold text: batch")

    def test_one_axis(self, estimator: Any, world: Any):
        self.refused(estimator, world.X[:, 0], world.y, "Expected 2D array, got 1D array")

    def test_one_sample(self, estimator: Any, world: Any):
        self.refused(estimator, world.X[:1], world.y[:1], r"minimum of 2 is required")

    def test_more_latents_than_features(self, estimator: Any, world: Any):
        most = MOST_LATENTS.get(type(estimator))
        if most is not None:
            assert fresh(estimator, n_latents=6).fit(world.X).result_.n_latents <= most
            return
        message = "must be at most the number of features, 5.*Got 6 instead"
        self.refused(estimator, world.X, world.y, message, n_latents=6)

    def test_no_latents(self, estimator: Any, world: Any):
        message = "The 'n_latents' parameter of .* must be an int in the range"
        self.refused(estimator, world.X, world.y, message, n_latents=0)

    def test_truth_values_are_no_numbers(self, estimator: Any, world: Any):
        for name in ("n_latents", "random_state"):
            message = f"The '{name}' parameter of .* must be a number, not a truth value. Got True"
            with pytest.raises(ValueError, match=message):
                fresh(estimator).set_params(**{name: True}).fit(world.X, world.y)

    def test_labels_of_wrong_length(self, estimator: Any, world: Any):
        self.refused(estimator, world.X, world.y[:-1], "inconsistent numbers of samples")

    def test_labels_with_nan(self, estimator: Any, world: Any):
        y = world.y.astype(float)
        y[0] = np.nan
        self.refused(estimator, world.X, y, "Input y contains NaN")

    def test_all_columns_constant(self, estimator: Any, world: Any):
        self.refused(
            estimator, np.ones((50, 3)), np.arange(50) % 5, "All columns of X are constant"
        )

    def test_duplicated_column(self, estimator: Any, world: Any):
        X, y = world.X[::4, :4].copy(), world.y[::4]
        X[:, 3] = X[:, 0]
        if not isinstance(estimator, tuple(MOST_LATENTS)):
            with pytest.raises(IdentifiabilityError, match="at most the rank of X, which is 3"):
                fresh(estimator, n_latents=4).fit(X, y)
        number = type(estimator)().n_latents  # what it is by default: counted, or the rank
        model = fresh(estimator, n_latents=number).fit(X, labels_for(estimator, world, 3)[::4])
        assert model.transform(X).shape[1] == 3
        assert np.isfinite(model.transform(X)).all()

    def test_constant_column(self, estimator: Any, world: Any):
        X = world.X[::4].copy()
        X[:, 2] = 7.0
        model = fresh(estimator, n_latents=2).fit(X, labels_for(estimator, world, 2)[::4])
        assert np.isfinite(model.transform(X)).all()
        (check,) = [check for check in model.result_.checks if check.name == "columns vary"]
        assert check.passed
        assert check.detail.startswith("1 of 5 columns of X (at 2, from 0) are constant")
        other = X.copy()
        other[:, 2] = 8.0
        # Up to rounding: some processors add up rows in an order that hangs on their place.
        np.testing.assert_allclose(model.transform(other), model.transform(X), rtol=0, atol=1e-9)

    def test_values_far_outside_the_range_do_not_become_nan(self, estimator: Any, once: Any):
        model = once(estimator)
        with pytest.raises(ValueError, match="not finite"), np.errstate(all="ignore"):
            model.transform(1e308 * np.array([*product([1, -1], repeat=5)]))


@quiet
@for_each([one for one in ESTIMATORS if not isinstance(one, NETWORKS)])
def test_inverse_transform_undoes_a_linear_encoder(estimator: Any):
    """Whatever the units of the features are; pseudo-inverses of encoders do not."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    Z = rng.standard_normal((400, 2)) * np.where(y % 2, 1, 2)[:, None]
    X = Z @ rng.standard_normal((2, 4)) * [1, 10, 100, 0.1] + [5, 0, 0, 1]
    y = y % 3 if isinstance(estimator, LSCALEI) else y
    model = fresh(estimator, n_latents=2).fit(X, y)
    if isinstance(model.result_.encoder, LinearEncoder):
        np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-6)


@quiet
@for_each([each for each in ESTIMATORS if type(each)().get_params().get("n_latents") == "auto"])
def test_none_is_auto_where_latents_are_counted_by_default(estimator: Any, world: Any):
    y = labels_for(estimator, world, 3)
    counted, default = (fresh(estimator, n_latents=n).fit(world.X, y) for n in (None, "auto"))
    np.testing.assert_array_equal(counted.transform(world.X), default.transform(world.X))
    assert counted.result_.checks == default.result_.checks


@quiet
@for_each([one for one in ESTIMATORS if not isinstance(one, IN_UNITS_OF_X)])
@pytest.mark.parametrize("scale", [1e12, 1e-12, 1e200, 1e-200])
def test_units_do_not_matter(estimator: Any, world: Any, once: Any, scale: float):
    plain = once(estimator, n_latents=2).transform(world.X)
    units = np.array([scale, 1.0, scale, 1.0, 1 / scale])
    model = fitted(estimator, world, 2, X=world.X * units)
    np.testing.assert_allclose(model.transform(world.X * units), plain, atol=1e-3)


class TestEnvironments:
    def model(self, **parameters: Any) -> IVAE:
        """Of the sizes of the contract, so that nothing is compiled anew."""
        return IVAE(3, width=4, depth=1, max_epochs=3, n_restarts=1, random_state=0, **parameters)

    def test_one_environment(self, world: Any):
        with pytest.raises(IdentifiabilityError, match=r"at least 2 environments. Got 1 \(0\)"):
            self.model().fit(world.X, np.zeros(len(world.X), int))

    def test_no_labels(self, world: Any):
        with pytest.raises(ValueError, match="requires y to be passed"):
            self.model().fit(world.X)

    def test_absent_reference(self, world: Any):
        message = "reference environment 'control' is not among the labels in y: 0, 1, 2"
        with pytest.raises(ValueError, match=message):
            self.model(reference="control").fit(world.X, world.y)

    @quiet
    def test_reference_sets_the_units(self, world: Any):
        Z = self.model(reference=3).fit(world.X, world.y).transform(world.X)[world.y == 3]
        np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-6)

    @quiet
    def test_an_environment_with_fewer_rows_than_latents(self, world: Any):
        y = world.y.copy()
        y[np.flatnonzero(y == 7)[2:]] = 6
        with pytest.warns(AssumptionWarning, match="no more rows than the 3 latents: 7"):
            self.model().fit(world.X, y)

    @pytest.mark.parametrize("labels", [["a", None], ["a", 1]])
    def test_labels_of_mixed_kinds(self, world: Any, labels: list[Any]):
        y = np.array(labels * (len(world.X) // 2), dtype=object)
        with pytest.raises(ValueError, match="labels of one kind"):
            self.model().fit(world.X, y)

    @quiet
    def test_string_labels(self, world: Any):
        names = np.array([f"batch {label}" for label in world.y])
        by_name = self.model().fit(world.X, names).transform(world.X)
        by_number = self.model().fit(world.X, world.y).transform(world.X)
        np.testing.assert_array_equal(by_name, by_number)
