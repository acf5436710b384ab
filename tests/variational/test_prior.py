from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crlearn.variational import KnownCauses, ShiftPrior, StructuralPrior

# z0 -> z1; environment 1 intervenes on z1.
OWN = np.array([[False, False], [False, True]])
CAUSES = np.array([[False, True], [False, False]])


def prior(n_components: int = 1, **leaves: Any) -> StructuralPrior:
    drawn = StructuralPrior.without_effects(
        jax.random.key(0), OWN, CAUSES, n_units=3, n_components=n_components
    )
    names, values = list(leaves), [jnp.asarray(value, float) for value in leaves.values()]
    return eqx.tree_at(lambda tree: [getattr(tree, name) for name in names], drawn, values)


def at(z: Any, code: int) -> np.ndarray:
    codes = jnp.full(len(z), code)
    model = prior(
        slopes=[[9.0, 2.0], [9.0, 9.0]],
        mean=[1.0, -1.0],
        log_scale=np.log([0.5, 2.0]),
        own_mean=[[0.0, 0.0], [0.0, 4.0]],
        own_log_scale=[[0.0, 0.0], [0.0, np.log(3.0)]],
    )
    return np.asarray(model.log_density(jnp.asarray(z), codes))


def test_latents_follow_their_causes_where_they_are_left_alone():
    z = np.random.default_rng(0).normal(size=(5, 2))
    cause = norm.logpdf(z[:, 0], 1.0, 0.5)
    wanted = cause + norm.logpdf(z[:, 1], 2 * z[:, 0] - 1, 2.0)
    np.testing.assert_allclose(at(z, 0), wanted, rtol=1e-4)


def test_targets_have_a_density_of_their_own():
    z = np.random.default_rng(0).normal(size=(5, 2))
    wanted = norm.logpdf(z[:, 0], 1.0, 0.5) + norm.logpdf(z[:, 1], 4.0, 3.0)
    np.testing.assert_allclose(at(z, 1), wanted, rtol=1e-4)


@pytest.mark.parametrize("kind", [StructuralPrior, ShiftPrior])
def test_priors_of_known_causes_have_the_same_straight_part(kind: Any):
    drawn: Any = prior() if kind is StructuralPrior else ShiftPrior.without_effects(OWN, CAUSES)
    assert isinstance(drawn, KnownCauses)
    assert (drawn.n_environments, drawn.n_latents) == (2, 2)
    leaves = np.array([[9.0, 2.0], [9.0, 9.0]]), np.array([1.0, -1.0])
    filled = eqx.tree_at(lambda tree: [tree.slopes, tree.mean], drawn, list(leaves))
    z = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(filled.straight(z), [[1, 2 * a - 1] for a in z[:, 0]], rtol=1e-5)


def test_hidden_units_see_causes_only():
    bent = prior(outputs=np.ones((2, 3)))
    z = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)))
    slopes = np.asarray(jax.vmap(jax.jacobian(bent.effects))(z))
    assert np.abs(slopes[:, 1, 0]).min() > 1e-3
    np.testing.assert_array_equal(slopes[:, 0], 0)
    np.testing.assert_array_equal(slopes[:, 1, 1], 0)


def test_draws_share_the_environments_of_their_rows():
    z = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    codes = jnp.array([0, 1, 1, 0])
    together = prior(n_components=4).log_density(jnp.asarray(z), codes)
    alone = [prior(n_components=4).log_density(jnp.asarray(draw), codes) for draw in z]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5)
