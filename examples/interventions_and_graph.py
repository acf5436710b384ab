"""
Latents and their graph from interventions
==========================================

Five hidden variables cause each other and are seen through thirty mixed measurements. In each of
five environments one of them was cut off its causes; nobody says which. `LinearInterventionCRL`
recovers the variables and the graph.
"""

# %%
# Data
# ----
import matplotlib.pyplot as plt
import networkx as nx

from crlearn import LinearInterventionCRL
from crlearn.data import make_linear_interventional
from crlearn.metrics import evaluate

world = make_linear_interventional(
    n_latents=5, n_features=30, n_samples=2000, intervention="hard", random_state=2
)
print(world)

# %%
# Fit
# ---
# Environment 0 is observational. The others may come in any order: latent i of the result is the
# one that the i-th of them intervenes on.
model = LinearInterventionCRL(interventions="hard", random_state=0).fit(world.X, world.y)
print(model.result_)

# %%
# How sure is it?
# ---------------
# The likelihood ratio compares the fit with a Gaussian of its own for every environment: a small
# p-value would say that some environment does more than change one latent. Every edge has a
# p-value, too: how much worse the data fit without it, with everything else fitted anew.
print(model.result_.goodness_of_fit)
for (i, j), p_value in model.result_.edge_tests.items():
    print(f"z{i} -> z{j}: p = {p_value:.1e}")

# %%
# Against the truth
# -----------------
print(evaluate(model, world))

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
positions = nx.circular_layout(nx.DiGraph(world.truth.graph))
for ax, graph, title in zip(
    axes, (world.truth.graph, model.result_.adjacency), ("true", "recovered"), strict=True
):
    names = {i: f"z{i}" for i in range(5)}
    nx.draw_networkx(
        nx.DiGraph(graph), positions, ax=ax, labels=names, node_color="#dbe9f6", node_size=600
    )
    ax.set_title(f"{title} graph")
    ax.margins(0.15)
    ax.axis("off")
plt.show()

# %%
# Softer interventions say less
# -----------------------------
# If an intervention only changes how a latent depends on its parents, each latent is recovered up
# to a mixture with its parents, and the graph up to its transitive closure. The guarantee says so,
# and `evaluate` measures that and nothing more.
soft = make_linear_interventional(
    n_latents=5, n_features=30, n_samples=2000, intervention="soft", random_state=2
)
model = LinearInterventionCRL(interventions="soft", random_state=0).fit(soft.X, soft.y)
print(model.result_.guarantee)
print(evaluate(model, soft))
