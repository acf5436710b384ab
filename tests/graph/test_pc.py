import sys

import numpy as np
import pytest

from crlearn.data import make_sparse_mixture
from crlearn.exceptions import MissingExtraError
from crlearn.graph import cpdag, pc_cpdag

N_ROWS = 5000


def graph_of(n_nodes, *edges):
    adjacency = np.zeros((n_nodes, n_nodes), dtype=bool)
    for i, j in edges:
        adjacency[i, j] = True
    return adjacency


GRAPHS = {
    "empty": graph_of(3),
    "chain": graph_of(3, (0, 1), (1, 2)),
    "collider": graph_of(3, (0, 1), (2, 1)),
    "collider with a tail": graph_of(4, (0, 2), (1, 2), (2, 3)),
    "two causes of one latent, and a chain": graph_of(6, (5, 0), (3, 0), (0, 1), (2, 4)),
}


def linear_gaussian(graph, seed=0, n_rows=N_ROWS):
    noise = np.random.default_rng(seed).normal(size=(n_rows, len(graph)))
    return noise @ np.linalg.inv(np.eye(len(graph)) - 0.8 * graph)


def switched_off(Z, value, seed=0):
    """Switch each entry off in half of the rows, whatever it is."""
    active = np.random.default_rng(seed + 100).random(Z.shape) < 0.5
    return np.where(active, Z, value), active


@pytest.fixture
def needs_causallearn():
    pytest.importorskip("causallearn", reason="PC is that of causal-learn, an extra")


@pytest.mark.usefixtures("needs_causallearn")
class TestPC:
    @pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
    @pytest.mark.parametrize("seed", range(3))
    def test_finds_the_cpdag_of_linear_gaussian_data(self, graph, seed):
        Z = linear_gaussian(graph, seed)
        np.testing.assert_array_equal(pc_cpdag(Z, alpha=1e-3), cpdag(graph))

    def test_units_and_order_do_not_matter(self):
        graph = GRAPHS["collider with a tail"]
        Z, order = linear_gaussian(graph), [2, 0, 3, 1]
        other = (1e3 * Z + [1, 1e4, -5, 0])[:, order]
        np.testing.assert_array_equal(
            pc_cpdag(other, 1e-3), pc_cpdag(Z, 1e-3)[np.ix_(order, order)]
        )

    def test_agrees_with_causallearn_on_the_rows_themselves(self):
        """Rows that stand in for the correlations are as good as the data."""
        from causallearn.search.ConstraintBased.PC import pc

        from crlearn.graph import from_causallearn

        rng = np.random.default_rng(3)
        Z = linear_gaussian(np.triu(rng.random((6, 6)) < 0.4, k=1), n_rows=300)
        theirs = from_causallearn(pc(Z, 0.05, "fisherz", show_progress=False))
        np.testing.assert_array_equal(pc_cpdag(Z, 0.05), theirs)

    def test_a_larger_level_keeps_more_edges(self):
        noise = np.random.default_rng(0).normal(size=(200, 8))
        few, many = (int(pc_cpdag(noise, alpha).sum()) for alpha in (1e-4, 0.5))
        assert few < many

    @pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
    def test_latents_that_are_switched_off(self, graph):
        Z, active = switched_off(linear_gaussian(graph, n_rows=4 * N_ROWS), value=0.0)
        # Such tests reject too often: at a smaller level, edges of weight 0.8 are still seen.
        np.testing.assert_array_equal(pc_cpdag(Z, 1e-6, active=active), cpdag(graph))

    def test_without_activity_a_chain_is_not_cut(self):
        """Where the middle is off, it no longer separates the ends."""
        Z, active = switched_off(linear_gaussian(GRAPHS["chain"], n_rows=4 * N_ROWS), value=0.0)
        assert pc_cpdag(Z, 1e-3)[0, 2]
        assert not pc_cpdag(Z, 1e-3, active=active)[0, 2]

    def test_what_inactive_entries_hold_does_not_matter(self):
        Z, active = switched_off(linear_gaussian(GRAPHS["collider"]), value=0.0)
        junk = np.where(active, Z, 1e6 * np.random.default_rng(0).normal(size=Z.shape))
        np.testing.assert_array_equal(pc_cpdag(junk, active=active), pc_cpdag(Z, active=active))

    def test_the_sample_size_is_that_of_the_rarest_pair(self):
        """An edge that all rows show is not seen in a few."""
        rng = np.random.default_rng(0)
        z = rng.normal(size=2000)
        Z = np.column_stack([z, 0.2 * z + rng.normal(size=2000), rng.normal(size=2000)])
        active = np.ones(Z.shape, dtype=bool)
        assert pc_cpdag(Z, active=active)[0, 1]
        active[20:, 2] = False  # the pairs of the third column have twenty rows
        assert not pc_cpdag(Z, active=active)[0, 1]

    def test_the_world_of_degenerate_mixtures(self):
        world = make_sparse_mixture(5, n_samples=40_000, random_state=2)
        truth = world.truth
        assert truth is not None
        assert truth.graph is not None
        found = pc_cpdag(truth.Z, active=truth.active)
        np.testing.assert_array_equal(found, cpdag(truth.graph))
        assert (pc_cpdag(truth.Z) != found).any()

    def test_correlations_that_no_data_have_are_mended(self):
        """Three pairs on rows of their own: two that agree, and one that disagrees."""
        base = np.random.default_rng(0).normal(size=(300, 2))
        noisy = base[:, 0] + 0.1 * base[:, 1]
        Z = np.zeros((900, 3))
        active = np.zeros((900, 3), dtype=bool)
        for block, (i, j, sign) in enumerate([(0, 1, 1), (1, 2, 1), (0, 2, -1)]):
            rows = slice(300 * block, 300 * block + 300)
            Z[rows, i], Z[rows, j] = base[:, 0], sign * noisy
            active[rows, [[i], [j]]] = True
        assert pc_cpdag(Z, active=active).shape == (3, 3)

    def test_the_example(self):
        noise = np.random.default_rng(0).normal(size=(1000, 3))
        Z = np.column_stack([noise[:, :2], noise.sum(axis=1)])
        assert pc_cpdag(Z).astype(int).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]

    def test_one_column_has_no_edges(self):
        assert pc_cpdag(np.arange(9.0)[:, None]).tolist() == [[False]]


@pytest.mark.usefixtures("needs_causallearn")
class TestBadInput:
    Z = np.random.default_rng(0).normal(size=(50, 3))

    @pytest.mark.parametrize("alpha", [0, 1, -0.1])
    def test_levels(self, alpha):
        with pytest.raises(ValueError, match="alpha must lie between 0 and 1"):
            pc_cpdag(self.Z, alpha)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_numbers_that_are_not_finite(self, bad):
        with pytest.raises(ValueError, match="finite numbers"):
            pc_cpdag(np.where(np.eye(50, 3, dtype=bool), bad, self.Z))

    def test_too_few_rows(self):
        with pytest.raises(ValueError, match="needs at least 5 rows"):
            pc_cpdag(self.Z[:4])

    def test_a_pair_that_is_never_active_together(self):
        active = np.ones((50, 3), dtype=bool)
        active[:25, 0] = active[25:, 2] = False
        with pytest.raises(ValueError, match="Got 0 for the columns 0 and 2"):
            pc_cpdag(self.Z, active=active)

    def test_a_column_that_is_constant(self):
        with pytest.raises(ValueError, match="Constant are the columns 1"):
            pc_cpdag(self.Z * [1, 0, 1] + [0, 7, 0])

    @pytest.mark.parametrize("active", [np.ones((50, 3)), np.ones((50, 2), dtype=bool)])
    def test_activity(self, active):
        with pytest.raises(ValueError, match=r"active must hold truth values .*\(50, 3\)"):
            pc_cpdag(self.Z, active=active)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "causallearn.search.ConstraintBased.PC", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'crlearn\[graph\]'"):
        pc_cpdag(np.zeros((9, 2)))
