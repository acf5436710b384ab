"""Time of fits of latent additive noise models: one fit, and many restarts of several worlds.

- single: seconds of a fit with default settings, three latents in 40 segments of 1,000 rows. The
  first fit of a process also imports and compiles; the second does neither.
- worlds: seconds for five worlds with 16 restarts each, one after the other in one process: all
  restarts run side by side, and later worlds find the program of the first.

Other work on the machine makes times longer, so that they are upper bounds.

    python benchmarks/latent_anm.py
    python benchmarks/latent_anm.py --only worlds --restarts 16 --steps 2000
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

from rich.console import Console
from rich.table import Table

# crlearn is imported inside the function: its import is part of what is measured.


def seconds_of_fits(seeds: list[int], **options: Any) -> tuple[list[float], float, str]:
    """Return the seconds of each fit, the smallest MCC, and the device."""
    start = time.perf_counter()
    from crlearn import LatentANM, config_context
    from crlearn.data import make_latent_anm
    from crlearn.metrics import evaluate

    seconds, scores, device = [], [], "unknown"
    with warnings.catch_warnings(), config_context(progress=False):
        warnings.simplefilter("ignore")
        for seed in seeds:
            world = make_latent_anm(3, random_state=seed)
            model = LatentANM(random_state=seed, **options).fit(world.X, world.y)
            seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
            scores.append(evaluate(model, world, ["mcc"])["mcc"])
            device = model.result_.device
    return seconds, min(scores), device


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of fits of latent additive noise models.")
    parser.add_argument("--only", choices=["single", "worlds"])
    parser.add_argument("--worlds", type=int, default=5, help="number of worlds")
    parser.add_argument("--restarts", type=int, default=16, help="restarts of each of these")
    parser.add_argument("--steps", type=int, default=3000, help="steps of each restart")
    arguments = parser.parse_args()
    table = Table("what", "seconds", "smallest MCC", "device")
    if arguments.only != "worlds":
        seconds, score, device = seconds_of_fits([0, 0])
        shown = f"{seconds[0]:.0f}, then {seconds[1]:.0f}"
        table.add_row("single", shown, f"{score:.3f}", device)
    if arguments.only != "single":
        seconds, score, device = seconds_of_fits(
            list(range(arguments.worlds)),
            n_restarts=arguments.restarts,
            n_steps=arguments.steps,
        )
        table.add_row("worlds", f"{sum(seconds):.0f} in all", f"{score:.3f}", device)
    Console().print(table)


if __name__ == "__main__":
    main()
