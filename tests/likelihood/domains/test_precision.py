from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import DomainLikelihood, Domains
from crlearn.likelihood.domains._precision import Optimum
from crlearn.likelihood.domains._search import agreement


def at_the_truth(seed: int, **options: Any) -> tuple[DomainLikelihood, Any]:
    defaults = {"n_features": 4, "n_samples": 1000, "observational": True}
    world: Any = make_multi_domain(**{**defaults, **options}, random_state=seed)
    domains = Domains.of(
        world.X,
        world.y,
        world.truth.targets,
        world.truth.graph,
        noise_variance=world.truth.measurement_noise**2,
    )
    likelihood = DomainLikelihood(domains)
    return likelihood, likelihood.best(np.linalg.inv(world.truth.mixing.matrix))


def truth_of(seed: int, **options: Any) -> Any:
    defaults = {"n_features": 4, "n_samples": 1000, "observational": True}
    world: Any = make_multi_domain(**{**defaults, **options}, random_state=seed)
    return world.truth.mixing.matrix


@pytest.mark.parametrize(("noise", "expected"), [("gaussian", 1.0), ("laplace", 1.4)])
def test_it_is_the_mean_of_the_ratio_over_its_degrees_of_freedom(noise: str, expected: float):
    ratios, factors = [], []
    for seed in range(10):
        for n_samples in (500, 1000, 2000):
            likelihood, (matrix, value) = at_the_truth(
                seed, mechanism="linear", noise=noise, n_samples=n_samples, measurement_noise=0.3
            )
            ratios.append(value / likelihood.freedom)
            factors.append(Optimum.of(likelihood, matrix).inflation(np.random.default_rng(seed)))
    assert np.mean(factors) == pytest.approx(expected, rel=0.2)
    assert np.mean(ratios) == pytest.approx(np.mean(factors), rel=0.2)


def test_without_rows_it_is_one():
    likelihood, (matrix, _) = at_the_truth(0, noise="laplace")
    bare = likelihood.of(replace(likelihood.domains, rows=None))
    assert Optimum.of(bare, matrix).inflation(np.random.default_rng(0)) == 1


@pytest.mark.parametrize("options", [{}, {"intervened_mean": 0.0}, {"n_samples": 200}])
def test_shares_are_the_correlation_that_is_lost(options: dict[str, Any]):
    lost, expected = [], []
    for seed in range(10):
        likelihood, (matrix, _) = at_the_truth(seed, mechanism="linear", **options)
        world_of_the_truth = np.linalg.inv(truth_of(seed, **options))
        lost.append(2 * (1 - agreement(likelihood.domains, world_of_the_truth, matrix)))
        expected.append(Optimum.of(likelihood, matrix).mixed_shares().mean())
    assert 0.5 < np.mean(expected) / np.mean(lost) < 2


def test_nothing_holds_latents_that_no_condition_is_about():
    likelihood, (matrix, _) = at_the_truth(0)
    targets = np.zeros((5, 4), dtype=bool)
    targets[1:, 0] = True  # all domains move all latents of the chain
    domains = replace(likelihood.domains, targets=targets, hard=False)
    bare = DomainLikelihood(domains)
    assert Optimum.of(bare, matrix).mixed_shares().max() == 1


def test_one_latent_is_not_mixed():
    likelihood, (matrix, _) = at_the_truth(0, n_latents=1, n_features=1)
    assert Optimum.of(likelihood, matrix).mixed_shares().tolist() == [0.0]
