from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains
from crlearn.likelihood.domains._model import DomainLikelihood
from crlearn.likelihood.domains._start import Invariance
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


def both_targets(world: Any) -> Any:
    """Return the targets, as if one domain had a second one."""
    targets = np.array(world.truth.targets, dtype=bool)
    targets[1, 2] = True
    return targets


class TestExpand:
    @pytest.mark.parametrize("orthogonal", [True, False])
    @pytest.mark.parametrize("case", ["hard", "soft", "two targets"])
    def test_gradient(self, orthogonal: bool, case: str):
        world = make(mixing_skew=0.0 if orthogonal else 0.2)
        changes: dict[str, Any] = {
            "hard": {},
            "soft": {"hard": False},
            "two targets": {"targets": both_targets(world)},
        }[case]
        likelihood = DomainLikelihood(domains_of(world, **changes), orthogonal=orthogonal)
        state = likelihood.start(np.linalg.inv(world.truth.mixing.matrix))
        point = likelihood.expand(state)
        gradient = point.gradient
        assert point.value == likelihood.value(state)
        assert len(gradient) == likelihood.n_parameters
        steps = 1e-5 * np.eye(likelihood.n_parameters)
        numeric = [
            (
                likelihood.value(likelihood.moved(state, step))
                - likelihood.value(likelihood.moved(state, -step))
            )
            / 2e-5
            for step in steps
        ]
        np.testing.assert_allclose(gradient, numeric, atol=1e-5 * np.abs(gradient).max())

    def test_information_is_the_expected_curvature(self):
        world = make(n_latents=3, n_features=3, n_samples=20_000, mechanism="tanh")
        likelihood = DomainLikelihood(domains_of(world), orthogonal=True)
        state = likelihood.start(np.linalg.inv(world.truth.mixing.matrix))
        information = likelihood.expand(state).hessian
        i = 0  # an angle of the mixing
        step = np.zeros(likelihood.n_parameters)
        step[i] = 1e-4
        up, down = (
            likelihood.expand(likelihood.moved(state, s)).gradient[i] for s in (step, -step)
        )
        assert information[i, i] == pytest.approx((up - down) / 2e-4, rel=0.15)


class TestBest:
    def test_steps_go_down_to_one_optimum(self):
        world = make(intervened_mean=0.0)
        likelihood = DomainLikelihood(domains_of(world), orthogonal=True)
        truth = np.linalg.inv(world.truth.mixing.matrix)
        turn = np.linalg.qr(np.eye(4) + 0.2 * np.random.default_rng(0).normal(size=(4, 4)))[0]
        turn *= np.sign(np.diag(turn))
        first, value = likelihood.best(truth)
        second, same = likelihood.best(turn @ truth)
        assert value < likelihood.value(likelihood.start(truth))
        assert same == pytest.approx(value, abs=0.01)
        np.testing.assert_allclose(first @ first.T, np.eye(4), atol=1e-10)
        np.testing.assert_allclose(np.abs(second), np.abs(first), atol=0.01)

    def test_sharper_than_the_criterion_where_columns_are_alike(self):
        errors = []
        for seed in range(8):
            world = make(seed, n_samples=500, mixing_skew=0.3)
            domains, mixing = domains_of(world), world.truth.mixing.matrix
            found, _ = Invariance(domains).best_unmixing(np.linalg.inv(mixing))
            sharper, _ = DomainLikelihood(domains, orthogonal=False).best(found)
            np.testing.assert_allclose(np.linalg.norm(np.linalg.inv(sharper), axis=0), 1)
            errors.append([frobenius(mixing, np.linalg.inv(w)) for w in (found, sharper)])
        before, after = np.median(errors, axis=0)
        assert after < 0.9 * before

    def test_a_latent_without_noise(self):
        world = make(measurement_noise=0.0, intervened_variance=1e-30)
        likelihood = DomainLikelihood(domains_of(world), orthogonal=True)
        found, value = likelihood.best(np.linalg.inv(world.truth.mixing.matrix))
        assert np.isfinite(value)
        assert frobenius(world.truth.mixing.matrix, np.linalg.inv(found)) < 1e-3

    def test_one_latent(self):
        world = make(n_latents=1, n_features=1)
        likelihood = DomainLikelihood(domains_of(world), orthogonal=True)
        assert abs(likelihood.best(np.eye(1))[0].item()) == pytest.approx(1)


def test_an_observational_domain_is_needed():
    with pytest.raises(ValueError, match="needs an observational domain"):
        DomainLikelihood(domains_of(make(observational=False)), orthogonal=True)
