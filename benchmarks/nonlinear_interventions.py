"""Time of fits behind a smooth mixing: one fit, and many worlds side by side.

- single: seconds of a fit with two restarts, five latents in eleven environments of 10,000 rows.
  The first fit of a process also imports and compiles; the second does neither.
- worlds: seconds from the start of the processes to the end of the last fit, for ten worlds with
  five restarts each, in five processes: a second world finds the program of the first. On a GPU,
  processes share it.

Other work on the machine makes times longer, so that they are upper bounds.

    python benchmarks/nonlinear_interventions.py
    python benchmarks/nonlinear_interventions.py --only worlds --worlds 4 --processes 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import warnings

from rich.console import Console
from rich.table import Table

# crlearn is imported inside functions: its import is part of what is measured.

N_LATENTS = 5
N_ROWS = 10_000


def seconds_of_fits(seed: int, n_restarts: int, n_fits: int) -> tuple[list[float], float, str]:
    """Return the seconds of each fit to one world, the MCC of the last, and the device."""
    # Several processes share a GPU: none may take all of its memory beforehand.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    start = time.perf_counter()
    from crlearn import NonlinearInterventionCRL, config_context
    from crlearn.data import make_coupled_interventional
    from crlearn.metrics import evaluate

    world = make_coupled_interventional(
        N_LATENTS,
        N_LATENTS,
        N_ROWS,
        mechanism="quadratic",
        mixing="smooth",
        mixing_gain=1.0,
        random_state=seed,
    )
    seconds = []
    model = NonlinearInterventionCRL(n_restarts=n_restarts, random_state=seed)
    with warnings.catch_warnings(), config_context(progress=False):
        warnings.simplefilter("ignore")
        for _ in range(n_fits):
            model.fit(world.X, world.y)
            seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
    mcc = evaluate(model, world.environment(0), ["mcc"])["mcc"]
    return seconds, mcc, model.result_.device or "unknown"


def many_worlds(n_worlds: int, n_restarts: int, n_processes: int) -> tuple[float, list[float], str]:
    """Return the seconds until the last world is done, the MCC of each, and the device."""
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(n_processes) as pool:
        tasks = [(seed, n_restarts, 1) for seed in range(n_worlds)]
        outcomes = pool.starmap(seconds_of_fits, tasks, chunksize=1)
        seconds = time.perf_counter() - start
    return seconds, [mcc for _, mcc, _ in outcomes], outcomes[0][2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of fits behind a smooth mixing.")
    parser.add_argument("--only", choices=["single", "worlds"])
    parser.add_argument("--worlds", type=int, default=10, help="number of worlds")
    parser.add_argument("--processes", type=int, default=5, help="among which they are shared out")
    parser.add_argument("--restarts", type=int, default=5, help="restarts of each of these")
    arguments = parser.parse_args()
    table = Table("what", "seconds", "smallest MCC", "device")
    if arguments.only != "worlds":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            (first, second), mcc, device = pool.apply(seconds_of_fits, (0, 2, 2))
        table.add_row("one fit, 2 restarts, with imports and compilation", f"{first:.0f}", "", "")
        table.add_row("the same again in the process", f"{second:.0f}", f"{mcc:.3f}", device)
    if arguments.only != "single":
        seconds, mccs, device = many_worlds(
            arguments.worlds, arguments.restarts, arguments.processes
        )
        what = f"{arguments.worlds} worlds, {arguments.restarts} restarts each"
        table.add_row(what, f"{seconds:.0f}", f"{min(mccs):.3f}", device)
    Console().print(table)


if __name__ == "__main__":
    main()
