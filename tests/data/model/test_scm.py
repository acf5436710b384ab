from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from crlearn.data import (
    SCM,
    Gaussian,
    Intervention,
    Linear,
    Node,
    chain,
    erdos_renyi,
    full,
    make_scm,
)
from crlearn.data.model._noise import NOISE_FAMILIES

MECHANISMS = {
    "linear": "linear",
    "quadratic": "quadratic",
    "norm_squared": "norm_squared",
    "tanh_cubic": "tanh_cubic",
    "tanh_sum": "tanh_sum",
    "sin": "sin",
    "mlp": "mlp",
    "tanh_mlp": "tanh_mlp",
    "own": lambda parents: jnp.exp(-(parents**2).sum()) + parents[0],
}
COLLIDER = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])
HAND_BUILT = SCM(chain(2), [Node(None, Gaussian(1.0)), Node(Linear([2.0]), Gaussian(0.5))])


def away_from_kinks(noise, margin=0.02):
    """Rows at which no density of standard noise has a kink or an end nearby."""
    return noise[(np.abs(noise) > margin).all(1) & (np.abs(noise + 1) > margin).all(1)]


@pytest.mark.parametrize("noise", NOISE_FAMILIES)
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_score_and_jacobian_are_derivatives(mechanism, noise, central_differences):
    options = {"rate": 0.7} if mechanism == "tanh_cubic" else {}
    scm = make_scm(COLLIDER, mechanism, noise=noise, mechanism_options=options, random_state=0)
    Z = scm.from_noise(away_from_kinks(scm.sample(12, 1)[1]))
    np.testing.assert_allclose(
        scm.score(Z), central_differences(scm.log_density, Z), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        scm.score_jacobian(Z), central_differences(scm.score, Z), rtol=1e-5, atol=1e-5
    )


def test_linear_gaussian_is_the_closed_form():
    scm = make_scm(full(4), "linear", noise_scale=[0.5, 1.0, 1.5, 2.0], random_state=0)
    covariance = scm.covariance()
    precision = np.linalg.inv(covariance)
    Z, _ = scm.sample(20, 1)
    np.testing.assert_allclose(scm.score(Z), -Z @ precision, rtol=1e-10)
    np.testing.assert_allclose(
        scm.score_jacobian(Z), np.broadcast_to(-precision, (20, 4, 4)), rtol=1e-10, atol=1e-12
    )
    expected = -0.5 * np.einsum("ni,ij,nj->n", Z, precision, Z)
    expected -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(scm.log_density(Z), expected, rtol=1e-10)


def test_score_is_the_sum_of_its_factors():
    scm = make_scm(full(3), "sin", random_state=0)
    Z, _ = scm.sample(5, 0)
    np.testing.assert_allclose(scm.score(Z), sum(scm.factor_score(Z, j) for j in range(3)))


def test_samples_by_hand():
    Z = HAND_BUILT.from_noise([[1.0, 0.5], [-1.0, 0.0]])
    np.testing.assert_array_equal(Z, [[1.0, 2.5], [-1.0, -2.0]])


def test_sampled_moments():
    Z, noise = HAND_BUILT.sample(200_000, 0)
    np.testing.assert_allclose(np.cov(Z.T), [[1.0, 2.0], [2.0, 4.25]], rtol=0.02)
    np.testing.assert_allclose(HAND_BUILT.covariance(), [[1.0, 2.0], [2.0, 4.25]])
    np.testing.assert_array_equal(HAND_BUILT.from_noise(noise), Z)


def test_indices_need_not_be_a_causal_order():
    backwards = SCM(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0]],
        [Node(Linear([3.0]), Gaussian()), Node(Linear([2.0]), Gaussian()), Node(None, Gaussian())],
    )
    assert backwards.order == (2, 1, 0)
    np.testing.assert_array_equal(backwards.from_noise([[0.0, 0.0, 1.0]]), [[6.0, 2.0, 1.0]])


def test_same_seed_same_bits():
    graph = erdos_renyi(4, 0.7, 0)
    draws = [make_scm(graph, "mlp", random_state=5).sample(10, 6) for _ in range(2)]
    np.testing.assert_array_equal(draws[0], draws[1])
    scores = [HAND_BUILT.score(np.ones((3, 2))) for _ in range(2)]
    np.testing.assert_array_equal(scores[0], scores[1])


@pytest.mark.parametrize("how", ["standard", "minmax"])
@pytest.mark.parametrize("mechanism", ["norm_squared", "mlp"])
def test_rescaled_latents(how, mechanism, central_differences):
    scm = make_scm(chain(4), mechanism, noise="laplace", random_state=0)
    rescaled, noise = scm.rescaled(scm.sample(500, 1)[1], how)
    Z = rescaled.from_noise(noise)
    location, scale = (Z.mean(0), Z.std(0)) if how == "standard" else (Z.min(0), np.ptp(Z, axis=0))
    np.testing.assert_allclose(location, 0.0, atol=1e-12)
    np.testing.assert_allclose(scale, 1.0)
    np.testing.assert_allclose(rescaled.sample(500, 1)[0], Z, atol=1e-12)
    np.testing.assert_allclose(
        rescaled.score(Z[:5]),
        central_differences(rescaled.log_density, Z[:5], step=1e-7),
        rtol=1e-4,
        atol=1e-4,
    )


def test_rescaling_one_latent_changes_its_density_by_the_scale():
    scm = SCM([[0]], [Node(None, Gaussian(3.0, 1.0))])
    raw, raw_noise = scm.sample(100, 0)
    rescaled, noise = scm.rescaled(raw_noise)
    np.testing.assert_allclose(
        rescaled.log_density(rescaled.from_noise(noise)), scm.log_density(raw) + np.log(raw.std())
    )


def test_do_leaves_its_factor_out():
    scm = HAND_BUILT.intervene(Intervention(0, "do", value=3.0))
    Z, _ = scm.sample(4, 0)
    np.testing.assert_array_equal(Z[:, 0], 3.0)
    assert HAND_BUILT.has_density
    assert not scm.has_density
    expected = -0.5 * ((Z[:, 1] - 6.0) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(scm.log_density(Z), expected)
    np.testing.assert_allclose(scm.score(Z)[:, 1], -(Z[:, 1] - 6.0) / 0.25)
    assert np.isfinite(scm.score_jacobian(Z)).all()


def test_each_latent_may_have_its_own_kind():
    scm = make_scm(chain(3), [None, "sin", "norm_squared"], noise=["gaussian", "laplace", "gumbel"])
    kinds = [type(node.mechanism).__name__ for node in scm.nodes]
    assert kinds == ["NoneType", "Sine", "NormSquared"]
    assert [type(node.noise).__name__ for node in scm.nodes] == ["Gaussian", "Laplace", "Gumbel"]


def test_weights_only_of_linear_models():
    assert make_scm(chain(2), "sin").weights() is None
    halved = HAND_BUILT.intervene(Intervention(1, "soft"))
    np.testing.assert_array_equal(halved.weights(), [[0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="only if every mechanism is linear"):
        make_scm(chain(2), "sin").covariance()


def test_graph_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        HAND_BUILT.graph[0, 1] = False


def test_repr_is_short():
    assert repr(HAND_BUILT) == "SCM(2 latents, 1 edges)"


class TestBadInput:
    def test_cycle(self):
        with pytest.raises(ValueError, match="acyclic"):
            SCM([[0, 1], [1, 0]], HAND_BUILT.nodes)

    def test_number_of_nodes(self):
        with pytest.raises(ValueError, match="shape"):
            SCM(chain(3), HAND_BUILT.nodes)

    def test_missing_mechanism(self):
        with pytest.raises(ValueError, match=r"Latent 1 has 1 parents .* needs a mechanism"):
            SCM(chain(2), [Node(None, Gaussian())] * 2)

    def test_superfluous_mechanism(self):
        with pytest.raises(ValueError, match="Latent 0 has no parents"):
            SCM(chain(2), [Node(Linear([1.0]), Gaussian())] * 2)

    def test_wrong_number_of_columns(self):
        with pytest.raises(ValueError, match=r"'Z' must have shape \(n_samples, 2\)"):
            HAND_BUILT.score(np.zeros((4, 3)))

    def test_overflow(self):
        scm = make_scm(chain(12), "tanh_cubic", random_state=0)
        with pytest.raises(ValueError, match="grew beyond all numbers"):
            scm.sample(100, 0)

    def test_unknown_rescaling(self):
        with pytest.raises(ValueError, match="'standard' or 'minmax'"):
            HAND_BUILT.rescaled(np.zeros((3, 2)), "robust")  # pyright: ignore[reportArgumentType]

    def test_constant_latent_cannot_be_rescaled(self):
        with pytest.raises(ValueError, match="does not vary"):
            HAND_BUILT.rescaled(np.zeros((3, 2)))

    def test_wrong_number_of_scales(self):
        with pytest.raises(ValueError, match="'noise_scale' must be given once, or once for each"):
            make_scm(chain(3), noise_scale=[1.0, 2.0])
