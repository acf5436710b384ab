"""
Hidden causes without any intervention
======================================

Four hidden variables cause each other, and all there is are linear mixtures of them: no
environment, no intervention, no label. If effects are nonlinear and noise is Gaussian, that is
enough to recover the variables up to layers; where it is not enough, the fit says so.
"""

# %%
# Data
# ----
# The graph is a Y: z0 causes z1, and z1 causes z2 and z3.
import warnings

import matplotlib.pyplot as plt

from crlearn import ICABaseline, ObservationalCRL
from crlearn.data import make_observational
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import chance_level, correlation_matrix, evaluate

world = make_observational(n_latents=4, n_features=8, graph="y", n_samples=2000, random_state=0)
print(world)

# %%
# Fit
# ---
model = ObservationalCRL(n_latents=4, random_state=0).fit(world.X)
print(model.result_)
print("layers, childless latents first:", model.layers_)

# %%
# Noises, true against recovered
# ------------------------------
# Exogenous noises are recovered up to mixtures inside a layer: one by one above the childless
# latents, and these two only together. No method can do better.
noises = model.noises(world.X)
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
for j, ax in enumerate(axes):
    ax.scatter(noises[:, j], world.truth.noise[:, j], s=4, alpha=0.5)
    ax.set(xlabel=f"recovered e{j}", ylabel=f"true e{j}")
plt.show()

# %%
figure, ax = plt.subplots(figsize=(3.2, 2.8), layout="constrained")
image = ax.imshow(correlation_matrix(world.truth.noise, noises), cmap="Blues", vmin=0, vmax=1)
ax.set(xlabel="recovered noise", ylabel="true noise", title="absolute correlation")
figure.colorbar(image)
plt.show()

# %%
# Against the truth
# -----------------
# `layer_recovery` compares layers, not single variables. A random rotation is not 0: the column of
# chance levels says where each value starts.
print(evaluate(model, world))
ica = ICABaseline(n_latents=4, random_state=0).fit(world.X)
print("MCC of ICA:", round(evaluate(ica, world, ["mcc"])["mcc"], 2), end=", ")
print("chance:", round(chance_level("mcc", 4), 2))

# %%
# How sure is it?
# ---------------
# The fit is compared with a Gaussian, which has no structure, and with competing structures that
# were met in the search. Differences of log evidence are in nats; five are a factor of 150.
print(f"better than a Gaussian by {model.result_.details['gain_over_gaussian']:.0f} nats")
for other in model.result_.alternatives[:3]:
    print(f"{other.gap:.1f} nats behind, noises agree to {other.agreement:.2f}")

# %%
# Data that do not tell
# ---------------------
# Linear effects make Gaussian data, and all axes of a Gaussian are alike.
linear = make_observational(mechanism="linear", n_samples=1000, random_state=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", AssumptionWarning)
    ObservationalCRL(random_state=0).fit(linear.X)
for warning in caught:
    print(warning.message)
