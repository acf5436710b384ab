"""
Interventions behind a smooth mixing
====================================

Three hidden variables cause each other, and what is measured are smooth functions of all of them: a
device with a curved response. Each perturbation cuts one variable off its causes; nobody knows
which. `NonlinearInterventionCRL` recovers the variables, each up to a function of its own, their
graph and what every perturbation hits.
"""

# %%
# Data
# ----
# Environment 0 is the control, and there are two perturbations of each variable.
import warnings

import matplotlib.pyplot as plt
import networkx as nx

from crlearn import LinearInterventionCRL, NonlinearInterventionCRL
from crlearn.data import make_coupled_interventional
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate, match

world = make_coupled_interventional(
    n_latents=3,
    n_features=3,
    n_samples=1000,
    graph="chain",
    mixing="smooth",
    mixing_gain=1.0,
    random_state=0,
)
print(world)

# %%
# Fit
# ---
# Two flows are trained side by side, for less time than by default.
model = NonlinearInterventionCRL(n_steps=800, random_state=0).fit(world.X, world.y)
print(model.result_)

# %%
# Latents, true against recovered
# -------------------------------
# Recovered latents are numbered causes first; here they are put in the order of the true ones. An
# invertible function of each is all that can be recovered: points lie on curves, not on lines.
control = world.y == 0
Z, found = world.truth.Z[control], model.transform(world.X)[control]
order = match(Z, found)[:, 1]
figure, axes = plt.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
for j, ax in enumerate(axes):
    ax.plot(Z[:, j], found[:, order[j]], ".", markersize=2)
    ax.set_xlabel(f"true latent {j}")
axes[0].set_ylabel("recovered")
plt.show()

# %%
# Graph and targets
# -----------------
figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
names = {f"z{place}": f"latent {j}" for j, place in enumerate(order)}
graph = nx.relabel_nodes(model.graph_, names)
nx.draw_networkx(
    graph, nx.circular_layout(sorted(graph)), ax=axes[0], node_color="lightblue", node_size=1800
)
axes[0].set_title("recovered graph")
axes[0].axis("off")
axes[1].imshow(model.result_.targets[:, order], cmap="Blues", vmin=0, vmax=1.4)
axes[1].set_xticks(range(3), [f"latent {j}" for j in range(3)])
axes[1].set_yticks(range(7), ["control", *(f"perturbation {e}" for e in range(1, 7))])
axes[1].set_title("recovered targets")
plt.show()

# %%
# Against the truth, and against a linear method
# ----------------------------------------------
# The linear method says itself that its answer does not hold.
metrics = ["mcc", "shd", "targets_right"]
print(evaluate(model, world, metrics))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", AssumptionWarning)
    linear = LinearInterventionCRL(3, mechanisms="linear", random_state=0).fit(world.X, world.y)
print(evaluate(linear, world, metrics))
for warning in caught:
    print(warning.message)
