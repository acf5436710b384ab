from __future__ import annotations

import numpy as np
import pytest

from crlearn.likelihood import Moments, grouped_targets, pools_of
from crlearn.likelihood.interventional import _start
from crlearn.likelihood.interventional._start import first_without_order, fit_without_order
from crlearn.likelihood.nodes._linear import LinearModel, minimise

N = 4


@pytest.mark.parametrize("seed", range(3))
def test_the_model_without_order_finds_the_latents_of_hard_interventions(exact, seed: int):
    world = exact(seed)
    H = fit_without_order(world.model, np.random.default_rng(0))
    np.testing.assert_allclose(world.mixed(H), np.eye(N), atol=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_soft_interventions_leave_noises(exact, seed: int):
    """Its value is that of the saturated model: nothing is assumed of the graph."""
    model = exact(seed, "soft").model
    H = fit_without_order(model, np.random.default_rng(0))
    _, value = minimise(H, model.pools, model.masks_without_order())
    assert value == pytest.approx(model.moments.saturated, abs=1e-8)


def test_the_value_from_the_first_start_says_what_is_wrong(exact):
    model = exact(0, "soft").model
    value, masks = first_without_order(model, np.random.default_rng(0))
    assert model.is_good(value, masks, n_tries=1)
    elsewhere = LinearModel(model.moments, model.pool[[1, 2, 3, 0]][:, [0, 2, 1, 3, 4]], hard=False)
    lumped = np.minimum(elsewhere.pool + elsewhere.pool[[1, 2, 3, 0]], 1)  # two at a time
    wrong = LinearModel(model.moments, lumped, hard=False)
    assert not wrong.is_good(*first_without_order(wrong, np.random.default_rng(0)), n_tries=9)


def test_no_more_starts_where_they_lead_nowhere_else(exact, monkeypatch: pytest.MonkeyPatch):
    """Of a model that is wrong: nothing is good, and all starts would be tried."""
    model = exact(0, "soft").model
    wrong = LinearModel(model.moments, model.pool[:, [0, 2, 1, 3, 4]], hard=False)
    starts = list(_start._starts(wrong, np.random.default_rng(0)))
    tried: list[int] = []
    monkeypatch.setattr(LinearModel, "is_good", lambda *_: tried.append(1) or False)
    H = fit_without_order(wrong, np.random.default_rng(0))
    assert len(tried) < len(starts) / 2
    masks = wrong.masks_without_order()
    values = [minimise(each, wrong.pools, masks)[1] for each in starts]
    assert minimise(H, wrong.pools, masks)[1] == pytest.approx(min(values), abs=1e-8)


def test_rows_of_many_latents_are_turned_one_by_one(exact, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_start, "MANY", 3)
    world = exact(1)
    H = fit_without_order(world.model, np.random.default_rng(0))
    np.testing.assert_allclose(world.mixed(H), np.eye(N), atol=1e-2)


def test_latents_without_an_intervention_leave_the_others_alone(exact):
    world = exact(3)
    keep = [0, 1, 2]  # the reference and two interventions
    whole = world.model.moments
    moments = Moments(whole.sizes[keep], whole.means[keep], whole.covariances[keep])
    partial = LinearModel(moments, world.model.pool[:, keep], hard=True)
    assert partial.covered.tolist() == [True, True, False, False]
    H = fit_without_order(partial, np.random.default_rng(0))
    np.testing.assert_allclose(world.mixed(H)[:2], np.eye(N)[:2], atol=1e-2)


def test_every_environment_has_a_pool_of_its_own():
    expected = [[0, 1, 0, 2, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    assert pools_of(np.array([0, 1, 0, 2]), 3).tolist() == expected


def two_for_each(
    seed: int, variances: tuple[float, float], n: int = 3
) -> tuple[Moments, np.ndarray]:
    """Exact moments with two hard interventions on each latent, in any order; and the latents.

    Noise of a target has one of the variances in one of them, the other in the other.
    """
    rng = np.random.default_rng(seed)
    effects = np.triu(rng.uniform(0.5, 1.5, (n, n)) * rng.choice([-1, 1], (n, n)), 1)
    mixing = rng.standard_normal((n, n))
    latent = rng.permutation(np.repeat(np.arange(n), 2))
    covariances = []
    for place, j in enumerate([None, *latent.tolist()]):
        inside, noise = effects.copy(), np.ones(n)
        if j is not None:
            inside[:, j] = 0
            noise[j] = variances[int(j in latent[: place - 1])]
        to_x = mixing @ np.linalg.inv(np.eye(n) - inside.T)
        covariances.append(to_x @ np.diag(noise) @ to_x.T)
    sizes, means = np.full(2 * n + 1, 100_000), np.zeros((2 * n + 1, n))
    return Moments(sizes, means, np.array(covariances)), latent


@pytest.mark.parametrize("variances", [(0.25, 0.5), (3.0, 6.0)], ids=["falling", "rising"])
@pytest.mark.parametrize("seed", range(3))
def test_environments_that_nobody_grouped(seed: int, variances: tuple[float, float]):
    moments, latent = two_for_each(seed, variances)
    found = grouped_targets(np.arange(6), moments, 3, np.random.default_rng(0))
    together = found[:, None] == found
    assert (together == (latent[:, None] == latent)).all()


def test_environments_with_one_name_stay_together():
    moments, _ = two_for_each(0, (0.25, 0.5))
    names = np.array([0, 0, 1, 1, 2, 3])  # wrong, but that is what was said
    found = grouped_targets(names, moments, 3, np.random.default_rng(0))
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert set(found.tolist()) == {0, 1, 2}
