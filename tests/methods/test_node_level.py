from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn import LinearInterventionCRL, load
from crlearn.data import Intervention, make_linear_interventional, simulate
from crlearn.exceptions import AssumptionWarning

pytestmark = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")
BOTH: Any = {1: "gene", 2: "gene"}


def pair(*interventions: Any, mechanism: str = "linear", measurement_noise: float = 0.0) -> Any:
    world: Any = make_linear_interventional(
        4, 10, 10, mechanism=mechanism, graph="full", random_state=0
    )
    return simulate(
        world.truth.scms[0],
        world.truth.mixing,
        3000,
        interventions=interventions,
        measurement_noise=measurement_noise,
        random_state=0,
    )


def hard(j: int = 2, **options: Any) -> Intervention:
    return Intervention(j, "hard", **options)


def do(j: int, value: float) -> Intervention:
    return Intervention(j, "do", value=value)


def fitted(world: Any, **options: Any) -> Any:
    model = LinearInterventionCRL(**{"targets": BOTH, "random_state": 0, **options})
    return model.fit(world.X, world.y)


def mixed(model: Any, world: Any, j: int = 2) -> float:
    """Return how much of the other latents the first one has, beside its own share."""
    row = np.abs(model.result_.encoder.matrix[0] @ world.truth.mixing.matrix)
    return float(np.delete(row, j).max() / row[j])


VARIANCES = hard(variance_factor=0.25), hard(variance_factor=4.0)


@pytest.mark.parametrize("mechanism", ["linear", "quadratic"])
@pytest.mark.parametrize(
    "interventions", [VARIANCES, (hard(mean=0.0), hard(mean=2.0))], ids=["variances", "means"]
)
def test_the_latent_is_recovered_and_nothing_else(mechanism: str, interventions: Any):
    world = pair(*interventions, mechanism=mechanism)
    with pytest.warns(AssumptionWarning) as caught:
        model = fitted(world)
    assert [str(warning.message) for warning in caught] == [
        "LinearInterventionCRL: every latent is intervened on: fails (latents without an "
        "intervention: z1, z2, z3)"
    ]
    assert mixed(model, world) < 0.1
    result = model.result_
    assert result.guarantee.latents == "span"
    assert result.guarantee.graph == "none"
    assert "the latent that both environments intervene on up to scale" in result.guarantee.text
    assert not result.adjacency.any()
    assert result.names == ("gene", "z1", "z2", "z3")
    np.testing.assert_array_equal(result.targets, [[1, 0, 0, 0], [1, 0, 0, 0]])
    Z = model.transform(world.X)
    assert np.linalg.matrix_rank(Z) == 4


def test_other_interventions_than_those_fail_the_check():
    model = fitted(pair(VARIANCES[0], hard(0, variance_factor=4.0)))
    check = next(c for c in model.result_.checks if c.name == "environments differ in one latent")
    assert not check.passed
    assert model.result_.guarantee.latents == "none"


@pytest.mark.parametrize("first", [hard(mean=0.0), do(2, -1.0), hard(0, variance_factor=4.0)])
def test_a_held_latent_is_exact_whatever_the_other_environment_does(first: Intervention):
    world = pair(first, do(2, 1.5))
    model = fitted(world)
    assert mixed(model, world) < 1e-10
    assert model.result_.guarantee.latents == "span"
    assert "held at a value" in str(model.result_.checks[-1])


def test_a_matrix_of_targets_says_the_same(tmp_path: Any):
    world = pair(*VARIANCES)
    model = fitted(world, targets=[[0, 1], [0, 1]])
    assert model.result_.names is None
    assert mixed(model, world) < 0.1
    model.save(tmp_path / "pair.crl")
    again = load(tmp_path / "pair.crl")
    np.testing.assert_array_equal(again.transform(world.X), model.transform(world.X))


@pytest.mark.parametrize(
    ("interventions", "options"),
    [
        (VARIANCES, {"targets": {1: "a", 2: "b"}}),
        (VARIANCES, {"interventions": "soft"}),
        ((*VARIANCES, hard(1)), {"targets": {1: "a", 2: "a", 3: "b"}}),
    ],
    ids=["two latents", "soft", "three environments"],
)
def test_what_theory_does_not_allow_is_refused(interventions: Any, options: Any):
    with pytest.raises(ValueError, match="for the reference environment, 1, which must be obs"):
        fitted(pair(*interventions), **options)


def test_noise_and_different_held_latents_are_refused():
    with pytest.raises(ValueError, match="measurement noise cannot be taken off"):
        fitted(pair(*VARIANCES, measurement_noise=0.1))
    with pytest.raises(ValueError, match="different latents are held at values"):
        fitted(pair(do(2, 1.0), do(1, 1.0)))


def test_environments_that_hardly_overlap_leave_the_check_open():
    """Where no row could be of either, nothing shows whether other latents differ as well."""
    model = fitted(pair(hard(mean=0.0), hard(mean=60.0)))
    (check,) = (c for c in model.result_.checks if c.name == "environments differ in one latent")
    assert check.passed is None
    assert "rows could be of either environment" in check.detail
    assert model.result_.guarantee.latents == "none"


def test_one_latent():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=500), 3 * rng.normal(size=500)])
    model = LinearInterventionCRL(targets=BOTH).fit(z[:, None] * [1, 2], np.repeat([1, 2], 500))
    assert abs(np.corrcoef(z, model.transform(z[:, None] * [1, 2])[:, 0])[0, 1]) > 0.9999


def test_environments_that_are_alike_are_named():
    world = pair(hard(), hard())
    labels = np.where(world.y == 1, "a", "b")
    model = LinearInterventionCRL(targets={"a": "gene", "b": "gene"}).fit(world.X, labels)
    (check,) = (c for c in model.result_.checks if c.name == "interventions are visible")
    assert check.detail.endswith(": b")


def test_a_reference_without_a_target_is_one():
    world: Any = make_linear_interventional(2, 4, 300, random_state=0)
    targets: Any = {0: None, 1: "A", 2: "B"}
    model = LinearInterventionCRL(targets=targets, random_state=0).fit(world.X, world.y)
    assert model.result_.names == ("A", "B")
