from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from crlearn.graph import Graph
from crlearn.likelihood import Fit
from crlearn.likelihood.nodes._selected import SelectedModel
from crlearn.likelihood.search._local import climb, good_graph_at, is_settled

POOL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
TRUE = ((), (0,), (1,))
EMPTY = ((), (), ())
MIXING = np.array([[1.0, 0.3, 0.2], [0.0, 1.0, 0.4], [0.1, 0.0, 1.0]])


def likeness(graph: Graph) -> float:
    """Score: how much a graph has in common with the chain, ten nats for each pair of latents."""

    def direction(graph: Graph, i: int, j: int) -> tuple[bool, bool]:
        return i in graph[j], j in graph[i]

    pairs = ((0, 1), (0, 2), (1, 2))
    return 10.0 * sum(direction(graph, *pair) == direction(TRUE, *pair) for pair in pairs)


@dataclass
class Table:
    """A model whose scores are known; it remembers what was fitted."""

    score: Callable[[Graph], float] = likeness
    promise: Callable[[Graph], float] = likeness
    gain_of_steps: float = 0.0
    hopeless: float = 0.0
    fitted: list[Graph] = field(default_factory=list)

    def predicted(self, fit: Fit, graphs: Sequence[Graph]) -> np.ndarray:
        return np.array([self.promise(graph) for graph in graphs])

    def refitted(self, fit: Fit, graph: Graph) -> Fit:
        self.fitted.append(graph)
        return Fit(fit.H, graph, self.score(graph) + self.gain_of_steps)

    def start(self, graph: Graph) -> Fit:
        return Fit(np.eye(3), graph, self.score(graph))


@pytest.mark.parametrize("start", [EMPTY, ((1, 2), (), (1,)), ((), (0,), (0, 1)), TRUE])
def test_the_top_of_a_hill_is_reached(start: Graph):
    model = Table()
    found = climb(model, model.start(start))
    assert found.graph == TRUE
    assert found.score == 30


def test_competing_structures_are_kept_the_best_first():
    model = Table(hopeless=25.0)
    found = climb(model, model.start(EMPTY), n_tried=2)
    scores = [other.score for other in found.alternatives]
    assert scores == sorted(scores, reverse=True)
    graphs = [other.graph for other in found.alternatives]
    assert EMPTY in graphs  # where it came from
    assert TRUE not in graphs
    assert len(graphs) == len(set(graphs))
    assert all(not other.alternatives for other in found.alternatives)


def test_what_was_known_of_competing_structures_is_kept():
    model = Table()
    other = model.start(((2,), (), ()))
    found = climb(model, replace(model.start(TRUE), alternatives=(other,)))
    assert other.graph in [each.graph for each in found.alternatives]


def test_hopeless_changes_are_not_fitted():
    model = Table()
    assert climb(model, model.start(TRUE)).graph == TRUE
    assert model.fitted == []
    bold = Table(hopeless=10.0)
    assert climb(bold, bold.start(TRUE), n_tried=4).graph == TRUE
    assert len(bold.fitted) == 4


def test_nothing_is_fitted_twice():
    model = Table(hopeless=100.0)
    climb(model, model.start(EMPTY), n_tried=20)
    tried = [graph for graph in model.fitted if graph != TRUE]
    counts = {graph: tried.count(graph) for graph in tried}
    # Once as a candidate, and once more where it is compared with what it leads to.
    assert max(counts.values()) <= 2


def test_wrong_predictions_cost_time_alone():
    """Predictions that say nothing: everything is tried, and the best is found."""
    model = Table(promise=lambda graph: 0.0, hopeless=100.0)
    assert climb(model, model.start(EMPTY), n_tried=20).graph == TRUE


def test_more_steps_are_not_taken_for_a_better_graph():
    """Whatever is fitted gains by the steps: the edge itself gains nothing."""
    model = Table(
        score=lambda graph: -float(sum(map(len, graph))), gain_of_steps=5.0, hopeless=100.0
    )
    found = climb(model, model.start(EMPTY), n_tried=20)
    assert found.graph == EMPTY


def test_a_climb_ends_where_another_one_has_ended():
    model = Table(hopeless=100.0)
    alone = climb(model, model.start(EMPTY), n_tried=20)
    tried_alone = len(model.fitted)
    model.fitted.clear()
    assert climb(model, model.start(EMPTY), n_tried=20, optima=[alone]).graph == TRUE
    assert len(model.fitted) < tried_alone


def test_the_graph_of_an_optimum_with_another_score_is_no_end():
    model = Table()
    elsewhere = Fit(np.eye(3), EMPTY, likeness(EMPTY) - 100.0)
    assert climb(model, model.start(EMPTY), optima=[elsewhere]).graph == TRUE


def test_starts_are_enough_when_they_lead_to_the_best_again_and_again():
    assert not is_settled([5.0, 3.0, 5.1, 2.0, 4.9])
    assert is_settled([5.0, 3.0, 5.1, 2.0, 4.9, 5.0])
    assert not is_settled([5.0, 5.0, 5.0, 5.0, 9.0])


def test_one_latent_has_no_neighbours():
    model = Table(score=lambda graph: 1.0)
    assert climb(model, Fit(np.eye(1), ((),), 1.0)).graph == ((),)
    assert model.fitted == []


@pytest.fixture(scope="module")
def model() -> SelectedModel:
    """z0 -> z1 -> z2 with bends, each latent cut off in one environment."""
    rng = np.random.default_rng(0)
    environments = []
    for e in range(4):
        z = rng.standard_normal((2000, 3)) * [1.0, 0.5, 0.5]
        z[:, 0] *= 1 + (e == 1)
        z[:, 1] += (e != 2) * np.abs(z[:, 0])
        z[:, 2] += (e != 3) * np.sin(2 * z[:, 1])
        environments.append(z @ MIXING.T)
    return SelectedModel(environments, POOL, hard=True)


@pytest.mark.parametrize("start", [EMPTY, ((), (0,), (0, 1)), ((1,), (), (0, 1))])
def test_climbing_reaches_the_true_graph(model: SelectedModel, start: Graph):
    near = np.linalg.inv(MIXING) + 0.05 * np.random.default_rng(1).standard_normal((3, 3))
    found = climb(model, model.refitted(Fit(near, start, -np.inf), start))
    assert found.graph == TRUE
    value = model.value(found.H, TRUE)
    assert found.log_likelihood == pytest.approx(-model.n_rows * value, abs=1e-6)


def test_at_the_true_encoder_single_edges_lead_to_the_true_graph(model: SelectedModel):
    assert good_graph_at(model, model.scaled(np.linalg.inv(MIXING))) == TRUE
