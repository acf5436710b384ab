from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crlearn.data import make_multi_domain
from crlearn.likelihood import Domains, domain_checks, sign_check


def checks_of(world: Any, targets: Any = None) -> dict[str, Any]:
    inner = world.truth.mixing.matrix
    targets = world.truth.targets if targets is None else targets
    codes = world.y - world.y.min()
    domains = Domains.of(world.X @ inner, codes, targets, world.truth.graph)
    found = domain_checks(domains, np.eye(domains.n_latents), np.unique(world.y))
    return {check.name: check for check in found}


def world(**options: Any) -> Any:
    return make_multi_domain(n_features=10, n_samples=500, random_state=0, **options)


def test_all_is_well():
    assert all(check.passed for check in checks_of(world()).values())
    assert all(check.passed for check in checks_of(world(observational=True)).values())


def test_variances_are_visible_too():
    data = world(intervened_mean=0.0, observational=True)
    assert checks_of(data)["interventions are visible"].passed


def test_a_copy_of_the_observational_domain_is_no_intervention():
    data = world(observational=True)
    y = data.y.copy()
    rows = np.flatnonzero(y == 0)
    y[rows[250:]] = 9
    targets = np.vstack([data.truth.targets, np.eye(4, dtype=bool)[2]])
    domains = Domains.of(
        data.X @ data.truth.mixing.matrix,
        np.unique(y, return_inverse=True)[1],
        targets,
        data.truth.graph,
    )
    checks = {c.name: c for c in domain_checks(domains, np.eye(4), np.unique(y))}
    assert not checks["interventions are visible"].passed
    assert "9 (latent z2)" in checks["interventions are visible"].detail


def test_a_latent_that_is_never_a_target():
    data = world(observational=True)
    targets = data.truth.targets.copy()
    targets[:, 3] = False
    check = checks_of(data, targets)["every latent is a target"]
    assert not check.passed
    assert "z3" in check.detail
    domains = Domains.of(data.X @ data.truth.mixing.matrix, data.y, targets, data.truth.graph)
    named = domain_checks(domains, np.eye(4), np.unique(data.y), ["iron", "salt", "heat", "light"])
    assert named[0].detail.endswith(": light")


def signs_of(data: Any) -> Any:
    rows = data.X @ data.truth.mixing.matrix
    codes = data.y - data.y.min()
    domains = Domains.of(rows, codes, data.truth.targets, data.truth.graph)
    return sign_check(domains, np.eye(domains.n_latents))


@pytest.mark.parametrize("observational", [True, False])
def test_means_set_the_signs(observational: bool):
    assert signs_of(world(observational=observational)).passed


def test_signs_that_nothing_sets_are_named():
    check = signs_of(world(intervened_mean=0.0, observational=True))
    assert check.passed is False
    assert check.detail.endswith("z0, z1, z2, z3; compare these up to sign only")
