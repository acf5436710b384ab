# Simulated worlds always have a truth, and most have labels.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import Intervention, chain, linear_mixing, make_scm, make_world, simulate

KNOCK = Intervention(1, "hard", variance_factor=0.1)


def test_shapes_labels_and_truth():
    world = make_world(3, 5, [20, 30, 10], interventions=[None, KNOCK, None], random_state=0)
    assert world.X.shape == (60, 5)
    np.testing.assert_array_equal(np.bincount(world.y), [20, 30, 10])
    np.testing.assert_array_equal(world.y, np.sort(world.y))
    assert world.environments == (0, 1, 2)
    truth = world.truth
    np.testing.assert_array_equal(truth.targets, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    np.testing.assert_allclose(truth.mixing(truth.Z), world.X)
    for e, scm in enumerate(truth.scms):
        rows = world.y == e
        np.testing.assert_allclose(scm.from_noise(truth.noise[rows]), truth.Z[rows])


def test_one_environment_has_no_labels():
    world = make_world(2, random_state=0)
    assert world.y is None
    assert world.truth.targets.shape == (1, 2)


def test_label_zero_is_reserved_for_the_observational_environment():
    world = make_world(2, interventions=[KNOCK, Intervention(0)], random_state=0)
    assert world.environments == (1, 2)


def test_targets_are_hidden_unless_asked_for():
    changes = [None, KNOCK]
    assert make_world(2, interventions=changes, random_state=0).known_targets is None
    known = make_world(2, interventions=changes, targets="known", random_state=0)
    np.testing.assert_array_equal(known.known_targets, known.truth.targets)


def test_same_seed_same_bits_and_other_seed_other_bits():
    first, again, other = (
        make_world(3, 4, mechanism="mlp", measurement_noise=0.1, random_state=seed)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)


def test_generator_as_random_state():
    first, again = (make_world(3, random_state=np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.X, again.X)


def test_model_depends_neither_on_samples_nor_on_mixing():
    small, large = (
        make_world(4, d, n, mixing=mixing, random_state=3)
        for d, n, mixing in ((4, 10, "gaussian"), (9, 50, "tanh"))
    )
    np.testing.assert_array_equal(small.truth.scms[0].weights(), large.truth.scms[0].weights())


def test_measurement_noise():
    world = make_world(2, 3, 20_000, measurement_noise=0.5, random_state=0)
    residual = world.X - world.truth.mixing(world.truth.Z)
    np.testing.assert_allclose(np.cov(residual.T), 0.25 * np.eye(3), atol=0.01)
    assert world.truth.measurement_noise == 0.5


@pytest.mark.parametrize("rescale", ["standard", "minmax"])
def test_rescaling_by_the_sample_itself(rescale):
    world = make_world(4, graph="chain", mechanism="norm_squared", rescale=rescale, random_state=0)
    Z = world.truth.Z
    lowest, width = (Z.mean(0), Z.std(0)) if rescale == "standard" else (Z.min(0), np.ptp(Z, 0))
    np.testing.assert_allclose(lowest, 0.0, atol=1e-12)
    np.testing.assert_allclose(width, 1.0)


def test_options_are_passed_on():
    world = make_world(
        6,
        graph="er_k",
        graph_options={"edges_per_node": 2},
        mechanism_options={"weight_range": (3.0, 3.0)},
        mixing="leaky_relu",
        mixing_options={"n_layers": 4},
        random_state=0,
    )
    assert world.truth.graph.sum() == 12
    np.testing.assert_array_equal(
        np.abs(world.truth.scms[0].weights()), np.multiply(3.0, world.truth.graph)
    )
    assert len(world.truth.mixing.layers) == 5


def test_noise_family_and_scale_by_latent():
    world = make_world(
        2,
        graph="empty",
        n_samples=50_000,
        noise="exponential",
        noise_scale=[1.0, 3.0],
        random_state=0,
    )
    np.testing.assert_allclose(world.truth.Z.std(0), [1.0, 3.0], rtol=0.03)
    assert world.truth.Z[:, 0].min() >= -1.0


def test_simulate_a_model_of_ones_own():
    scm, mixing = make_scm(chain(3), random_state=0), linear_mixing(3, 4, random_state=0)
    dataset = simulate(scm, mixing, 50, interventions=[None, KNOCK], random_state=0)
    assert dataset.truth is not None
    assert dataset.truth.scms is not None
    assert dataset.truth.scms[0] is scm
    assert dataset.X.shape == (100, 4)


class TestBadInput:
    def test_sizes(self):
        with pytest.raises(ValueError, match=r"each of the 2 environments. Got 3"):
            make_world(2, n_samples=[1, 2, 3], interventions=[None, KNOCK])
        with pytest.raises(ValueError, match="positive integers"):
            make_world(2, n_samples=0)
        with pytest.raises(ValueError, match="positive integers"):
            make_world(2, n_samples=10.5)

    def test_no_environments(self):
        with pytest.raises(ValueError, match="one entry for each environment"):
            make_world(2, interventions=[])

    def test_entries_that_are_no_interventions(self):
        with pytest.raises(ValueError, match=r"must hold one Intervention .* Got 1; write"):
            make_world(2, interventions=[None, 1])

    def test_secrecy(self):
        with pytest.raises(ValueError, match="'hidden' or 'known'"):
            make_world(2, targets="maybe")

    def test_negative_measurement_noise(self):
        with pytest.raises(ValueError, match="must not be negative"):
            make_world(2, measurement_noise=-1.0)

    def test_target_out_of_range(self):
        with pytest.raises(ValueError, match="between 0 and 1"):
            make_world(2, interventions=[None, Intervention(2)])
