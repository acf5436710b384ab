from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.inputs import measure, read_domains, read_environments
from crlearn.methods.structural._start import Coordinates, held_out_rows, starts_of, unmix
from crlearn.variational import EvidenceBound


@pytest.fixture(scope="module")
def world() -> Any:
    return make_multi_domain(3, 8, 200, observational=True, random_state=0)


def coordinates(world: Any, *, linear: bool, X: Any = None) -> Coordinates:
    environments = read_environments(world.y)
    measurement = measure(world.X if X is None else X, 3)
    return Coordinates.of(measurement, environments.codes, linear=linear)


def test_coordinates_keep_all_squares(world: Any):
    inside, everything = (coordinates(world, linear=linear) for linear in (True, False))
    assert np.shape(inside.rows.x)[1] == 3
    assert inside.n_rest == 5
    assert everything.n_rest == 0
    for one in (inside, everything):
        squares = (np.asarray(one.rows.x) ** 2).sum(axis=1) + one.rows.rest
        np.testing.assert_allclose(squares, (world.X**2).sum(axis=1) / one.size**2, rtol=1e-4)
        np.testing.assert_allclose(one.rows.x, world.X / one.scale @ one.basis, atol=1e-4)


def test_constant_columns_are_no_coordinates(world: Any):
    X = world.X.copy()
    X[:, 2] = 7.0
    found = coordinates(world, linear=False, X=X)
    assert np.shape(found.rows.x)[1] == 7
    np.testing.assert_array_equal(found.basis[2], 0)


def test_the_axes_are_those_of_the_truth(world: Any):
    found = coordinates(world, linear=False)
    known = read_domains(
        np.asarray(world.truth.graph, bool), world.known_targets, read_environments(world.y)
    )
    answer, domains = unmix(found, known, 0, orthogonal=True)
    latents = np.asarray(found.rows.x) @ found.span @ answer.matrix.T
    for one, true in zip(latents.T, world.truth.Z.T, strict=True):
        assert np.corrcoef(one, true)[0, 1] > 0.9
    assert len(domains.observational) == 1


@pytest.mark.parametrize("mixing", ["orthogonal", "any"])
def test_restarts_are_turned_and_stay_orthogonal(world: Any, mixing: Any):
    found = coordinates(world, linear=True)
    falses = tuple(map(tuple, np.zeros((3, 3), bool).tolist()))
    objective = EvidenceBound(3, 5, (*falses, falses[0]), falses, mixing, width=4)
    matrix = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    first, second, third = starts_of(objective, found, matrix, 3, seed=0)
    decoders: list[Any] = [start.decoder for start in (first, second, third)]
    rows = [np.asarray(decoder.rows) for decoder in decoders]
    assert not np.allclose(rows[1], rows[2], atol=0.05)
    z = jnp.asarray(np.asarray(found.rows.x) @ matrix.T, float)
    scaled = z / z.std(axis=0)
    np.testing.assert_allclose(first.decoder(scaled), found.rows.x, atol=1e-3)
    inner = rows[1] @ rows[1].T
    off = np.abs(inner - np.diag(np.diag(inner))).max()
    assert (off < 1e-4) == (mixing == "orthogonal")
    again = starts_of(replace(objective), found, matrix, 2, seed=0)[1]
    np.testing.assert_array_equal(again.decoder.matrix, second.decoder.matrix)


def test_a_tenth_of_each_environment_is_held_out():
    environments = read_environments(np.repeat([0, 1, 2], [5, 40, 100]))
    chosen = held_out_rows(environments, 0)
    assert [int(chosen[environments.codes == e].sum()) for e in range(3)] == [0, 4, 10]
    assert not np.array_equal(chosen, held_out_rows(environments, 1))
