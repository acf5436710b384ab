"""
Perturbations that hit several causes at once
=============================================

Six hidden variables, six perturbations, and each perturbation hits a set of variables that nobody
knows: a screen with side effects. `MultiNodeCRL` recovers the variables, their graph and what every
perturbation hits.
"""

# %%
# Data
# ----
import warnings

import matplotlib.pyplot as plt
import numpy as np

from crlearn import MultiNodeCRL
from crlearn.data import make_multi_node
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import evaluate, match

world = make_multi_node(
    n_latents=6, n_features=30, n_samples=2000, target_sets="general", random_state=1
)
print(world)

# %%
# Fit
# ---
# Environment 0 is the control. Nothing is said about the others.
model = MultiNodeCRL(interventions="hard", random_state=0).fit(world.X, world.y)
print(model.result_)

# %%
# What does each perturbation hit?
# --------------------------------
# Recovered latents are numbered causes first; for the picture they are put in the order of the true
# ones. Without the truth, a latent has to be named by what it does: by its loadings on the
# features, or by the perturbations that hit it.
order = match(world.truth.Z, model.transform(world.X))[:, 1]
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained", sharey=True)
found = model.result_.targets[:, order]
for ax, targets, title in zip(
    axes, (world.truth.targets, found), ("true", "recovered"), strict=True
):
    ax.imshow(targets, cmap="Blues", vmin=0, vmax=1.4)
    ax.set_xticks(range(6), [f"z{j}" for j in range(6)])
    ax.set_title(f"{title} targets")
    ax.set_xlabel("latent")
axes[0].set_yticks(range(7), ["control", *(f"perturbation {e}" for e in range(1, 7))])
plt.show()

# %%
# How sure is it?
# ---------------
# One test says whether the whole answer, encoder, graph and targets, fits as well as a Gaussian of
# its own for every environment. A wrong set of targets does not pass it.
print(model.result_.goodness_of_fit)

# %%
# Against the truth
# -----------------
print(evaluate(model, world))
right = (found == world.truth.targets).all(axis=1)
print(f"environments with all targets right: {right.sum()} of {len(right)}")

# %%
# A perturbation that does something else
# ---------------------------------------
# Rows of one environment come from a device with other gains: that is no intervention on any set of
# latents, and the fit warns of it.
X = world.X.copy()
X[world.y == 3] *= np.linspace(0.8, 1.2, 30)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", AssumptionWarning)
    MultiNodeCRL(6, mechanisms="linear", random_state=0).fit(X, world.y)
for warning in caught:
    print(warning.message)
