from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains, find_unmixing
from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._search import agreement
from crlearn.metrics import frobenius
from crlearn.result import SAME_ANSWER


def domains_of(targets: Any = None, **options: Any) -> tuple[Domains, Any]:
    defaults = {"n_features": 4, "n_samples": 2000, "random_state": 1}
    world: Any = make_multi_domain(**{**defaults, **options})
    domains = Domains.of(
        world.X,
        world.y - world.y.min(),
        world.truth.targets if targets is None else targets,
        world.truth.graph,
        noise_variance=world.truth.measurement_noise**2,
    )
    return domains, world


def found(orthogonal: bool = True, targets: Any = None, **options: Any) -> tuple[Any, float]:
    domains, world = domains_of(targets, **options)
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


WEAK: dict[str, Any] = {
    "intervened_mean": 0.3,
    "intervened_variance": 4.0,
    "observational": True,
    "n_samples": 200,
}


class TestRivals:
    def test_large_shifts_leave_none(self):
        assert found()[0].rivals == ()

    def test_weak_interventions_and_few_rows_leave_some_near(self):
        answer, _ = found(**WEAK)
        assert answer.fits
        gaps = [rival.gap for rival in answer.rivals]
        assert 0 <= gaps[0] < 5
        assert gaps == sorted(gaps)
        assert all(rival.agreement < SAME_ANSWER for rival in answer.rivals)

    def test_the_gap_is_half_the_difference_of_values(self):
        answer, _ = found(**WEAK)
        domains = domains_of(**WEAK)[0]
        rival = answer.rivals[0]
        _, value = DomainLikelihood(domains).best(rival.matrix)
        assert rival.gap == pytest.approx((value - answer.value) / 2, abs=0.05)


def test_signs_and_scales_are_no_disagreement():
    domains, _ = domains_of()
    W = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    assert agreement(domains, W, np.diag([-1.0, 2.0, 0.5, 1.0]) @ W) == pytest.approx(1)
    assert agreement(domains, W, W[[1, 0, 2, 3]]) < SAME_ANSWER  # targets name the latents
