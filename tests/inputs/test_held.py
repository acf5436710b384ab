from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import Held

N, N_ROWS = 4, 200
ROWS = np.linalg.qr(np.random.default_rng(7).standard_normal((N, N)))[0] + 0.2 * np.eye(N)
LABELS = np.array(["control", "a", "b", "c", "d"])


def environments(
    held: Sequence[Sequence[int]], value: float = 2.0, dtype: Any = float
) -> list[Any]:
    """Return rows with these latents at a value; the first environment is the reference."""
    rng, found = np.random.default_rng(0), []
    for latents in [[], *held]:
        Z = rng.standard_normal((N_ROWS, N))
        Z[:, list(latents)] = value
        found.append((Z @ np.linalg.inv(ROWS).T).astype(dtype).astype(float))
    return found


def held_in(*latents: Sequence[int], **options: Any) -> Held:
    return Held.of(environments(latents, **options), LABELS[: 1 + len(latents)])


def unit(j: int) -> Any:
    return ROWS[j] / np.linalg.norm(ROWS[j])


def test_a_held_latent_gives_its_row_exactly():
    held = held_in([1], [], [3])
    assert held.any
    assert [len(rows) for rows in held.rows] == [0, 1, 0, 1]
    for rows, j in ((held.rows[1], 1), (held.rows[3], 3)):
        assert abs(rows[0] @ unit(j)) == pytest.approx(1, abs=1e-12)
    assert not held_in([], []).any


def test_single_precision_does_not_hide_it():
    assert abs(held_in([1], dtype=np.float32).rows[1][0] @ unit(1)) == pytest.approx(1, abs=1e-9)


def test_latents_that_are_held_together_are_told_by_what_environments_have_in_common():
    held = held_in([0, 1], [1, 2], [0, 2], [3])
    assert [len(rows) for rows in held.rows] == [0, 2, 2, 2, 1]
    for rows, latents in zip(held.rows[1:], [(0, 1), (1, 2), (0, 2), (3,)], strict=True):
        along = np.abs(rows @ np.array([unit(j) for j in latents]).T)
        np.testing.assert_allclose(along.max(axis=1), 1, atol=1e-9)
        np.testing.assert_allclose(along.max(axis=0), 1, atol=1e-9)


@pytest.mark.parametrize("latents", [([0, 1],), ([0], [0, 1]), ([0, 1], [0, 1])])
def test_a_space_that_stays_open_is_refused(latents: Any):
    with pytest.raises(IdentifiabilityError, match="nothing but the space of their rows"):
        held_in(*latents)


def test_a_width_leaves_held_latents_a_little_variance_of_their_own():
    rows = environments([[0, 1], [0], [1]])
    held = Held.of(rows, LABELS[:4])
    wide = held.widened(rows, np.random.default_rng(0))
    np.testing.assert_array_equal(wide[0], rows[0])
    covariance = np.cov(wide[1] @ np.array([unit(0), unit(1)]).T, rowvar=False)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), 1e-3, rtol=0.2)
    assert abs(covariance[0, 1]) < 0.3e-6
    assert np.abs(wide[1] - rows[1]).max() < 0.02
    open_rows = environments([[], []])
    assert Held.of(open_rows, LABELS[:3]).widened(open_rows, np.random.default_rng(0)) is open_rows


def test_rows_of_targets_become_exact_and_are_checked():
    held = held_in([0], [2])
    targets = np.eye(3, N, k=-1, dtype=bool)  # "b" is said to be on latent 1
    nearly = -3 * ROWS + 1e-5
    exact = held.exact(nearly, targets)
    np.testing.assert_allclose(exact[0] / np.linalg.norm(exact[0]), -unit(0), atol=1e-12)
    np.testing.assert_array_equal(exact[1:], nearly[1:])
    (check,) = held.checks(exact, targets, None)
    assert not check.passed
    assert check.detail.endswith("a holds z0, b holds none that it intervenes on")
    targets[2] = [0, 0, 1, 0]
    (check,) = held.checks(nearly, targets, ["p", "q", "r", "s"])
    assert check.passed
    assert check.detail.endswith("a holds p, b holds r")
    assert held_in([], []).checks(nearly, targets, None) == ()


def test_few_distinct_rows_hold_nothing():
    rows = environments([[], []])
    rows[2] = rows[2][np.arange(N_ROWS) % 3]
    with pytest.raises(ValueError, match=r"In environment b .* 200 rows are alike: 3 are distinct"):
        Held.of(rows, LABELS[:3])
    rows[2][:] = 1.0
    with pytest.raises(ValueError, match="no latent varies: its 200 rows are one"):
        Held.of(rows, LABELS[:3])


def test_refusals_say_why():
    with pytest.raises(ValueError, match="In environment b several latents are held"):
        held_in([0], [0, 1], [1]).refuse_several()
    held_in([0], [1]).refuse_several()
    rows = environments([[0]])
    with pytest.raises(ValueError, match="In the reference environment, control, X varies in 3 of"):
        Held.of(rows[::-1], LABELS[:2]).refuse_flat_reference()
    Held.of(rows, LABELS[:2]).refuse_flat_reference()
    twice = held_in([0], [0])
    with pytest.raises(ValueError, match=r"targets=\{'a': 'A', 'b': 'A', ...\}"):
        twice.refuse_shared(np.eye(3, N, k=-1, dtype=bool))
    twice.refuse_shared(np.array([[0, 0], [1, 0], [1, 0]], dtype=bool))
    assert abs(twice.one_row() @ unit(0)) == pytest.approx(1)
    with pytest.raises(ValueError, match="In environments a, b different latents are held"):
        held_in([0], [1]).one_row()
