from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.config import config_context, numerics
from crlearn.flows import Assignment, InterventionalObjective, SmoothFlow
from crlearn.flows._densities import Densities
from crlearn.flows.interventional._objective import Parameters

N = 3
SHARES = (0.4, 0.3, 0.2, 0.1)
OWN = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
BEFORE = np.triu(np.ones((N, N), bool), 1)
ASSIGNMENT = Assignment(0, ((), None, None, None))
GENERAL = InterventionalObjective(N, SHARES, ASSIGNMENT, n_features=2, n_components=3)
LINEAR = InterventionalObjective(N, SHARES, ASSIGNMENT, n_features=0, n_components=1)


def affine_flow(matrix: Any, offset: Any = 0.0) -> SmoothFlow:
    """One without blocks: x @ matrix + offset."""
    empty = np.zeros((0, N, 1))
    offsets = np.broadcast_to(np.asarray(offset, float), (1, N))
    return SmoothFlow(np.asarray(matrix, float)[None], offsets, empty, empty[:, 0], empty[:, 0])


@cache
def rows() -> Any:
    """A linear chain, each latent of which is hit in one environment."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 4, N))
    z[:, 1, 0] *= 3
    z[..., 1] += np.where(OWN[:, 1], 0, 1.5 * z[..., 0])
    z[..., 2] += np.where(OWN[:, 2], 4, -0.7 * z[..., 1])
    return z


def parameters(objective: InterventionalObjective, flow: SmoothFlow, order: Any = None) -> Any:
    """Parameters that are not at rest, with latents in another order."""
    rng = np.random.default_rng(1)
    order = np.arange(N) if order is None else order
    own: Any = OWN[:, order]
    before: Any = BEFORE[np.ix_(order, order)]
    projections: Any = rng.normal(size=(2, N, objective.n_features, N))
    density = rng.normal(size=(3, objective.n_components, N))
    return Parameters(
        flow,
        projections[:, order][..., order],
        Densities(*density[..., order]),
        own,
        before,
        jnp.asarray(False),
    )


def loss(objective: InterventionalObjective, params: Any, progress: float = 1.0) -> Any:
    with config_context(precision="float64"), numerics():
        return float(_compiled(objective)(params, rows(), progress))


@cache
def _compiled(objective: InterventionalObjective) -> Any:
    key = jax.random.key(0)
    return jax.jit(lambda params, x, p: objective.loss(params, x, key, jnp.asarray(p)))


def test_scale_shift_and_order_do_not_matter():
    plain = loss(GENERAL, parameters(GENERAL, affine_flow(np.eye(N))))
    moved = affine_flow(np.diag([0.5, 3, 10]), [1, -2, 5])
    assert loss(GENERAL, parameters(GENERAL, moved)) == pytest.approx(plain, abs=1e-6)
    order = np.array([2, 0, 1])
    permuted = parameters(GENERAL, affine_flow(np.eye(N)[:, order]), order)
    assert loss(GENERAL, permuted) == pytest.approx(plain, abs=1e-9)
    mixed = affine_flow(np.eye(N) + 0.5 * np.eye(N, k=1))
    assert loss(GENERAL, parameters(GENERAL, mixed)) != pytest.approx(plain, abs=1e-3)


def test_closed_form_for_linear_gaussian_latents():
    """Each latent costs the logarithms of the sds that its environments leave it."""
    z, shares = rows(), np.array(SHARES)
    wanted = N * 0.5 * (np.log(2 * np.pi) + 1)
    for j in range(N):
        alone = shares * ~OWN[:, j]
        roots = np.sqrt(np.repeat(alone[None], len(z), axis=0).ravel())
        design = np.concatenate([np.ones((*z.shape[:2], 1)), z[..., :j]], axis=2)
        design, response = design.reshape(len(roots), -1), z[..., j].ravel()
        solution = np.linalg.lstsq(design * roots[:, None], response * roots)[0]
        squares = ((response - design @ solution) ** 2 * roots**2).sum() / (roots**2).sum()
        wanted += 0.5 * alone.sum() * np.log(squares)
        wanted += 0.5 * shares @ (OWN[:, j] * np.log(z[..., j].var(axis=0)))
    found = loss(LINEAR, parameters(LINEAR, affine_flow(np.eye(N))))
    assert found == pytest.approx(wanted, abs=2e-3)  # the ridge of the regressions


def test_true_latents_are_better_than_mixtures():
    true = loss(LINEAR, parameters(LINEAR, affine_flow(np.eye(N))))
    rng = np.random.default_rng(2)
    for _ in range(3):
        turned = np.linalg.qr(rng.normal(size=(N, N)))[0]
        assert loss(LINEAR, parameters(LINEAR, affine_flow(turned))) > true + 0.05


def test_gradient_with_respect_to_the_flow():
    """Nothing is differentiated through the regressions; that costs no more than their ridge."""
    rng = np.random.default_rng(3)
    params = parameters(LINEAR, affine_flow(np.eye(N) + 0.2 * rng.normal(size=(N, N))))
    direction, step = 3 * rng.normal(size=(1, N, N)), 1e-5
    with config_context(precision="float64"), numerics():
        function = _compiled(LINEAR)

        def along(t: Any) -> Any:
            flow = params.flow
            moved = SmoothFlow(
                flow.matrices + t * direction,
                *(flow.offsets, flow.directions, flow.strengths, flow.thresholds),
            )
            return function(params._replace(flow=moved), rows(), 1.0)

        slope = float(jax.grad(along)(0.0))
        difference = float(along(step) - along(-step)) / (2 * step)
    assert abs(difference) > 0.1
    assert slope == pytest.approx(difference, abs=2e-3)


def test_what_is_drawn_knows_nothing():
    params = GENERAL.init(jax.random.key(0))
    assert np.asarray(params.own).all()
    assert not np.asarray(params.before).any()
    assert params.projections.shape == (2, N, 2, N)


class TestRevise:
    objective = InterventionalObjective(N, SHARES, ASSIGNMENT, n_features=0)

    def params(self) -> Any:
        params = parameters(self.objective, affine_flow(np.eye(N)))
        return params._replace(own=np.ones_like(OWN), before=np.zeros_like(BEFORE))

    @pytest.mark.parametrize("progress", [0.1, 0.7])
    def test_not_before_and_not_after(self, progress: float):
        assert self.objective.revise(self.params(), rows(), progress) is None

    def test_targets_and_order_are_found(self):
        found = self.objective.revise(self.params(), rows(), 0.3)
        assert found is not None
        np.testing.assert_array_equal(found.own, OWN)
        np.testing.assert_array_equal(found.before, BEFORE)

    def test_what_is_given_stays(self):
        given = self.params()._replace(given=np.array(True))
        assert self.objective.revise(given, rows(), 0.3) is None

    def test_mechanisms_are_held_back_at_first(self):
        params = parameters(self.objective, affine_flow(np.eye(N)))
        early, late = (loss(self.objective, params, p) for p in (0.2, 1.0))
        assert early > late + 0.1
        given = params._replace(given=np.array(True))
        assert loss(self.objective, given, 0.2) == pytest.approx(late)

    def test_what_is_known_of_targets_is_not_compiled(self):
        """Worlds with other targets share a program."""
        other = InterventionalObjective(N, SHARES, Assignment(0, ((), (0,), (1,), (2,))))
        assert other == InterventionalObjective(N, SHARES, ASSIGNMENT)
