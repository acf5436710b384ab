from __future__ import annotations

import numpy as np

from crlearn.cli._demo import demo_models, demo_world


def test_the_models_suit_the_world():
    world = demo_world(seed=1)
    assert world.truth is not None
    method, *baselines = demo_models(seed=1)
    assert len(baselines) == 2
    for model in (method, *baselines):
        assert model.get_params()["n_latents"] == world.truth.n_latents
        assert model.get_params()["random_state"] == 1
    assert world.n_environments == world.truth.n_latents + 1


def test_same_seed_same_world():
    first, again, other = (demo_world(seed).X for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
