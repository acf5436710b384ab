from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from crlearn.inputs import Environments, read_environments
from crlearn.inputs._known import (
    intervened_rows,
    names_of_nodes,
    read_domains,
    read_graph,
    read_mixing,
    read_weights,
    single_targets,
)

CHAIN = np.eye(3, k=1, dtype=bool)


@pytest.fixture
def environments() -> Environments:
    return read_environments(np.array(["b", "a", "c", "a"]))


class TestSingleTargets:
    def test_a_matrix_is_read_by_label(self, environments: Environments):
        """Environments without a target are left out: the reference, or one that is not known."""
        matrix = [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
        assert single_targets(matrix, environments) == {"a": 1, "c": 0}

    @pytest.mark.parametrize("targets", [None, {"a": "dose"}])
    def test_a_mapping_stays(self, environments: Environments, targets: Any):
        assert single_targets(targets, environments) is targets

    def test_several_targets_are_refused(self, environments: Environments):
        with pytest.raises(ValueError, match="Environment 'c' has 2; MultiNodeCRL takes several"):
            single_targets([[0, 1], [0, 0], [1, 1]], environments)

    @pytest.mark.parametrize("targets", [[0, 1, 2], [[0, 1]], [["a"], ["b"], ["c"]]])
    def test_other_shapes_are_refused(self, environments: Environments, targets: Any):
        with pytest.raises(ValueError, match="'targets' must be a mapping from labels to latents"):
            single_targets(targets, environments)


class TestTargets:
    def test_a_mapping_and_a_matrix_say_the_same(self, environments: Environments):
        matrix = [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
        by_label = {"c": [1, 2], "a": 0, "b": []}
        for targets in (matrix, by_label, np.array(matrix, dtype=bool)):
            known = read_domains(CHAIN, targets, environments)
            np.testing.assert_array_equal(known.targets, np.array(matrix, dtype=bool))

    def test_a_mapping_may_name_domains_that_are_to_come(self, environments: Environments):
        known = read_domains(CHAIN, {"a": 0, "b": [], "c": 1, "new": [0, 2]}, environments)
        rows = intervened_rows(known.labels, known.rows, np.array(["new", "a"]))
        np.testing.assert_array_equal(rows, [[True, False, True], [True, False, False]])

    def test_nodes_of_a_graph_with_names(self, environments: Environments):
        graph = nx.DiGraph([("iron", "salt"), ("salt", "heat")])
        names = names_of_nodes(graph)
        assert names == ("iron", "salt", "heat")
        by_name = {"a": "iron", "b": [], "c": ["salt", "heat"]}
        by_number = {"a": 0, "b": [], "c": [1, 2]}
        for targets in (by_name, by_number):
            known = read_domains(CHAIN, targets, environments, names)
            np.testing.assert_array_equal(known.targets, [[1, 0, 0], [0, 0, 0], [0, 1, 1]])
            assert known.names == names
        with pytest.raises(
            ValueError, match=r"nodes of the graph: 'iron', 'salt', 'heat'\. Got 'x'"
        ):
            read_domains(CHAIN, {**by_name, "b": "x"}, environments, names)

    def test_graphs_without_names(self):
        assert names_of_nodes(CHAIN) is None
        assert names_of_nodes(nx.DiGraph([(0, 1)])) is None

    def test_numbers_are_labels_whatever_their_type(self):
        environments = read_environments(np.array([1.0, 2.0]))
        known = read_domains(CHAIN, {1: 0, 2: 1}, environments)
        assert intervened_rows(known.labels, known.rows, np.array([2, 2]))[:, 1].all()

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            ({"a": 0, "b": 1}, "must name every environment in y. Missing are 'c'"),
            ({"a": 0, "b": 1, "c": 3}, "latents from 0 to 2.*Got 3 for environment 'c'"),
            ({"a": 0, "b": 1, "c": [0.5]}, r"latents from 0 to 2.*Got \[0.5\]"),
            (np.eye(2), r"one row for each of the 3 environments.*Got shape \(2, 2\)"),
            (2 * np.eye(3), "0/1 array"),
        ],
    )
    def test_bad_targets(self, environments: Environments, targets: Any, message: str):
        with pytest.raises(ValueError, match=message):
            read_domains(CHAIN, targets, environments)

    def test_doses(self, environments: Environments):
        targets = {"a": {0: 2.0, 2: -1}, "b": [1], "c": {}}
        known = read_domains(CHAIN, targets, environments, doses=True)
        expected = np.array([[2.0, 0, -1], [0, 1, 0], [0, 0, 0]])
        np.testing.assert_array_equal(known.doses, expected)  # type: ignore[arg-type]
        np.testing.assert_array_equal(known.targets, expected != 0)
        same = read_domains(CHAIN, expected, environments, doses=True)
        np.testing.assert_array_equal(same.rows, expected)
        named = {"a": {"x": 2.0, "z": -1}, "b": "y", "c": []}
        by_name = read_domains(CHAIN, named, environments, ("x", "y", "z"), doses=True)
        np.testing.assert_array_equal(by_name.rows, expected)

    @pytest.mark.parametrize(
        ("targets", "doses", "message"),
        [
            ({"a": {0: 2.0}, "b": [], "c": []}, False, "with interventions='shift' only"),
            (2 * np.eye(3), False, "doses need interventions='shift'"),
            ({"a": {0: "much"}, "b": [], "c": []}, True, "must be finite numbers. Got 'much'"),
            ({"a": {5: 1.0}, "b": [], "c": []}, True, "latents from 0 to 2"),
            (np.nan * np.eye(3), True, "array of finite doses"),
        ],
    )
    def test_bad_doses(self, environments: Environments, targets: Any, doses: bool, message: str):
        with pytest.raises(ValueError, match=message):
            read_domains(CHAIN, targets, environments, doses=doses)

    def test_unknown_labels(self, environments: Environments):
        known = read_domains(CHAIN, {"a": 0, "b": 1, "c": 2}, environments)
        with pytest.raises(
            ValueError, match=r"targets are not known: 'x'. Known are 'a', 'b', 'c'"
        ):
            intervened_rows(known.labels, known.rows, np.array(["a", "x"]))


class TestGraph:
    def test_a_cycle(self):
        with pytest.raises(ValueError, match=r"must be acyclic. Got the cycle"):
            read_graph([[0, 1], [1, 0]], None)

    def test_another_number_of_latents(self):
        with pytest.raises(ValueError, match="3 nodes and n_latents=2"):
            read_graph(CHAIN, 2)


class TestWeights:
    def test_by_label_and_in_order(self, environments: Environments):
        first: Any = read_weights({"a": 1, "b": 4, "c": 2}, environments)
        second: Any = read_weights([1, 4, 2], environments)
        np.testing.assert_allclose(first, second)
        np.testing.assert_allclose(first, np.array([4, 1, 2, 1]) / 2)

    def test_equal_environments(self, environments: Environments):
        weights: Any = read_weights("equal", environments)
        np.testing.assert_allclose(np.bincount(environments.codes, weights), len(weights) / 3)

    @pytest.mark.parametrize("weights", ["rows", [1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1]])
    def test_bad_weights(self, environments: Environments, weights: Any):
        with pytest.raises(ValueError, match="one number for each of the 3 environments"):
            read_weights(weights, environments)

    def test_a_missing_label(self, environments: Environments):
        with pytest.raises(ValueError, match="Missing are 'c'"):
            read_weights({"a": 1, "b": 1}, environments)


class TestMixing:
    def test_a_matrix_is_taken_as_it_is_and_a_word_is_none(self):
        np.testing.assert_array_equal(read_mixing([[1, 2], [3, 4]], 2, 2), [[1, 2], [3, 4]])
        assert read_mixing("any", 2, 2) is None

    def test_matrices_that_are_none_of_a_mixing(self):
        with pytest.raises(ValueError, match=r"shape \(3, 2\).*Got shape \(2, 2\)"):
            read_mixing(np.eye(2), 3, 2)
        with pytest.raises(ValueError, match=r"linearly independent.*Got rank 1 for 2 latents"):
            read_mixing(np.ones((3, 2)), 3, 2)
