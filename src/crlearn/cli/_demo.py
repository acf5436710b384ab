"""The demo: one world, one method, the baselines, one page."""

from __future__ import annotations

from pathlib import Path

from crlearn import ICABaseline, LinearInterventionCRL, PCABaseline
from crlearn.base import BaseCRL
from crlearn.cli._files import Run, write_data
from crlearn.cli._show import describe, say, show_comparison
from crlearn.data import Dataset, make_linear_interventional
from crlearn.metrics import evaluate
from crlearn.report import write_report


def demo_world(seed: int) -> Dataset:
    """Five latents that cause each other, behind a linear mixing; one intervention on each."""
    return make_linear_interventional(
        n_latents=5,
        n_features=50,
        n_samples=2000,
        mechanism="quadratic",
        variance_factor=5.0,
        random_state=seed,
    )


def demo_models(seed: int) -> list[BaseCRL]:
    """Return the method of the demo and, after it, the baselines."""
    return [
        LinearInterventionCRL(n_latents=5, random_state=seed),
        PCABaseline(n_latents=5, random_state=seed),
        ICABaseline(n_latents=5, random_state=seed),
    ]


def run_demo(out: Path, seed: int) -> Path:
    """Simulate, fit, evaluate and report; return where the page is."""
    world = demo_world(seed)
    world_file = out / "world.crl"
    write_data(world, world_file)
    say(f"simulated a world: {describe(world)}")
    models = {type(model).__name__: model for model in demo_models(seed)}
    for name, model in models.items():
        say(f"fitting {name} ...")
        model.fit(world.X, world.y)
        Run(out / name.lower(), model, world_file.resolve(), None, world.names).write(world)
    show_comparison(
        [(name, evaluate(model, world), model.result_.seconds) for name, model in models.items()]
    )
    (_, method), *baselines = models.items()
    return write_report(out / "report.html", method, world, baselines=dict(baselines))
