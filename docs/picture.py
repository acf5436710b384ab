"""Draw the picture of the README: the run of `make demo`, true against recovered latents.

python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from crlearn.cli._demo import demo_models, demo_world
from crlearn.metrics import correlation_matrix, match, mcc


def main() -> None:
    world = demo_world(seed=0)
    assert world.truth is not None
    assert world.y is not None
    Z = world.truth.Z
    method, *_, last_baseline = demo_models(seed=0)
    figure, grid = plt.subplots(2, 4, figsize=(9, 4.6), layout="constrained")
    for row, model in zip(grid, (method, last_baseline), strict=True):
        recovered = model.fit(world.X, world.y).transform(world.X)
        correlations = correlation_matrix(Z, recovered)
        name = type(model).__name__
        row[0].set_ylabel(f"{name}\nMCC {mcc(Z, recovered):.3f}\n\nrecovered")
        for axes, (i, j) in zip(row, match(Z, recovered), strict=True):
            axes.scatter(Z[::5, i], recovered[::5, j], s=3, c=world.y[::5], cmap="viridis")
            axes.set_title(f"|correlation| {correlations[i, j]:.2f}", fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
    for i, axes in enumerate(grid[-1]):
        axes.set_xlabel(f"true latent {i}")
    figure.savefig(Path(__file__).parent / "_static" / "demo.png", dpi=130)


if __name__ == "__main__":
    main()
