"""Draw the picture of the README: the run of `make demo`, latents and graphs, true and recovered.

python docs/picture.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from crlearn.cli._demo import demo_models, demo_world
from crlearn.metrics import correlation_matrix, match, mcc, shd
from crlearn.report._drawing import layered_layout


def main() -> None:
    world: Any = demo_world(seed=0)
    Z = world.truth.Z
    model = demo_models(seed=0)[0].fit(world.X, world.y)
    recovered = model.transform(world.X)
    pairs = match(Z, recovered)
    figure = plt.figure(figsize=(9, 4.8), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.25])
    draw_latents(above, Z, recovered, pairs, world.y)
    order = pairs[:, 1]
    draw_graphs(below, world.truth.graph, model.result_.adjacency[np.ix_(order, order)])
    figure.savefig(Path(__file__).parent / "_static" / "demo.png", dpi=130)


def draw_latents(figure: Any, Z: Any, recovered: Any, pairs: Any, y: Any) -> None:
    correlations = correlation_matrix(Z, recovered)
    figure.suptitle(f"recovered against true variables: MCC {mcc(Z, recovered):.4f}", fontsize=11)
    rows = np.random.default_rng(0).choice(len(Z), 1500, replace=False)
    for axes, (i, j) in zip(figure.subplots(1, len(pairs)), pairs, strict=True):
        axes.scatter(Z[rows, i], recovered[rows, j], s=3, c=y[rows], cmap="viridis")
        axes.set_title(f"|correlation| {correlations[i, j]:.3f}", fontsize=9)
        axes.set_xlabel(f"true z{i}")
        axes.set_xticks([])
        axes.set_yticks([])
    figure.axes[0].set_ylabel("recovered")


def draw_graphs(figure: Any, true: Any, found: Any) -> None:
    positions = dict(enumerate(layered_layout(true)))
    titles = ("true graph", f"recovered graph: {shd(true, found):.0f} mistakes")
    for axes, graph, title in zip(figure.subplots(1, 2), (true, found), titles, strict=True):
        nx.draw_networkx(
            nx.DiGraph(graph),
            positions,
            ax=axes,
            labels={i: f"z{i}" for i in positions},
            node_color="#dbe9f6",
            edgecolors="#0072b2",
            node_size=620,
            font_size=10,
        )
        axes.set_title(title, fontsize=11)
        axes.margins(0.15)
        axes.axis("off")


if __name__ == "__main__":
    main()
