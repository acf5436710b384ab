from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_mixing
from crlearn.exceptions import IdentifiabilityError
from crlearn.flows import learn_autoencoder, learn_flattening
from crlearn.methods._reduction import reduce

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(1500, 2))
PLANE = Z @ RNG.normal(size=(2, 4)) * [1, 10, 0.1, 1] + 5
BENT = np.tanh(Z @ (0.8 * RNG.normal(size=(2, 4))))


@pytest.fixture(scope="module")
def linked() -> Any:
    return reduce(BENT, 2, "links", seed=0)


def explained(values: Any) -> float:
    values = values - values.mean(axis=0)
    left = Z - Z.mean(axis=0)
    left = left - values @ np.linalg.lstsq(values, left)[0]
    return float((1 - left.var(axis=0) / Z.var(axis=0)).min())


def note(reduction: Any) -> str:
    (check,) = [check for check in reduction.checks if check.name == "reduction"]
    return check.detail


def test_a_plane_is_left_as_it_is():
    found = reduce(PLANE, None, "auto", seed=0)
    assert found.encoder.n_latents == 2
    assert found.how == "principal components of X"
    assert explained(found.encoder(PLANE)) == pytest.approx(1)
    np.testing.assert_allclose(found.decoder(found.encoder(PLANE)), PLANE, atol=1e-8)
    assert note(found).startswith("2 principal components of X;")


def test_links_are_undone(linked: Any):
    assert linked.left_out < 0.01
    assert (
        explained(linked.encoder(BENT))
        > 0.995
        > explained(reduce(BENT, 2, "linear", 0).encoder(BENT))
    )
    back = linked.decoder(linked.encoder(BENT))
    assert ((back - BENT) ** 2).mean() < 1e-3
    assert "after monotone links of its features" in note(linked)


@pytest.mark.parametrize("kind", ["linear", "links"])
def test_reduced_rows_are_those_of_the_encoder(kind: Any):
    found = reduce(BENT, 2, kind, seed=0)
    np.testing.assert_array_equal(found.rows, found.encoder(BENT))


def test_links_are_taken_where_they_help(linked: Any):
    found = reduce(BENT, 2, "auto", seed=0)
    np.testing.assert_array_equal(found.encoder(BENT), linked.encoder(BENT))


def test_what_folds_is_noticed():
    """The first of the two dimensions is bent back over itself."""
    angle = np.linspace(-4, 4, 1500)
    X = np.column_stack([np.cos(angle), np.sin(angle) / 4, Z[:, 0]])
    folding = reduce(X, 2, "linear", seed=0).checks[-1]
    assert folding.passed is False


@pytest.fixture
def short_autoencoders(monkeypatch: pytest.MonkeyPatch):
    """Autoencoders that stay near their start, at principal components."""
    monkeypatch.setattr(
        "crlearn.methods._reduction.learn_autoencoder",
        partial(learn_autoencoder, n_steps=1, width=1),
    )


def with_few_steps(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    short = partial(learn_flattening, n_steps=n_steps)
    monkeypatch.setattr("crlearn.methods._reduction.learn_flattening", short)


@pytest.mark.usefixtures("short_autoencoders")
def test_a_flow_takes_over_where_all_else_folds(monkeypatch: pytest.MonkeyPatch):
    with_few_steps(monkeypatch, 1500)
    angle = np.linspace(-2, 2, 1500)
    X = np.column_stack([np.cos(angle), np.sin(angle), Z[:, 0]])
    for kind in ("linear", "autoencoder"):
        assert reduce(X, 2, kind, seed=0).checks[-1].passed is False
    found = reduce(X, 2, "auto", seed=0)
    assert "invertible map" in found.how
    assert found.checks[-1].name == "the reduction does not fold"
    assert found.checks[-1].passed is True
    np.testing.assert_array_equal(found.rows, found.encoder(X))


@pytest.mark.usefixtures("short_autoencoders")
def test_x_of_many_dimensions_has_no_flow():
    """It would take too long."""
    wide = np.tanh(2 * Z @ RNG.normal(size=(2, 20))) ** 2
    assert reduce(wide, 2, "auto", seed=0).how == "codes of an autoencoder"


def test_a_flow_that_does_not_make_the_surface_flat_may_fold(monkeypatch: pytest.MonkeyPatch):
    """Three independent numbers on two coordinates."""
    with_few_steps(monkeypatch, 100)
    X = RNG.normal(size=(600, 3))
    found = reduce(X, 2, "flow", seed=0, count_dimensions=False)
    assert found.left_out > 0.1
    assert found.checks[-1].passed is not True


def test_as_many_features_as_latents():
    found = reduce(BENT[:, :2], 2, "links", seed=0)
    assert found.how == "principal components of X"
    np.testing.assert_allclose(found.encoder(BENT[:, :2]).std(axis=0), 1, rtol=1e-2)


def test_a_mixing_that_loses_latents_is_refused():
    curved = make_mixing("curved", 3, 10, 0)(RNG.normal(size=(2000, 3)))
    with pytest.raises(IdentifiabilityError, match=r"'n_latents' is 5.*Set n_latents=3"):
        reduce(curved, 5, "linear", seed=0)
