"""Time of EmpiricalBayesCRL, beside what is asked of it and beside the published algorithm.

- speed: seconds of a fit at the paper's size and with 20 latents, in a fresh process each, so that
  imports and first calls are told apart; the median of three later fits beside them.
- parts: the same fit without denoising, with cheaper terms, and with the whole graph.
- iterations: what one iteration of the published EM costs, as a ratio to a whole fit of ours in
  the same process.

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
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

REPEATS = 3
# Latents, rows in each domain, seconds that a fit may take.
Sizes = list[tuple[int, int, float | None]]
SIZES: Sizes = [(4, 200, 1.0), (4, 2000, 1.0), (10, 2000, None), (20, 2000, 10.0)]
QUICK: Sizes = [(4, 200, 1.0)]
N_ITERATIONS = 10
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no denoising": {"shrinkage": 0.0},
    "sums": {"interactions": "sums"},
    "empty graph": {"structure": "empty"},
    "full graph": {"structure": "full"},
}


def fit_time(world: Any, **options: Any) -> float:
    """Return the seconds of one fit."""
    from crlearn import EmpiricalBayesCRL

    model = EmpiricalBayesCRL(
        graph=world.truth.graph, targets=world.known_targets, random_state=0, **options
    )
    start = time.perf_counter()
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


def in_a_fresh_process(n_latents: int, n_samples: int) -> dict[str, float]:
    """Measure where nothing has been imported."""
    command = [sys.executable, __file__, "--one", str(n_latents), str(n_samples)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def speed(sizes: Sizes, console: Console) -> None:
    """Show the seconds of fits."""
    table = Table("latents", "rows a domain", "first fit, s", "later, s", "asked for", "")
    for n_latents, n_samples, bar in sizes:
        seconds = in_a_fresh_process(n_latents, n_samples)
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
    few, many = (
        median_time(world, estimator="paper", max_iter=n, ridge=1e-4) for n in (0, N_ITERATIONS)
    )
    each = (many - few) / N_ITERATIONS
    table.add_row("one iteration of the paper's EM", f"{each:.3f}", f"{each / own:.2f}")
    table.add_row("the paper's 1,000 iterations", f"{1000 * each:.0f}", f"{1000 * each / own:.0f}")
    console.print(f"Parts, 4 latents, {n_samples} rows a domain", table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smallest sizes only")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure_in_this_process(*arguments.one)))
        return
    console = Console()
    speed(QUICK if arguments.quick else SIZES, console)
    parts(200 if arguments.quick else 2000, console)


if __name__ == "__main__":
    main()
