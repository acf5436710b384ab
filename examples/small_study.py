"""
A small study, and its report
=============================

A study is a grid of worlds, methods and seeds. `crlearn.bench` runs it, keeps every run, and goes
on where it stopped. The studies that ship with crlearn are tables of papers; this one is our own,
and asks how far independent component analysis gets with and without causal effects.
"""

# %%
# A study is a text
# -----------------
# It may also stand in a file, which ``crlearn bench run my_study.toml --out runs`` reads. Lists in
# the grid are its axes; the profile says how many seeds are run.
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

from crlearn import ICABaseline, PCABaseline
from crlearn.bench import Study, compare, run_study
from crlearn.data import make_observational
from crlearn.report import write_report, write_study_report

study = Study.parse(
    "ica-and-causes",
    """
title  = "ICA with and without causal effects"
source = "This example"
world  = "observational"
metrics = ["mcc"]

[[grid]]
n_latents = 3
n_features = 6
noise = "laplace"
mechanism = "linear"
graph = ["empty", "chain"]
n_samples = [100, 300, 1000, 3000]

[[methods]]
method = "ICABaseline"
[[methods]]
method = "PCABaseline"

[profiles.full]
seeds = 10
[profiles.quick]
seeds = 2
""",
)

# %%
# Run it
# ------
# Each run is a line of ``runs.jsonl`` in the folder, written as soon as it is done. The same call
# again would find all of them there. Here the folder is a temporary one.
folder = TemporaryDirectory()
sweep = run_study(study, folder.name)
print(sweep.progress())
rows = sweep.summary()

# %%
# The table
# ---------
# A summary has one row for each setting, method and metric. ``to_markdown``, ``to_latex`` and
# ``to_csv`` write the table; a study of a paper has the published values in it as well.
print(compare(study, rows).to_markdown())

# %%
# The figure
# ----------
# More rows help where the assumption holds, and nowhere else.
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
colours = {"ICABaseline": "#30638e", "PCABaseline": "#d1495b"}
for ax, graph, title in (
    (axes[0], "empty", "independent latents"),
    (axes[1], "chain", "latents in a causal chain"),
):
    shown = [row for row in rows if row.metric == "mcc" and row.setting["graph"] == graph]
    for method, colour in colours.items():
        own = [row for row in shown if row.method == method]
        sizes = [row.setting["n_samples"] for row in own]
        means, spreads = [row.mean for row in own], [row.sd for row in own]
        ax.errorbar(sizes, means, spreads, fmt="o-", capsize=3, color=colour, label=method)
    ax.axhline(shown[0].chance, linestyle="--", color="#7a8794", label="chance level")
    ax.set(xscale="log", xlabel="number of rows", title=title)
axes[0].set_ylabel("MCC (mean and sd of 10 seeds)")
axes[1].legend(loc="upper left")
plt.show()

# %%
# Reports
# -------
# A report is one HTML page that needs no other file: `write_study_report` puts the table, figures
# and failures of a study on it, `write_report` the guarantee, checks, scores and figures of one
# fit. ``crlearn report`` does both on the command line.
world = make_observational(3, 6, 1000, graph="empty", noise="laplace", random_state=0)
model = ICABaseline(n_latents=3, random_state=0).fit(world.X)
baselines = {"PCABaseline": PCABaseline(n_latents=3).fit(world.X)}
pages = [
    write_study_report(Path(folder.name) / "study.html", sweep),
    write_report(Path(folder.name) / "fit.html", model, world, baselines=baselines),
]
for page in pages:
    print(f"{page.name}: {page.stat().st_size / 1024:.0f} KiB")
folder.cleanup()
