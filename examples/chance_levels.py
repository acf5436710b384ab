"""
Metrics and their chance levels
===============================

The mean correlation coefficient (MCC) matches recovered to true latents so that the result is
largest. Because of this choice, an answer that knows nothing scores well above zero. This example
measures how far above, and which metrics are blind to what.
"""

# %%
# A random rotation has an MCC of 0.77
# ------------------------------------
# Whitening alone recovers the latents up to a rotation. Take four independent latents, rotate them
# at random, and score the outcome as if it were the answer of a method.
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ortho_group

from crlearn.metrics import chance_level, mac, mcc, r2

rng = np.random.default_rng(0)
Z = rng.normal(size=(2000, 4))
rotations = ortho_group.rvs(4, size=300, random_state=rng)
matched = [mcc(Z, Z @ rotation) for rotation in rotations]
in_order = [mac(Z, Z @ rotation) for rotation in rotations]
print(f"MCC of a random rotation: {np.mean(matched):.2f}; level: {chance_level('mcc', 4):.2f}")
print(f"MAC of a random rotation: {np.mean(in_order):.2f}; level: {chance_level('mac', 4):.2f}")

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
bins = np.linspace(0, 1, 41)
for name, values, color in (("mac", in_order, "#7a8794"), ("mcc", matched, "#30638e")):
    ax.hist(values, bins, color=color, alpha=0.75, label=f"{name}, 300 random rotations")
    ax.axvline(chance_level(name, 4), color=color, linestyle="--", label=f"chance level of {name}")
ax.set(xlabel="score", ylabel="rotations", xlim=(0, 1), title="four latents")
ax.legend(loc="upper left")
plt.show()

# %%
# The level falls with the number of latents, slowly
# --------------------------------------------------
# With two latents an MCC of 0.9 is chance. A value is to be read as its place between the chance
# level and 1.
sizes = np.array([1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30])
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, color in (("mcc", "#30638e"), ("mcc_spearman", "#d1495b"), ("mac", "#7a8794")):
    ax.plot(sizes, [chance_level(name, n) for n in sizes], "o-", ms=4, color=color, label=name)
ax.set(xlabel="number of latents", ylabel="chance level", ylim=(0, 1.03))
ax.legend()
plt.show()

# %%
# What each metric can see
# ------------------------
# Four answers to the same question, from the truth to noise. R2 allows any linear map, so that a
# rotation is perfect for it: it tells whether the latents are there, not whether they were told
# apart. MCC needs them one by one. Rank correlation (`mcc_spearman`) forgives a monotone bend of
# each latent.
order_and_scale = Z[:, [2, 0, 3, 1]] * [3.0, -1.0, 0.5, 2.0]
answers = {
    "other order, scale, sign": order_and_scale,
    "bent: sinh of each latent": np.sinh(1.5 * order_and_scale / order_and_scale.std(axis=0)),
    "random rotation": Z @ rotations[0],
    "noise": rng.normal(size=Z.shape),
}
metrics = {
    "mcc": mcc,
    "mcc_spearman": lambda true, recovered: mcc(true, recovered, "spearman"),
    "r2": r2,
}
print(f"{'answer':<28}" + "".join(f"{name:>14}" for name in metrics))
for name, answer in answers.items():
    print(f"{name:<28}" + "".join(f"{metric(Z, answer):>14.2f}" for metric in metrics.values()))

# %%
# Noise falls below the chance level: that level belongs to a rotation of the right span, which is
# what whitening gives for free in a linear mixing.
