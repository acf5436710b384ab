"""
Noisy sensors, known perturbations
==================================

Five hidden variables in a known causal chain, each perturbed in one environment, measured by eighty
noisy sensors. `EmpiricalBayesCRL` finds how the sensors mix the variables, takes the noise off, and
says how sure it is of every value.
"""

# %%
# Data
# ----
# The graph and the targets are known: they are the design of the experiment.
import warnings

import matplotlib.pyplot as plt
import numpy as np

from crlearn import EmpiricalBayesCRL
from crlearn.data import make_multi_domain
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate, relmse

world = make_multi_domain(
    n_latents=5, n_features=80, n_samples=1000, observational=True, random_state=0
)
graph, targets = world.truth.graph, world.known_targets
print(world)

# %%
# Fit
# ---
model = EmpiricalBayesCRL(graph=graph, targets=targets, random_state=0).fit(world.X, world.y)
print(model.result_)

# %%
# Posterior means and intervals
# -----------------------------
# Each row has its own; nine in ten intervals should hold the true value.
posterior = model.posterior(world.X, world.y)
low, high = posterior.interval(0.9)
inside = (low < world.truth.Z) & (high > world.truth.Z)
print(f"true values inside their 90% interval: {inside.mean():.1%}")

rows = np.flatnonzero(world.y == 0)[:40]
rows = rows[np.argsort(world.truth.Z[rows, 2])]
noisy = model.result_.encoder.noisy(world.X)
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
reach = [posterior.mean[rows, 2] - low[rows, 2], high[rows, 2] - posterior.mean[rows, 2]]
ax.errorbar(range(40), posterior.mean[rows, 2], reach, fmt="o", ms=3, label="posterior, 90%")
ax.plot(noisy[rows, 2], "x", color="0.6", ms=4, label="with measurement noise")
ax.plot(world.truth.Z[rows, 2], "k-", lw=1, label="true")
ax.set(xlabel="sample, sorted by the true value", ylabel="third variable")
ax.legend(frameon=False)
plt.show()

# %%
# What denoising is worth
# -----------------------
# The same latents without it, with all edges that the causal order allows, and with the graph:
# edges too many cost nothing.
for structure in ("none", "full", "graph"):
    other = EmpiricalBayesCRL(
        graph=graph, targets=targets, structure=structure, random_state=0
    ).fit(world.X, world.y)
    error = relmse(world.truth.Z, other.transform(world.X, world.y))
    print(f"structure={structure!r}: relative squared error {error:.3f}")
print(evaluate(model, world, ["relmse", "frobenius", "mcc"]))

# %%
# A wrong label
# -------------
# Two environments have exchanged their labels: what must not move does, and the fit says so.
exchanged = targets[[0, 2, 1, 3, 4, 5]]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", AssumptionWarning)
    EmpiricalBayesCRL(graph=graph, targets=exchanged, random_state=0).fit(world.X, world.y)
for warning in caught:
    print(str(warning.message)[:160])
