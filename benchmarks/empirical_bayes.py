"""Time of EmpiricalBayesCRL, beside what is asked of it and beside the published algorithm.

- speed: seconds of a fit at the paper's size and with 20 latents, in a fresh process each, so that
  imports and first calls are told apart; the median of three later fits beside them.
- parts: the same fit without denoising, with an empty graph, and with the whole graph.
- iterations: what one iteration of the published EM costs, with the score of the graph and with the
  FULL score of 10,000 features, as a ratio to a whole fit of ours in the same process.
- memory: what the FULL score needs, in a fresh process.

Other work on the machine makes times longer, so that they are upper bounds; ratios are taken within
one process, one after the other.

    python benchmarks/empirical_bayes.py
    python benchmarks/empirical_bayes.py --quick
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

REPEATS = 3
# Latents, rows in each domain, seconds that a fit may take.
Sizes = list[tuple[int, int, float | None]]
SIZES: Sizes = [(4, 200, 1.0), (4, 2000, 1.0), (10, 2000, None), (20, 2000, 10.0)]
QUICK: Sizes = [(4, 200, 1.0)]
# Iterations that are timed, by the structure of the published score.
N_ITERATIONS = {"graph": 10, "full": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no denoising": {"structure": "none"},
    "empty graph": {"structure": "empty"},
    "full graph": {"structure": "full"},
}


def fit_time(world: Any, method: str = "EmpiricalBayesCRL", **options: Any) -> float:
    """Return the seconds of one fit."""
    from crlearn.estimators import ESTIMATORS

    estimator: Any = ESTIMATORS[method]
    model = estimator(
        graph=world.truth.graph, targets=world.known_targets, random_state=0, **options
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations have not settled
        model.fit(world.X, world.y)
    return time.perf_counter() - start


def median_time(world: Any, **options: Any) -> float:
    """Return the median of some fits."""
    return float(np.median([fit_time(world, **options) for _ in range(REPEATS)]))


def measure_in_this_process(n_latents: int, n_samples: int) -> dict[str, float]:
    """Return the seconds of the first fit of a process, and of later ones."""
    from crlearn.data import make_multi_domain

    world = make_multi_domain(n_latents, 100, n_samples, random_state=0)
    return {"first": fit_time(world), "later": median_time(world)}


def in_a_fresh_process(*arguments: Any) -> dict[str, float]:
    """Measure where nothing has been imported."""
    command = [sys.executable, __file__, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def speed(sizes: Sizes, console: Console) -> None:
    """Show the seconds of fits."""
    table = Table("latents", "rows a domain", "first fit, s", "later, s", "asked for", "")
    for n_latents, n_samples, bar in sizes:
        seconds = in_a_fresh_process("--one", n_latents, n_samples)
        verdict = "" if bar is None else ("met" if seconds["first"] <= bar else "MISSED")
        table.add_row(
            str(n_latents),
            str(n_samples),
            f"{seconds['first']:.2f}",
            f"{seconds['later']:.2f}",
            "" if bar is None else f"<= {bar:g}",
            verdict,
        )
    console.print("Speed", table)


def parts(n_samples: int, console: Console) -> None:
    """Show what each part of a fit costs, and an iteration of the published algorithm."""
    from crlearn.data import make_multi_domain

    world = make_multi_domain(4, 100, n_samples, random_state=0)
    fit_time(world)
    own = median_time(world)
    table = Table("variant", "s", "ratio to default")
    for name, options in VARIANTS.items():
        seconds = median_time(world, **options)
        table.add_row(name, f"{seconds:.3f}", f"{seconds / own:.2f}")
    for structure, n in N_ITERATIONS.items():
        few, many = (
            median_time(world, method="EBCRL", structure=structure, max_iter=k) for k in (0, n)
        )
        each = (many - few) / n
        table.add_row(f"one iteration of EBCRL, {structure}", f"{each:.3f}", f"{each / own:.2f}")
        table.add_row("its 1,000 iterations", f"{1000 * each:.0f}", f"{1000 * each / own:.0f}")
    console.print(f"Parts, 4 latents, {n_samples} rows a domain", table)


def memory_of_full_scores(n_samples: int) -> dict[str, float]:
    """Return the largest memory of this process before and after FULL scores, in MB."""
    import resource

    from crlearn.data import make_multi_domain

    world: Any = make_multi_domain(4, 100, n_samples, random_state=0)
    known: dict[str, Any] = {"mixing": world.truth.mixing.matrix, "noise_variance": 2.0}
    peaks = {}
    for structure in ("graph", "full"):
        fit_time(world, method="EBCRL", structure=structure, **known)
        peaks[structure] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return peaks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smallest sizes only")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure_in_this_process(*arguments.one)))
        return
    if arguments.memory:
        print(json.dumps(memory_of_full_scores(arguments.memory)))
        return
    console = Console()
    speed(QUICK if arguments.quick else SIZES, console)
    n_samples = 200 if arguments.quick else 2000
    parts(n_samples, console)
    peaks = in_a_fresh_process("--memory", n_samples)
    console.print(
        f"Memory: {peaks['graph']:.0f} MB with the graph's scores, {peaks['full']:.0f} MB with FULL"
    )


if __name__ == "__main__":
    main()
