from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crlearn.flows import Assignment, NodeRegressions, Structure, earlier
from crlearn.flows.interventional._structure import assigned, marginal_gains, named, revised
from crlearn.graph import best_order

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
FORK = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: 1.2 * z,
    "quadratic": lambda z: 2 * np.sqrt(z**2 + 0.1) - 1.9,  # as in the worlds of GSCALE-I
}
ONE_EACH = ((), (0,), (1,), (2,))  # targets of the environments
UNKNOWN = Assignment(0, ((), None, None, None))


def latents(
    graph: Any,
    kind: str = "linear",
    targets: Any = ONE_EACH,
    *,
    soft: float = 0.0,
    n_rows: int = 2000,
) -> Any:
    """Rows of each environment; a hard intervention gives its target another variance.

    `soft` is the share of the effect of its causes that an intervention leaves.
    """
    rng = np.random.default_rng(0)
    noises = rng.normal(size=(n_rows, len(targets), len(graph)))
    z = np.zeros_like(noises)
    for j in range(len(graph)):
        cause = sum(
            (FUNCTIONS[kind](z[..., i]) for i in np.flatnonzero(graph[:, j])), 0 * z[..., j]
        )
        hit = np.array([j in of_one for of_one in targets])
        z[..., j] = np.where(hit, soft * cause + 2 * noises[..., j], cause + noises[..., j])
    return z


def own_of(targets: Any, n: int = 3) -> Any:
    return np.array([[j in of_one for j in range(n)] for of_one in targets])


def shares(z: Any) -> Any:
    return np.full(z.shape[1], 1 / z.shape[1])


def regressions(z: Any, kind: str = "linear") -> NodeRegressions:
    return NodeRegressions(z, shares(z), linear=kind == "linear")


def test_a_regression_is_that_of_least_squares():
    z, own = latents(CHAIN), own_of(ONE_EACH)
    standard = (z - z.mean((0, 1))) / z.std((0, 1))
    left_alone = standard[:, [0, 1, 2]].reshape(-1, 3)  # not hit at latent 2
    design = np.column_stack([np.ones(len(left_alone)), left_alone[:, :2]])
    residual = left_alone[:, 2] - design @ np.linalg.lstsq(design, left_alone[:, 2])[0]
    found = regressions(z).residual_variance(2, 0b011, own)
    assert found == pytest.approx(residual.var(), rel=2e-3)
    assert regressions(z).residual_variance(2, 0, own) == pytest.approx(left_alone[:, 2].var())


def test_environments_count_by_their_shares():
    z, own = latents(CHAIN), own_of(ONE_EACH)
    mostly_one = NodeRegressions(z, np.array([0.97, 0.01, 0.01, 0.01]), linear=True)
    standard = (z - z.mean((0, 1))) / z.std((0, 1))
    found = mostly_one.residual_variance(0, 0, own)
    assert found == pytest.approx(standard[:, 0, 0].var(), rel=0.05)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("graph", [CHAIN, FORK], ids=["chain", "fork"])
def test_order_and_parents(graph: Any, kind: str):
    places = [2, 0, 1]  # causes do not come first
    z, own = latents(graph, kind)[..., places], own_of(ONE_EACH)[:, places]
    found = regressions(z, kind)
    before = earlier(best_order(found.costs(own)))
    wanted = graph[np.ix_(places, places)]
    assert (before | ~wanted).all()
    np.testing.assert_array_equal(found.parents(before, own, 0.005), wanted)
    assert found.parents(before, own, 10.0).sum() == 0


def test_effects_are_what_a_parent_adds():
    z, own = latents(CHAIN), own_of(ONE_EACH)
    effects = regressions(z).effects(np.triu(np.ones((3, 3), bool), 1), 2, own)
    assert effects[0] < 0.005 < 0.1 < effects[1]


def test_curved_effects_need_curved_features():
    z, own = latents(CHAIN, "quadratic"), own_of(ONE_EACH)
    straight = regressions(z).residual_variance(1, 0b001, own)
    curved = regressions(z, "quadratic").residual_variance(1, 0b001, own)
    assert curved < 0.6 * straight


class TestEnvironments:
    """What a latent does in each environment, under the right order."""

    before = np.triu(np.ones((3, 3), bool), 1)

    def test_gains_are_large_where_a_latent_is_hit(self):
        z, own = latents(CHAIN), own_of(ONE_EACH)
        gains = regressions(z).gains(self.before, np.zeros_like(own) | own)
        assert (gains[own] > 0.2).all()
        assert gains[0].max() < 0.02

    @pytest.mark.parametrize("kind", FUNCTIONS)
    def test_dependence(self, kind: str):
        own = own_of(ONE_EACH)
        hard = regressions(latents(CHAIN, kind), kind).dependence(self.before, own)
        soft = regressions(latents(CHAIN, kind, soft=0.7), kind).dependence(self.before, own)
        assert hard.max() < 0.01
        assert soft[2, 1] > 0.1
        assert (soft[~own] == 0).all()

    @pytest.mark.parametrize("kind", FUNCTIONS)
    def test_changes(self, kind: str):
        """An environment that nobody names intervenes as well."""
        z = latents(CHAIN, kind, (*ONE_EACH, (1,)))
        said, true = own_of((*ONE_EACH, ())), own_of((*ONE_EACH, (1,)))
        found = regressions(z, kind)
        changes = found.changes(self.before, said)
        assert changes[4, 1] > 0.1
        assert changes.argmax() == 4 * 3 + 1
        assert found.changes(self.before, true).max() < 0.01
        assert (changes[said] == 0).all()


def test_marginal_gains_by_hand():
    z = np.stack([np.array([[-1.0], [1.0]]), np.array([[0.0], [4.0]])], axis=1)
    np.testing.assert_allclose(marginal_gains(z, 0), [[0], [0.5 * (8 - 1 - np.log(4))]])
    of_all = marginal_gains(z, None)  # mean 1 and variance 3.5 of all rows
    np.testing.assert_allclose(of_all[0], 0.5 * ((1 + 1) / 3.5 - 1 - np.log(1 / 3.5)))


class TestAssigned:
    gains = np.array([[0.0, 0, 0], [0.1, 3, 0.2], [2, 0.1, 0.3], [0.1, 0.2, 0.4]])

    def test_one_each(self):
        found = assigned(self.gains, UNKNOWN, None)
        np.testing.assert_array_equal(found.argmax(axis=1)[1:], [1, 0, 2])
        assert found.sum(axis=1).tolist() == [0, 1, 1, 1]

    def test_two_each(self):
        gains = np.concatenate([self.gains, self.gains[1:]])
        found = assigned(gains, Assignment(0, ((), *[None] * 6)), None)
        np.testing.assert_array_equal(found.argmax(axis=1)[1:], [1, 0, 2] * 2)

    def test_fewer_environments_than_latents(self):
        found = assigned(self.gains[:3], Assignment(0, ((), None, None)), None)
        np.testing.assert_array_equal(found, [[0, 0, 0], [0, 1, 0], [1, 0, 0]])

    def test_partly_known(self):
        """The name 0 belongs to the latent that its environment changes."""
        assignment = Assignment(0, ((), (0,), None, None))
        np.testing.assert_array_equal(assignment.unknown, [2, 3])
        found = assigned(self.gains, assignment, None)
        np.testing.assert_array_equal(found.argmax(axis=1)[1:], [1, 0, 2])
        later = assigned(self.gains[[0, 2, 1, 3]], assignment, found)
        assert later[1].tolist() == found[1].tolist()  # what is known stays where it is

    def test_equal_names_share_a_latent(self):
        assignment = Assignment(0, ((), (0,), (0,), (1,)))
        found = assigned(np.array([[0.0, 0], [1, 5], [2, 4], [6, 1]]), assignment, None)
        np.testing.assert_array_equal(found.argmax(axis=1)[1:], [1, 1, 0])


def test_a_known_graph_is_put_where_its_names_are():
    """Name 0 causes name 1; the latents come the other way round."""
    assignment = Assignment(0, ((), (0,), (1,)), graph=((), (0,)))
    found = named(np.array([[0.0, 0], [0.1, 3], [2, 0.1]]), assignment)
    np.testing.assert_array_equal(found.own, [[0, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(found.before, [[0, 0], [1, 0]])


class TestRevised:
    def test_from_nothing(self):
        free = Structure(np.ones((4, 3), bool), np.zeros((3, 3), bool))
        assert free.is_free
        z = latents(FORK)
        found = revised(z, free, shares(z), UNKNOWN, linear=True)
        assert not found.is_free
        np.testing.assert_array_equal(found.own, own_of(ONE_EACH))
        assert (found.before | ~FORK).all()
        again = revised(z, found, shares(z), UNKNOWN, linear=True)
        np.testing.assert_array_equal(again.own, found.own)

    def test_a_known_graph_stays(self):
        z = latents(CHAIN)
        assignment = Assignment(0, ONE_EACH, graph=((), (0,), (1,)))
        free = Structure(np.ones((4, 3), bool), np.zeros((3, 3), bool))
        found = revised(z, free, shares(z), assignment, linear=True)
        np.testing.assert_array_equal(found.before, CHAIN)
        assert revised(z[::-1], found, shares(z), assignment, linear=True) is found


def test_earlier():
    np.testing.assert_array_equal(
        earlier(np.array([2, 0, 1])), [[False, True, False], [False] * 3, [True, True, False]]
    )
