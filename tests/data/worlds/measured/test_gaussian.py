from __future__ import annotations

import numpy as np
import pytest

from crlearn.data import make_noisy_interventional


def noise_of(**options: object) -> tuple[np.ndarray, np.ndarray, float]:
    """The noise of a world, what it was added to, and what the truth says of it."""
    world = make_noisy_interventional(3, 30, 2000, random_state=0, **options)  # type: ignore[arg-type]
    assert world.truth is not None
    signal = world.truth.mixing(world.truth.Z)
    return world.X - signal, signal, world.truth.measurement_noise


@pytest.mark.parametrize("kind", ["single-node", "multi-node"])
def test_noise_has_the_size_that_was_asked_for(kind: str):
    noise, signal, said = noise_of(share=0.5, kind=kind)
    assert noise.std() == pytest.approx(0.5 * signal.std(), rel=0.02)
    assert said == pytest.approx(noise.std(), rel=0.02)
    np.testing.assert_allclose(noise.std(axis=0), said, rtol=0.1)


def test_uneven_noise_differs_by_features():
    noise, signal, said = noise_of(share=0.2, uneven=True)
    sizes = noise.std(axis=0) / (0.2 * signal.std())
    assert 0.25 < sizes.min() < 0.5
    assert 1.5 < sizes.max() < 1.8
    assert said == pytest.approx(noise.std(), rel=0.02)


def test_no_noise_is_allowed_and_less_is_not():
    noise, _, said = noise_of(share=0.0)
    assert np.abs(noise).max() < 1e-9
    assert said == 0
    with pytest.raises(ValueError, match="'share' must be a number of at least 0"):
        make_noisy_interventional(share=-1.0)


def test_noisy_worlds_with_rows_and_interventions_of_ones_own():
    world = make_noisy_interventional(3, 10, [20, 30, 40], intervened=[2, 1], random_state=0)
    assert world.truth is not None
    assert np.unique(np.asarray(world.y), return_counts=True)[1].tolist() == [20, 30, 40]
    np.testing.assert_array_equal(world.truth.targets[1:], np.eye(3)[[2, 1]])
    with pytest.raises(ValueError, match="'intervened' is for kind='single-node'"):
        make_noisy_interventional(kind="multi-node", intervened=[0])
