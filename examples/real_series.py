"""
Real series behind a network, and checks that say no
====================================================

Six real weather series are mixed by a random network, and the stretches of time are all that a
method is told. The series are what nature made them: nobody has arranged them to fulfil the
conditions of a theory. This example shows how that looks: the score is poor, and the checks of
`LatentANM` say so without knowing the truth.
"""

# %%
# Data
# ----
# A year of hourly weather at two airports of New York, in 40 stretches of nine days.
import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from crlearn import IVAE, LatentANM, PCABaseline
from crlearn.data import make_mixed_series
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import chance_level, match, mcc

world = make_mixed_series(n_segments=40, random_state=0)
true, names = world.truth.Z, world.truth.latent_names
print(world)
tied = [np.corrcoef(true[world.y == u].T)[3, 5] for u in range(40)]
print(f"winds to the east at both airports correlate at {min(tied):.2f} to {max(tied):.2f}")

# %%
# Fit
# ---
# Mechanisms are taken to be linear and steps are few, to be quick. Warnings are kept for later.
models = {
    "LatentANM": LatentANM(6, mechanisms="linear", n_steps=600, n_restarts=2, random_state=0),
    "IVAE": IVAE(6, max_epochs=30, random_state=0),
    "PCABaseline": PCABaseline(6),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", AssumptionWarning)
    for estimator in models.values():
        estimator.fit(world.X, world.y)
model = models["LatentANM"]

# %%
# What the checks say
# -------------------
# This is what somebody with real data would see, who has no truth to compare with. `LatentANM`
# needs stretches in which a series does not follow the others at all, and finds none: the winds at
# both airports, for one, go together in each stretch. And mechanisms are not linear, as it was told
# to take them. (That the mixing has kinks, where theory wants it smooth, no check sees.)
for check in model.result_.checks:
    print(check)
print()
print("guarantee:", model.result_.guarantee.text)

# %%
# Against the truth
# -----------------
# No method gets far from the chance level, which is the score of a random rotation of independent
# latents; these series are not independent, so that it is only a guide. Other settings of
# `LatentANM` gave other scores: 0.61 to 0.74 in seven fits.
scores = {name: mcc(true, fitted.transform(world.X)) for name, fitted in models.items()}
print({name: round(score, 2) for name, score in scores.items()})
figure, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
ax.barh(list(scores), list(scores.values()), color=["#30638e", "#7a8794", "#7a8794"])
for place, value in enumerate(scores.values()):
    ax.text(value - 0.01, place, f"{value:.2f}", ha="right", va="center", color="w")
ax.axvline(chance_level("mcc", 6), color="#d1495b", ls="--", label="chance level")
ax.set(xlim=(0, 1), xlabel="MCC")
ax.invert_yaxis()
ax.legend(loc="lower right")
plt.show()

# %%
# Series, true and recovered
# --------------------------
# Each true series beside the recovered one that is matched to it, standardised and with the sign
# that fits, over four weeks in spring. What is not recovered is a mixture of several series.
found = model.transform(world.X)
order = match(true, found)[:, 1]
weeks = slice(24 * 100, 24 * 128)
days = np.arange(len(true))[weeks] / 24
figure, axes = plt.subplots(6, 1, figsize=(8, 8.5), sharex=True, layout="constrained")
for j, (ax, place) in enumerate(zip(axes, order, strict=True)):
    correlation = np.corrcoef(true[:, j], found[:, place])[0, 1]
    series = np.sign(correlation) * found[:, place]
    ax.plot(days, true[weeks, j], color="k", lw=1, label="true")
    ax.plot(days, ((series - series.mean()) / series.std())[weeks], color="#d1495b", lw=1)
    ax.set_title(f"{names[j]}: correlation {abs(correlation):.2f} with z{place}", fontsize=10)
axes[0].plot([], [], color="#d1495b", label="recovered")
axes[0].legend(loc="upper right", ncols=2, fontsize=8)
axes[-1].set_xlabel("day of the year")
plt.show()

# %%
# The graph, and what the decoder makes of it
# -------------------------------------------
# There is a graph, and the model is consistent in itself: the latent in each row is set to 1, the
# outcome is decoded to observations and encoded again, and what moves is what the graph says, the
# descendants of the latent. Darker is further. That is no evidence for the graph: any invertible
# encoder would pass, and the checks above say that this one is not the only answer.
moved = np.zeros((6, 6))
for k in range(6):
    changed = model.intervene(world.X, world.y, {f"z{k}": 1.0})
    moved[k] = np.abs(model.transform(changed) - found).mean(axis=0)
descends = np.eye(6, dtype=bool)
for cause in range(6):
    descends[cause, [int(name[1:]) for name in nx.descendants(model.graph_, f"z{cause}")]] = True
print(f"largest move of a latent that is no descendant: {moved[~descends].max():.1g}")

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
nx.draw_networkx(
    model.graph_,
    nx.circular_layout(sorted(model.graph_)),
    ax=axes[0],
    node_color="lightblue",
    node_size=700,
)
axes[0].set_title(f"recovered graph, {model.graph_.number_of_edges()} edges")
axes[0].margins(0.15)
axes[0].axis("off")
axes[1].imshow(moved, cmap="Blues", vmin=0, vmax=1.2)
for row, column in np.argwhere(descends):
    axes[1].text(column, row, "•", ha="center", va="center", color="#d1495b", size=16)
labels = [f"z{k}" for k in range(6)]
axes[1].set_xticks(range(6), labels)
axes[1].set_yticks(range(6), [f"set {label}" for label in labels])
axes[1].set(xlabel="moves", title="dots: itself and descendants")
plt.show()
