"""
A simulated world
=================

A world is a causal graph over hidden variables, what each environment does to them, and a mixing
that turns them into measurements. Because the world is simulated, all of it is known, and a method
can be scored against it.
"""

# %%
# Draw a world
# ------------
# Four latents with a fixed graph, ten measured features, and one hard intervention for each latent:
# in environment m the latent m - 1 loses its parents, and the variance of its noise falls to a
# quarter. Environment 0 is left alone.
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from crlearn.data import make_linear_interventional
from crlearn.graph import layers, to_networkx

edges = np.zeros((4, 4), dtype=bool)
edges[0, 1] = edges[0, 2] = edges[1, 3] = edges[2, 3] = True
world = make_linear_interventional(
    n_latents=4, n_features=10, n_samples=500, graph=edges, random_state=1
)
truth = world.truth
print(world)
print("environments:", world.environments)

# %%
# An estimator is given ``world.X`` and ``world.y`` only. What follows is ``world.truth``, which no
# estimator sees.
#
# The graph and the targets of the interventions
# ----------------------------------------------
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")

names = [f"z{i}" for i in range(truth.n_latents)]
places = {
    names[node]: (position - (len(layer) - 1) / 2, height)
    for height, layer in enumerate(layers(truth.graph))
    for position, node in enumerate(layer)
}
nx.draw_networkx(
    to_networkx(truth.graph, names), places, ax=left, node_size=900, node_color="#cfe0f3"
)
left.set_title("causal graph")
left.margins(0.25)
left.axis("off")

right.imshow(truth.targets, cmap="Blues", vmin=0, vmax=1.4)
right.set_xticks(range(4), names)
right.set_yticks(range(world.n_environments), world.environments)
right.set(title="who is intervened on", xlabel="latent", ylabel="environment")
plt.show()

# %%
# What an intervention does
# -------------------------
# In environment 0 the latent z1 follows its parent z0. In environment 2, which intervenes on z1, it
# does not, and its spread is smaller. The other mechanisms stay as they are: z3 still follows z1.
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey="col")
for ax, (cause, effect) in zip(axes, ((0, 1), (1, 3)), strict=True):
    for environment, color in ((0, "#7a8794"), (2, "#d1495b")):
        Z = world.environment(environment).truth.Z
        ax.scatter(Z[:, cause], Z[:, effect], s=6, color=color, label=f"environment {environment}")
    ax.set(xlabel=f"z{cause}", ylabel=f"z{effect}", title=f"z{cause} causes z{effect}")
axes[0].legend(markerscale=2.5)
plt.show()

# %%
# What is measured
# ----------------
# The features are linear mixtures of all latents. No feature belongs to one latent, so that an
# intervention on one latent changes the spread of many features at once, up or down.
change = [
    world.environment(e).X.std(axis=0) / world.environment(0).X.std(axis=0)
    for e in world.environments[1:]
]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.7), layout="constrained")
image = left.imshow(truth.mixing.matrix.T, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
left.set_yticks(range(4), names)
left.set_xticks(range(10), world.names, fontsize=8)
left.set(title="mixing: weight of each latent", xlabel="feature", ylabel="latent")
figure.colorbar(image, ax=left)

image = right.imshow(np.array(change), cmap="PuOr_r", vmin=0.2, vmax=1.8, aspect="auto")
right.set_yticks(range(4), world.environments[1:])
right.set_xticks(range(10), world.names, fontsize=8)
right.set(title="spread, relative to environment 0", xlabel="feature", ylabel="environment")
figure.colorbar(image, ax=right)
plt.show()

# %%
# Exact densities
# ---------------
# The world also knows the density of its latents, its gradient (the score) and the change of the
# score from one environment to another. That change involves the target and its parents alone,
# which is what score-based methods build on: for environment 2 (target z1, parent z0) the columns
# of z2 and z3 are zero.
difference = truth.score_difference(world.environment(0).truth.Z, environment=2)
print("mean square of the score difference:", (difference**2).mean(axis=0).round(3))
