from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    return reduction.checks[-1].detail


def test_a_plane_is_left_as_it_is():
    found = reduce(PLANE, None, "auto", seed=0)
    assert found.encoder.n_latents == 2
    assert found.links is None
    assert explained(found.encoder(PLANE)) == pytest.approx(1)
    np.testing.assert_allclose(found.decoder(found.encoder(PLANE)), PLANE, atol=1e-8)
    assert note(found).startswith("2 principal components of X;")


def test_links_are_undone(linked: Any):
    assert linked.links is not None
    assert (
        explained(linked.encoder(BENT))
        > 0.995
        > explained(reduce(BENT, 2, "linear", 0).encoder(BENT))
    )
    back = linked.decoder(linked.encoder(BENT))
    assert ((back - BENT) ** 2).mean() < 1e-3
    assert "after monotone links of its features" in note(linked)


def test_links_are_taken_where_they_help(linked: Any):
    found = reduce(BENT, 2, "auto", seed=0)
    np.testing.assert_array_equal(found.links.values, linked.links.values)


def test_links_are_not_taken_where_they_do_not():
    X = np.column_stack([Z, Z[:, 0] ** 2, Z[:, 0] * Z[:, 1]])
    assert reduce(X, 2, "auto", seed=0).links is None


def test_as_many_features_as_latents():
    found = reduce(BENT[:, :2], 2, "links", seed=0)
    assert found.links is None
    np.testing.assert_allclose(found.encoder(BENT[:, :2]).std(axis=0), 1, rtol=1e-2)
