"""
The joints of an arm, from markers on it
========================================

Shoulder, elbow and wrist of an arm move together, otherwise in each task. All that is seen is how
high some markers on the arm are. `LatentANM` recovers what drives each joint, which joint moves
which others, and what would have been seen if one joint had been held elsewhere.
"""

# %%
# Data
# ----
# The arm carries three markers on each of its three links and does 40 tasks. Shoulder causes elbow
# and wrist, and elbow causes wrist; in about a third of the tasks a joint does not follow the
# others, and nobody says in which. ``y`` is the number of the task.
import warnings

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from crlearn import LatentANM
from crlearn.data import make_arm
from crlearn.exceptions import AssumptionWarning
from crlearn.metrics import chance_level, match, mcc

world = make_arm(n_samples=1000, n_tasks=40, random_state=0)
arm, true, names = world.truth.mixing, world.truth.Z, world.truth.latent_names
print(world)

links = {"upper arm": "#30638e", "forearm": "#7a8794", "hand": "#d1495b"}


def draw(ax, joints, alpha=1.0):
    """Draw arms, given where links begin and end."""
    for joint in joints:
        for k, color in enumerate(links.values()):
            ax.plot(*joint[k : k + 2].T, "o-", color=color, ms=3, lw=2, alpha=alpha)
    ax.set(aspect="equal", xlim=(-0.3, 2.8), ylim=(-1.4, 1.8), xticks=[], yticks=[])


figure, axes = plt.subplots(1, 4, figsize=(8, 2.5), layout="constrained")
for task, ax in enumerate(axes):
    draw(ax, arm.joints(true[world.y == task][:12]), alpha=0.4)
    ax.set_title(f"task {task}")
plt.show()

# %%
# Fit
# ---
# A camera that looks along the plane of the arm sees the height of each marker and nothing else.
# That is enough as long as no link points backwards; rows with one are read as others. Then,
# further down, comes what happens with both coordinates. The fit takes fewer steps than by default.
heights = world.X[:, 1::2]
backwards = np.abs(arm.angles(true).cumsum(axis=1)) > np.pi / 2
print(f"rows with a link that points backwards: {backwards.any(axis=1).mean():.1%}")
model = LatentANM(3, n_steps=1500, random_state=0).fit(heights, world.y)
print(model.result_)

# %%
# Latents, true against recovered
# -------------------------------
# Order, scale and sign of latents cannot be known. Here they are put in the order of the joints.
found = model.transform(heights)
order = match(true, found)[:, 1]
print(f"MCC {mcc(true, found):.3f}; chance {chance_level('mcc', 3):.2f}")
figure, axes = plt.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
for j, ax in enumerate(axes):
    ax.plot(true[:, j], found[:, order[j]], ".", ms=2, alpha=0.4)
    correlation = abs(np.corrcoef(true[:, j], found[:, order[j]])[0, 1])
    ax.set(xlabel=f"{names[j]}, true", title=f"correlation {correlation:.3f}")
axes[0].set_ylabel("recovered")
plt.show()

# %%
# Which joint moves which
# -----------------------
# Beside the graph: the probability that a joint ignores the others in each task, and the truth
# below it.
joint_of = {f"z{place}": names[j] for j, place in enumerate(order)}
graph = nx.relabel_nodes(model.graph_, joint_of)
print("found:", ", ".join(f"{cause} -> {effect}" for cause, effect in sorted(graph.edges)))
ignores = np.stack(
    [
        model.result_.details["vanishing"][:, order[1:]].T,
        [[scm.nodes[j].mechanism is None for scm in world.truth.scms] for j in (1, 2)],
    ]
)
figure, axes = plt.subplot_mosaic(
    [["graph", "found"], ["graph", "true"]],
    figsize=(8, 3),
    width_ratios=[1, 1.8],
    layout="constrained",
)
nx.draw_networkx(
    graph,
    {"shoulder": (0, 1), "elbow": (1, 0.5), "wrist": (0, 0)},
    ax=axes["graph"],
    node_color="lightblue",
    node_size=2200,
    font_size=9,
)
axes["graph"].margins(0.35)
axes["graph"].set_title("recovered graph")
axes["graph"].axis("off")
for part, values in zip(("found", "true"), ignores, strict=True):
    axes[part].imshow(values, cmap="Blues", vmin=0, vmax=1.2, aspect="auto")
    axes[part].set_yticks(range(2), names[1:])
    axes[part].set_title({"found": "recovered: joint ignores the others", "true": "true"}[part])
axes["found"].set_xticks([])
axes["true"].set_xlabel("task")
plt.show()

# %%
# What if the shoulder had been held elsewhere?
# ---------------------------------------------
# `intervene` sets a latent, lets its effects follow, and decodes: heights that nobody has
# seen. From these the angles of the joints are read by geometry, which the model knows nothing of.


def angles_of(heights):
    """Read the angles of the joints from the heights of the ends of the links."""
    rises = np.diff(heights[:, 2::3], axis=1, prepend=0.0)
    directions = np.arcsin(np.clip(rises / arm.lengths, -1, 1))
    return np.diff(directions, axis=1, prepend=0.0)


def joints_of(angles):
    """Return where links begin and end, given the angles of the joints."""
    directions = angles.cumsum(axis=1)
    steps = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
    ends = (np.array(arm.lengths)[:, None] * steps).cumsum(axis=1)
    return np.concatenate([np.zeros_like(ends[:, :1]), ends], axis=1)


def truly_set(joint, value):
    """Return the true angles, had a joint's latent had a value and the others followed."""
    noise = world.truth.noise.copy()
    noise[:, joint] += value - true[:, joint]
    after = np.empty_like(true)
    for task, scm in enumerate(world.truth.scms):
        after[world.y == task] = scm.from_noise(noise[world.y == task])
    return arm.angles(after)


# Each task has its own mechanisms, known only where the task has been: each joint is set to one
# standard deviation above its mean in the task, not to something that the task has never shown.
means, spreads = (
    np.array([of(true[world.y == task], axis=0) for task in range(40)])[world.y]
    for of in (np.mean, np.std)
)
before = angles_of(heights)
recovered, truth = [], []
for j, place in enumerate(order):
    slope, offset = np.polyfit(true[:, j], found[:, place], 1)
    value = means[:, j] + spreads[:, j]
    changed = model.intervene(heights, world.y, {f"z{place}": slope * value + offset})
    recovered.append(angles_of(changed))
    truth.append(truly_set(j, value))

# %%
# First how arms look, in a task where both other joints follow: as they were, with the shoulder set
# (as recovered, and in truth), and with the wrist set.
follow = np.flatnonzero((ignores[0] < 0.5).all(axis=0))[0]
some = np.flatnonzero(world.y == follow)[:12]
figure, axes = plt.subplots(1, 4, figsize=(8, 2.7), layout="constrained")
shown = {
    "as seen": before,
    "shoulder set": recovered[0],
    "shoulder set, true": truth[0],
    "wrist set": recovered[2],
}
for ax, (title, angles) in zip(axes, shown.items(), strict=True):
    draw(ax, joints_of(angles[some]), alpha=0.4)
    ax.set_title(title, fontsize=10)
figure.suptitle(f"task {follow}", fontsize=10)
plt.show()

# %%
# Then how far each joint moves, on average over all tasks. The graph says that setting the shoulder
# moves all three, setting the elbow moves the wrist too, and setting the wrist moves nothing else.
# What still moves a little, where the truth says 0, is the error of the recovered latents.
figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained", sharey=True)
for ax, title, answers in zip(axes, ("recovered", "true"), (recovered, truth), strict=True):
    moved = np.degrees([np.abs(angles - before).mean(axis=0) for angles in answers])
    ax.imshow(moved, cmap="Blues", vmin=0, vmax=moved.max())
    for (j, k), value in np.ndenumerate(moved):
        ax.text(
            k,
            j,
            f"{value:.1f}°",
            ha="center",
            va="center",
            color="k" if value < 0.6 * moved.max() else "w",
        )
    ax.set_xticks(range(3), names)
    ax.set(xlabel="moves by", title=title)
axes[0].set_yticks(range(3), [f"set {name}" for name in names])
plt.show()

# %%
# And row by row: by how much elbow and wrist turn when the shoulder is set. With a value outside of
# what a task has shown, some tasks would be far off the line: mechanisms are then guesses.
figure, axes = plt.subplots(1, 2, figsize=(6.4, 3), layout="constrained")
for ax, j in zip(axes, (1, 2), strict=True):
    changes = [np.degrees(answer[0][:, j] - before[:, j]) for answer in (truth, recovered)]
    ax.plot(*changes, ".", ms=2, alpha=0.4)
    ax.axline((0, 0), slope=1, color="k", lw=0.8)
    correlation = np.corrcoef(*changes)[0, 1]
    ax.set(xlabel="true turn, degrees", title=f"{names[j]}: correlation {correlation:.2f}")
axes[0].set_ylabel("recovered turn, degrees")
plt.show()

# %%
# Both coordinates are harder
# ---------------------------
# Why leave out the other coordinate of each marker? With it, rows lie on a curved surface, which
# has to be brought to three numbers first. Principal components fold this one: an arm that points a
# little up is as far forward as one that points a little down. A check finds the fold, and the
# latents are lost. By default an autoencoder takes over where principal components fold, and where
# it folds, too, a flow of all six components that makes the surface flat while it finds the
# latents. With 3,000 steps and three restarts that takes three minutes on two cores, too long for
# this page, and has an MCC of 0.991 and the right graph, and passes all checks.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", AssumptionWarning)
    folded = LatentANM(3, reduction="linear", n_steps=500, n_restarts=1, random_state=0)
    folded.fit(world.X, world.y)
print(f"MCC {mcc(true, folded.transform(world.X)):.3f}; chance {chance_level('mcc', 3):.2f}")
for check in folded.result_.checks:
    if check.passed is False:
        print(check)
