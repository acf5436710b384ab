from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import DomainLikelihood, Domains
from crlearn.likelihood.domains._inflation import inflation


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


@pytest.mark.parametrize(("noise", "expected"), [("gaussian", 1.0), ("laplace", 1.4)])
def test_it_is_the_mean_of_the_ratio_over_its_degrees_of_freedom(noise: str, expected: float):
    ratios, factors = [], []
    for seed in range(10):
        for n_samples in (500, 1000, 2000):
            likelihood, (matrix, value) = at_the_truth(
                seed, mechanism="linear", noise=noise, n_samples=n_samples, measurement_noise=0.3
            )
            ratios.append(value / likelihood.freedom)
            factors.append(inflation(likelihood, matrix, np.random.default_rng(seed)))
    assert np.mean(factors) == pytest.approx(expected, rel=0.2)
    assert np.mean(ratios) == pytest.approx(np.mean(factors), rel=0.2)


def test_without_rows_it_is_one():
    likelihood, (matrix, _) = at_the_truth(0, noise="laplace")
    bare = likelihood.of(replace(likelihood.domains, rows=None))
    assert inflation(bare, matrix, np.random.default_rng(0)) == 1
