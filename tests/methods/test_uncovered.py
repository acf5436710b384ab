from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.graph import Graph
from crlearn.likelihood import Fit
from crlearn.methods._uncovered import (
    COVERAGE,
    coverage_check,
    groups_of,
    guarantee_of,
    known_edges,
    layers_of,
    shows_layers,
)
from crlearn.result import Guarantee

FULL = Guarantee("scale", "exact", "everything")
# 0 -> 1, 2; 1 -> 3; 2 -> 4: two paths that are alike.
FORK: Graph = ((), (0,), (0,), (1,), (2,))


def fit_of(graph: Graph = FORK, **options: Any) -> Fit:
    seen: Any = {"straight_p_values": np.zeros(len(graph)), **options}
    return Fit(np.eye(len(graph)), graph, 0.0, mechanisms="nonlinear", **seen)


def covered(*which: int, n: int = 5) -> np.ndarray:
    return np.isin(np.arange(n), which)


@pytest.mark.parametrize(
    ("intervened", "groups"),
    [
        pytest.param((0, 1, 2, 3, 4), [[3], [4], [1], [2], [0]], id="all"),
        pytest.param((0, 3), [[3], [4], [1], [2], [0]], id="effects on a latent that is known"),
        pytest.param((0, 1), [[3, 4], [1], [2], [0]], id="childless ones"),
        pytest.param((0,), [[3, 4], [1, 2], [0]], id="effects on latents that may be mixed"),
    ],
)
def test_groups(intervened: tuple[int, ...], groups: list[list[int]]):
    found = groups_of(fit_of(), covered(*intervened))
    assert sorted(map(list, found)) == sorted(groups)


def test_edges_into_a_group_are_those_into_any_of_it():
    fit = fit_of()
    known = known_edges(fit, fit.adjacency, covered(0, 1))
    expected = fit.adjacency.copy()
    expected[2, 3] = expected[1, 4] = True
    np.testing.assert_array_equal(known, expected)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        pytest.param(fit_of(straight_p_values=None), "were not seen", id="linear"),
        pytest.param(
            fit_of(straight_p_values=np.array([0, 0, 0, 0.5, 0])), "seen on z3", id="a line"
        ),
        pytest.param(
            fit_of(((), (0,), (0,), (1,), ())), "seen of or on z4", id="no effect and no cause"
        ),
    ],
)
def test_what_hides_layers(fit: Fit, said: str):
    which = covered(0, 1, 2)
    assert not shows_layers(fit, which)
    check = coverage_check(fit, which, None)
    assert (check.name, check.passed) == (COVERAGE, False)
    assert "latents without an intervention: z3, z4" in check.detail
    assert said in check.detail
    guarantee = guarantee_of(FULL, fit, which, None)
    assert (guarantee.latents, guarantee.graph) == ("span", "none")
    assert guarantee.given([check]) is guarantee
    assert layers_of(fit, which) is None
    np.testing.assert_array_equal(
        known_edges(fit, fit.adjacency, which), fit.adjacency & which & which[:, None]
    )


def test_layers_that_show():
    which, names = covered(0, 1, 2), ["a", "b", "c", "d", "e"]
    assert shows_layers(fit_of(), which)
    assert layers_of(fit_of(), which) == ((3, 4), (1, 2), (0,))
    check = coverage_check(fit_of(), which, names)
    assert check.passed
    assert "d, e" in check.detail
    guarantee = guarantee_of(FULL, fit_of(), which, names)
    assert (guarantee.latents, guarantee.graph) == ("layers", "layers")
    assert "intervened on: everything; no environment intervenes on d, e" in guarantee.text
    assert "additive and Gaussian" in guarantee.text
    assert "edges to d, e are those to any of them" in guarantee.text
    other = guarantee_of(FULL, fit_of(any_noise=True), which, names)
    assert "additive and Gaussian" not in other.text


@pytest.mark.parametrize("hidden", [(4,), (3, 4)])
@pytest.mark.parametrize("seen", [True, False])
def test_sentences_are_right_for_one_latent(hidden: tuple[int, ...], seen: bool):
    fit = fit_of() if seen else fit_of(straight_p_values=None)
    text = guarantee_of(FULL, fit, ~covered(*hidden), None).text
    said = text.split("no environment intervenes on ")[1]
    if len(hidden) == 1:
        end = "up to a mixture with its layer" if seen else "only mixed with its ancestors, edges"
        assert said.startswith(f"z4, which is recovered {end}")
        assert not {"them", "their", "each", "are recovered"} & set(said.split(", if")[0].split())
    else:
        assert said.startswith("z3, z4: each is" if seen else "z3, z4, which are recovered only")
    assert ("through it" in said) == (not seen and len(hidden) == 1)


def test_all_are_intervened_on():
    everything, fit = covered(0, 1, 2, 3, 4), fit_of(straight_p_values=None)
    assert guarantee_of(FULL, fit, everything, None) is FULL
    assert coverage_check(fit, everything, None).passed
    assert not shows_layers(fit, everything)
    assert layers_of(fit_of(), everything) is None
    np.testing.assert_array_equal(known_edges(fit, fit.adjacency, everything), fit.adjacency)
