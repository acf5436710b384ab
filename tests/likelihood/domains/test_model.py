from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from crlearn.data import make_multi_domain
from crlearn.likelihood import DomainLikelihood, Domains
from crlearn.likelihood.domains._model import State
from crlearn.metrics import frobenius


def domains_of(world: Any, **changes: Any) -> Domains:
    known = {
        "targets": world.truth.targets,
        "graph": world.truth.graph,
        "noise_variance": world.truth.measurement_noise**2,
        **changes,
    }
    return Domains.of(world.X, world.y - world.y.min(), **known)


def make(seed: int = 0, **options: Any) -> Any:
    defaults = {"n_latents": 4, "n_features": 4, "n_samples": 1000, "observational": True}
    return make_multi_domain(**{**defaults, **options}, random_state=seed)


def truth_of(world: Any) -> Any:
    return np.linalg.inv(world.truth.mixing.matrix)


def both_targets(world: Any) -> Any:
    """Return the targets, as if one domain had a second one."""
    targets = np.array(world.truth.targets, dtype=bool)
    targets[1, 2] = True
    return targets


@pytest.mark.parametrize(
    "case", ["hard", "soft", "two targets", "no observational domain", "doses"]
)
def test_derivatives(case: str):
    world = make(mixing_skew=0.2, observational=case != "no observational domain")
    changes: dict[str, Any] = {"hard": case != "soft"}
    if case == "two targets":
        changes["targets"] = both_targets(world)
    if case == "doses":
        changes |= {"hard": False, "doses": 3.0 * world.truth.targets}
    likelihood = DomainLikelihood(domains_of(world, **changes), orthogonal=False)
    state = likelihood.start(truth_of(world))

    def unpacked(entries: Any) -> State:
        unmixing, mean, root, shift = np.split(entries, [16, 20, 36])
        return State(unmixing.reshape(4, 4), mean, root.reshape(4, 4), shift)

    entries = np.concatenate([state.unmixing.ravel(), state.mean, state.root.ravel(), state.shift])
    entries += 0.05 * np.random.default_rng(0).standard_normal(len(entries))
    found = likelihood(unpacked(entries))[1]
    exact = np.concatenate([found.unmixing.ravel(), found.mean, found.root.ravel(), found.shift])
    numeric = np.asarray(
        approx_fprime(entries, lambda entries: likelihood(unpacked(entries))[0], 1e-6)
    )
    np.testing.assert_allclose(exact, numeric, atol=1e-4 * np.abs(numeric).max())


@pytest.mark.parametrize("options", [{}, {"observational": False}, {"mixing_skew": 0.2}])
def test_chi_square_at_the_optimum(options: dict[str, Any]):
    """Linear mechanisms, so that moments are Gaussian."""
    ratios = []
    for seed, n_samples in product(range(10), (500, 1000, 2000)):
        world = make(seed, mechanism="linear", n_samples=n_samples, **options)
        orthogonal = "mixing_skew" not in options
        likelihood = DomainLikelihood(domains_of(world), orthogonal=orthogonal)
        ratios.append(likelihood.best(truth_of(world))[1] / likelihood.freedom)
    assert np.mean(ratios) == pytest.approx(1, abs=0.25)


def test_the_truth_fits_and_others_do_not():
    world = make()
    likelihood = DomainLikelihood(domains_of(world))
    truth = truth_of(world)
    assert likelihood(likelihood.start(truth))[0] < 3 * likelihood.freedom
    assert likelihood(likelihood.start(truth[[1, 0, 2, 3]]))[0] > 100 * likelihood.freedom


def test_scales_and_signs_of_rows_do_not_matter():
    likelihood = DomainLikelihood(domains_of(make()), orthogonal=False)
    start = np.random.default_rng(1).standard_normal((4, 4))
    scaled = start * np.array([-2.0, 0.1, 30.0, 1.0])[:, None]
    value = likelihood(likelihood.start(start))[0]
    assert likelihood(likelihood.start(scaled))[0] == pytest.approx(value)


class TestBest:
    def test_steps_go_down_to_one_optimum(self):
        world = make(intervened_mean=0.0)
        likelihood = DomainLikelihood(domains_of(world))
        truth = truth_of(world)
        turn = np.linalg.qr(np.eye(4) + 0.2 * np.random.default_rng(0).normal(size=(4, 4)))[0]
        turn *= np.sign(np.diag(turn))
        first, value = likelihood.best(truth)
        second, same = likelihood.best(turn @ truth)
        assert value < likelihood(likelihood.start(truth))[0]
        assert same == pytest.approx(value, abs=0.01)
        np.testing.assert_allclose(first @ first.T, np.eye(4), atol=1e-10)
        np.testing.assert_allclose(np.abs(second), np.abs(first), atol=0.01)

    def test_columns_that_are_not_orthogonal(self):
        errors = []
        for seed in range(8):
            world = make(seed, n_samples=500, mixing_skew=0.3)
            found, _ = DomainLikelihood(domains_of(world), orthogonal=False).best(truth_of(world))
            np.testing.assert_allclose(np.linalg.norm(np.linalg.inv(found), axis=0), 1)
            errors.append(frobenius(world.truth.mixing.matrix, np.linalg.inv(found)))
        assert np.median(errors) < 0.1

    def test_a_latent_without_noise(self):
        world = make(measurement_noise=0.0, intervened_variance=1e-30)
        found, value = DomainLikelihood(domains_of(world)).best(truth_of(world))
        assert np.isfinite(value)
        assert frobenius(world.truth.mixing.matrix, np.linalg.inv(found)) < 1e-3

    def test_one_latent(self):
        likelihood = DomainLikelihood(domains_of(make(n_latents=1, n_features=1)))
        assert abs(likelihood.best(np.eye(1))[0].item()) == pytest.approx(1)
