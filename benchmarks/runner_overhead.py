"""What the study runner costs, beside the runs themselves.

The overhead of a run is the time of a sweep less the time of the same runs in a bare loop (make the
world, fit, evaluate), divided by their number. The world is tiny and the method does nothing, so
that little else is measured. It pays for the key, the claim, and a record that is on the disk
before the next run begins. With two worker processes, what a run takes from the first record to the
last is compared with half of what it takes in the bare loop; the time before that is told apart.

    python benchmarks/runner_overhead.py
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.base import BaseCRL
from crlearn.bench import Plan, Study, run_study
from crlearn.config import config_context
from crlearn.data import WORLDS
from crlearn.metrics import evaluate
from crlearn.result import Guarantee, LinearEncoder, Result

N_RUNS = 400
REPEATS = 3


class Nothing(BaseCRL):
    """Returns the first columns of X as latents."""

    def __init__(self, n_latents: int = 2, *, random_state: Any = None) -> None:
        self.n_latents = n_latents
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        encoder = LinearEncoder(np.eye(self.n_latents, X.shape[1]), np.zeros(X.shape[1]))
        return Result(encoder=encoder, guarantee=Guarantee("none", "none", "none"))


# Worker processes import the class by this path: a script's own folder is on the path.
STUDY = Study.from_dict(
    "overhead",
    {
        "title": "A method that does nothing on a tiny world",
        "source": "this library",
        "world": "segments",
        "metrics": ["mcc"],
        "grid": [{"n_latents": 2, "n_features": 2, "n_samples": 5, "n_segments": 2}],
        "methods": [{"method": "runner_overhead.Nothing"}],
        "profiles": {"full": {"seeds": N_RUNS}},
    },
)


def bare_loop() -> float:
    """Seconds for all runs without the runner."""
    start = time.perf_counter()
    for run in Plan.of(STUDY, "full").runs():
        world = WORLDS[STUDY.world](**run.cell.world_parameters, random_state=run.seed)
        model = Nothing(**run.cell.parameters, random_state=run.seed).fit(world.X, world.y)
        evaluate(model, world, STUDY.metrics)
    return time.perf_counter() - start


def sweep(jobs: int) -> tuple[float, float]:
    """Seconds for a sweep into a new folder: all of it, and from the first record to the last."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = run_study(STUDY, Path(folder) / "out", jobs=jobs)
        passed = time.perf_counter() - start
        finished = sorted(datetime.fromisoformat(record.finished) for record in done.records())
        if done.progress().done != N_RUNS:
            raise RuntimeError(f"Not all runs were done: {done.progress()}.")
    return passed, (finished[-1] - finished[0]).total_seconds()


def main() -> None:
    bare, here, two, start_up = [], [], [], []
    with config_context(progress=False):
        bare_loop()  # what is imported and compiled on first use
        for _ in range(REPEATS):  # in turn, as other work on the machine comes and goes
            bare.append(1e3 * bare_loop() / N_RUNS)
            here.append(1e3 * sweep(1)[0] / N_RUNS)
            passed, working = sweep(2)
            two.append(1e3 * working / (N_RUNS - 1))
            start_up.append(passed - working)
    times = {"bare loop": np.array(bare), "in-process": np.array(here), "jobs=2": np.array(two)}
    print(f"{N_RUNS} runs of a method that does nothing")
    for name, each in times.items():
        print(f"{name:30s} {np.median(each):7.3f} ms a run")
    print(f"{'start of two workers':30s} {np.median(start_up):7.3f} s")
    overheads = {
        "overhead in-process, ms a run (asked: < 10)": times["in-process"] - times["bare loop"],
        "overhead with jobs=2, ms a run": times["jobs=2"] - times["bare loop"] / 2,
    }
    medians = {name: round(float(np.median(each)), 2) for name, each in overheads.items()}
    print(json.dumps(medians, indent=2))


if __name__ == "__main__":
    main()
