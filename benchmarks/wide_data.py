"""Principal components of wide data: random directions against the whole eigenproblem.

Ratios within one run (absolute times depend on the machine), and the largest angle between the two
spans. Rows have rank 8, with and without noise.

    python benchmarks/wide_data.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crlearn.inputs import _components, whitening

SHAPES = ((2000, 1500), (3000, 3000), (2000, 6000))
REPEATS = 3


def make_data(shape: tuple[int, int], noise: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((shape[0], 8)) @ rng.standard_normal((8, shape[1]))
    return signal + noise * rng.standard_normal(shape)


def timed(X: np.ndarray, n_latents: int | None, largest_exact: int) -> tuple[float, Any]:
    """Return the shortest time of some runs, and the span."""
    _components.LARGEST_EXACT = largest_exact
    times, encoder = [], None
    for _ in range(REPEATS):
        start = time.perf_counter()
        encoder, _ = whitening(X, n_latents)
        times.append(time.perf_counter() - start)
    return min(times), np.linalg.qr(encoder.matrix.T)[0] if encoder is not None else None


def main() -> None:
    for shape in SHAPES:
        for noise, n_latents in ((0.0, None), (0.0, 8), (1.0, 8)):
            X = make_data(shape, noise)
            random, found = timed(X, n_latents, 1000)
            whole, wanted = timed(X, n_latents, 10**9)
            angle = np.linalg.norm(found - wanted @ (wanted.T @ found), 2)
            print(
                f"{shape[0]} x {shape[1]}, noise {noise:g}, n_latents={n_latents}: "
                f"{random:.2f} s against {whole:.2f} s, {whole / random:.1f} times as fast, "
                f"angle {angle:.0e}"
            )


if __name__ == "__main__":
    main()
