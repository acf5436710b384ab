"""How the mechanisms of the latents change from segment to segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._random import signed_uniform
from crlearn.data.model._mechanisms import MLP, STEP_HEIGHTS, random_steps
from crlearn.data.model._node import Node
from crlearn.data.model._noise import Noise
from crlearn.data.model._scm import SCM
from crlearn.data.worlds._checks import check_share

Changes = Literal["vanish", "size"]
Invariant = Sequence[int] | Literal["all"]
Steps = Sequence[MLP | None]

# Range of the factor on a mechanism that changes in size only.
SIZES = (0.2, 1.0)


def random_steps_on(graph: NDArray[np.bool_], rng: np.random.Generator) -> list[MLP | None]:
    """Draw a sum of steps for each latent with parents."""
    return [random_steps(int(k), rng) if k else None for k in graph.sum(axis=0)]


def invariant_parts(
    invariant: Invariant, graph: NDArray[np.bool_], rng: np.random.Generator
) -> list[MLP | None]:
    """Draw the parts of the mechanisms that never change; None for latents without one."""
    chosen = _checked_latents(invariant, len(graph))
    # All are drawn, so that the part of a latent does not depend on which others have one.
    return [part if j in chosen else None for j, part in enumerate(random_steps_on(graph, rng))]


def quiet_shares(quiet: ArrayLike, n_latents: int) -> list[float]:
    """Return the share of quiet segments of each latent."""
    given: list[Any] = [quiet] * n_latents if np.ndim(quiet) == 0 else list(np.asarray(quiet))
    if len(given) != n_latents:
        raise ValueError(
            f"'quiet' must be one share, or one for each of the {n_latents} latents. "
            f"Got {len(given)} instead."
        )
    for share in given:
        check_share(share, "quiet")
    return [float(share) for share in given]


def quiet_segments(
    n_segments: int, shares: Sequence[float], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return the matrix that is True at [u, j] if latent j has no mechanism in segment u."""
    counts = [round(share * n_segments) for share in shares]
    return rng.permuted(np.arange(n_segments)[:, None] < np.array(counts), axis=0)


def vanishing(
    steps: Steps, is_quiet: NDArray[np.bool_], fixed_signs: bool, rng: np.random.Generator
) -> list[list[MLP | None]]:
    """Give each mechanism other heights in each segment, and none where it is quiet."""
    return [
        [
            None if step is None or quiet else _other_heights(step, fixed_signs, rng)
            for step, quiet in zip(steps, in_segment, strict=True)
        ]
        for in_segment in is_quiet
    ]


def resized(steps: Steps, n_segments: int, rng: np.random.Generator) -> list[list[MLP | None]]:
    """Multiply each mechanism by one positive factor in each segment."""
    factors = rng.uniform(*SIZES, size=(n_segments, len(steps)))
    return [
        [
            None if step is None else replace(step, output=factor * step.output)
            for step, factor in zip(steps, in_segment, strict=True)
        ]
        for in_segment in factors
    ]


def segment_model(
    graph: NDArray[np.bool_], changing: Steps, fixed: Steps, noises: Sequence[Noise]
) -> SCM:
    """Return the model of one segment; latents without a mechanism in it lose their parents."""
    mechanisms = [_added(*parts) for parts in zip(changing, fixed, strict=True)]
    has_mechanism = np.array([mechanism is not None for mechanism in mechanisms])
    return SCM(graph & has_mechanism, [*map(Node, mechanisms, noises)])


def _other_heights(step: MLP, fixed_signs: bool, rng: np.random.Generator) -> MLP:
    drawn = signed_uniform(rng, *STEP_HEIGHTS, len(step.output))
    return replace(step, output=np.abs(drawn) * np.sign(step.output) if fixed_signs else drawn)


def _added(first: MLP | None, second: MLP | None) -> MLP | None:
    if first is None or second is None:
        return second if first is None else first
    return replace(
        first,
        **{
            name: np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("hidden", "bias", "output")
        },
    )


def _checked_latents(invariant: Any, n_latents: int) -> set[int]:
    if isinstance(invariant, str) and invariant == "all":
        return set(range(n_latents))
    latents = [] if isinstance(invariant, str) else list(invariant)
    are_latents = all(isinstance(j, Integral) and j in range(n_latents) for j in latents)
    if isinstance(invariant, str) or not are_latents or any(isinstance(j, bool) for j in latents):
        raise ValueError(
            f"'invariant' must be 'all' or a list of latents, numbers from 0 to {n_latents - 1}. "
            f"Got {invariant!r} instead."
        )
    return {int(j) for j in latents}
