from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains, find_unmixing
from crlearn.metrics import frobenius


def found(orthogonal: bool = True, targets: Any = None, **options: Any) -> tuple[Any, float]:
    defaults = {"n_features": 4, "n_samples": 2000, "random_state": 1}
    world: Any = make_multi_domain(**{**defaults, **options})
    domains = Domains.of(
        world.X,
        world.y - world.y.min(),
        world.truth.targets if targets is None else targets,
        world.truth.graph,
        noise_variance=world.truth.measurement_noise**2,
    )
    answer = find_unmixing(domains, np.random.default_rng(0), orthogonal=orthogonal)
    return answer, frobenius(world.truth.mixing.matrix, np.linalg.inv(answer.matrix))


def test_large_shifts():
    answer, error = found()
    assert error < 0.002
    assert answer.fits
    assert answer.zero_base
    assert answer.zero_base_fits


def test_variances_only():
    answer, error = found(intervened_mean=0.0, observational=True)
    assert error < 0.02
    assert answer.zero_base_fits is None


def test_base_means_without_an_observational_domain_are_noticed():
    answer, error = found(base_mean_sd=3.0)
    assert not answer.zero_base
    assert answer.zero_base_fits is False
    assert error < 0.05


def test_columns_that_are_not_orthogonal():
    answer, error = found(orthogonal=False, mixing_skew=0.2, observational=True)
    assert error < 0.02
    assert answer.fits
    assert not found(mixing_skew=0.2, observational=True)[0].fits


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [3, 1, 2, 0]])
def test_wrong_targets_do_not_fit(order: list[int]):
    targets = np.eye(4, dtype=bool)[order]
    answer, _ = found(targets=targets)
    assert not answer.fits
