import numpy as np
import pytest
from scipy.stats import ortho_group

from crlearn.metrics import (
    block_recovery,
    chance_level,
    layer_recovery,
    mac,
    mac_matched,
    mcc,
    r2_within_blocks,
)


def scores_of_rotations(metric, n_latents, n_recovered, n_runs=300):
    """Score real data: whitened Gaussian latents, and columns of a rotation of them."""
    n = max(n_latents, n_recovered)
    rng = np.random.default_rng(1)
    scores = []
    for rotation in ortho_group.rvs(n, size=n_runs, random_state=2):
        whitened = np.linalg.qr(rng.normal(size=(500, n))).Q
        scores.append(metric(whitened[:, :n_latents], (whitened @ rotation)[:, :n_recovered]))
    return np.mean(scores)


def level(*args, **kwargs):
    value = chance_level(*args, **kwargs)
    assert value is not None
    return value


def test_known_levels_for_four_latents():
    assert level("mac", 4) == pytest.approx(0.424, abs=5e-4)
    assert level("mac_matched", 4) == pytest.approx(0.772, abs=5e-3)
    assert level("mcc", 4) == level("mac_matched", 4)
    assert level("mac", 10) == pytest.approx(0.259, abs=5e-4)


def test_one_latent_is_always_found():
    assert level("mac", 1) == pytest.approx(1)
    assert level("mcc", 1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "metric", "n_latents", "n_recovered", "sizes"),
    [
        ("mac", mac, 3, 3, {}),
        ("mac", mac, 4, 2, {}),
        ("mac", mac, 2, 4, {}),
        ("mac_matched", mac_matched, 4, 4, {}),
        ("mcc", mcc, 4, 2, {}),
        ("mcc", mcc, 2, 4, {}),
        ("mcc_spearman", lambda Z, Z_hat: mcc(Z, Z_hat, "spearman"), 4, 4, {}),
        (
            "layer_recovery",
            lambda Z, Z_hat: layer_recovery(Z, Z_hat, [[0, 1], [2], [3]]),
            4,
            4,
            {"sizes": [2, 1, 1]},
        ),
        (
            "layer_recovery",
            lambda Z, Z_hat: layer_recovery(Z, Z_hat, [[0, 1], [2]], [[0], [1, 2, 3]]),
            3,
            4,
            {"sizes": [2, 1], "sizes_hat": [1, 3]},
        ),
        (
            "block_recovery",
            lambda Z, Z_hat: block_recovery(Z, Z_hat, [[0, 1], [2, 3]]),
            4,
            4,
            {"sizes": [2, 2]},
        ),
        (
            "block_recovery",
            lambda Z, Z_hat: block_recovery(Z, Z_hat, [[0, 1], [2, 3]], [[0, 1], [2, 3]]),
            4,
            4,
            {"sizes": [2, 2], "sizes_hat": [2, 2]},
        ),
        (
            "block_recovery",
            lambda Z, Z_hat: block_recovery(Z, Z_hat, blocks_hat=[[0, 1], [2, 3]]),
            4,
            4,
            {"sizes_hat": [2, 2]},
        ),
        *(
            (
                "r2_within_blocks",
                lambda Z, Z_hat: r2_within_blocks(Z, Z_hat, [[0, 1, 2], [3]]),
                4,
                n_recovered,
                {"sizes": [3, 1]},
            )
            for n_recovered in (3, 4, 6)
        ),
    ],
)
def test_level_is_what_rotated_data_score(name, metric, n_latents, n_recovered, sizes):
    measured = scores_of_rotations(metric, n_latents, n_recovered)
    claimed = level(name, n_latents, n_recovered=n_recovered, **sizes)
    assert claimed == pytest.approx(measured, abs=0.03)


def test_matching_helps_and_more_latents_are_harder():
    for name in ("mac", "mcc"):
        levels = [level(name, n) for n in (2, 4, 8, 16)]
        assert levels == sorted(levels, reverse=True)
    assert all(level("mcc", n) > level("mac", n) for n in (2, 4, 8))


def test_layers_of_one_are_mac_up_to_monte_carlo():
    assert level("layer_recovery", 4, sizes=[1] * 4) == pytest.approx(level("mac", 4), abs=5e-3)
    assert level("block_recovery", 4, sizes_hat=[1] * 4) == pytest.approx(level("mcc", 4))


def test_one_layer_or_block_of_all_says_nothing():
    assert level("layer_recovery", 4, sizes=[4]) == pytest.approx(1)
    assert level("block_recovery", 4, sizes_hat=[4]) == pytest.approx(1)
    assert level("r2_within_blocks", 4, sizes=[4]) == pytest.approx(1)


def test_same_number_every_time():
    first = chance_level("mcc", 5)
    from crlearn.metrics import _chance

    _chance._matched_level.cache_clear()
    assert chance_level("mcc", 5) == first


@pytest.mark.parametrize(
    "name", ["r2", "r2_across_blocks", "relmse", "scale_error", "shd", "targets_right"]
)
def test_no_level_where_it_means_nothing(name):
    assert chance_level(name, 4) is None


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("mmc", 4), {}, "metric must be among mcc, .*mac, .* Got 'mmc'"),
        (("mcc", 0), {}, "must be at least 1. Got 0 and 0"),
        (("mcc", 4), {"n_recovered": 0}, "must be at least 1. Got 4 and 0"),
        (("layer_recovery", 4), {}, "sizes must be given for .* 'layer_recovery'"),
        (("layer_recovery", 4), {"sizes_hat": [4]}, "sizes must be given"),
        (("block_recovery", 4), {}, "sizes must be given for .* 'block_recovery'"),
        (("r2_within_blocks", 4), {}, "sizes must be given for .* 'r2_within_blocks'"),
        (
            ("block_recovery", 4),
            {"sizes": [3, 2]},
            r"sizes must .* add up to 4 at most",
        ),
        (("block_recovery", 4), {"sizes_hat": [-1, 2]}, "sizes_hat must not be negative"),
    ],
)
def test_errors(args, kwargs, message):
    with pytest.raises(ValueError, match=message):
        chance_level(*args, **kwargs)
