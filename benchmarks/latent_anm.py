"""Time of fits of latent additive noise models: one fit, and many restarts of several worlds.

- single: seconds of a fit with default settings, three latents in 40 segments of 1,000 rows. The
  first fit of a process also imports and compiles; the second does neither.
- worlds: seconds for five worlds with 16 restarts each, one after the other in one process: all
  restarts run side by side, and later worlds find the program of the first.
- program: seconds for as many worlds and restarts, all in one program, and the latents of the best
  restart of each world; restarts are not compared, and nothing is checked.

Other work on the machine makes times longer, so that they are upper bounds.

    python benchmarks/latent_anm.py
    python benchmarks/latent_anm.py --only worlds --restarts 16 --steps 2000
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Member(NamedTuple):
    """A restart, and the number of its world."""

    own: Any
    world: Any


@dataclass(frozen=True)
class ManyWorlds:
    """The objective of one world, of which each restart has its own; a batch has rows of all."""

    objective: Any

    def init(self, key: Any) -> Member:
        """Draw a restart of the first world."""
        import jax.numpy as jnp

        return Member(self.objective.init(key), jnp.asarray(0))

    def loss(self, params: Member, batch: Any, key: Any, progress: Any) -> Any:
        """Return the loss of the rows of the restart's world."""
        return self.objective.loss(params.own, batch[:, params.world], key, progress)

    def revise(self, params: Member, rows: Any, progress: float) -> Member | None:
        """Revise the order of a restart."""
        found = self.objective.revise(params.own, rows[:, int(params.world)], progress)
        return None if found is None else params._replace(own=found)


def seconds_in_one_program(n_worlds: int, n_restarts: int, n_steps: int) -> tuple[float, float]:
    """Return the seconds for all worlds and restarts, and the smallest MCC."""
    start = time.perf_counter()
    import equinox as eqx
    import jax
    import numpy as np

    from crlearn import config_context
    from crlearn.config import numerics
    from crlearn.data import make_latent_anm
    from crlearn.flows import SegmentObjective, leading_components
    from crlearn.methods.additive._auxiliary import Labels
    from crlearn.methods.additive._estimator import BATCH_SIZE, LEARNING_RATE
    from crlearn.methods.additive._latents import Segments, latents_of
    from crlearn.metrics import mcc
    from crlearn.train import Settings, train

    worlds: list[Any] = [make_latent_anm(3, random_state=seed) for seed in range(n_worlds)]
    inputs = [leading_components(world.X, 3)[0](world.X) for world in worlds]
    segments = [Segments.of(Labels(np.unique(world.y)), world.y) for world in worlds]
    parts = [part.split(x) for part, x in zip(segments, inputs, strict=True)]
    rows = np.moveaxis(np.array(parts), 2, 0).astype(np.float32)
    objective = SegmentObjective(3, (1000,) * rows.shape[2])
    numbers = np.repeat(np.arange(n_worlds), n_restarts)
    with config_context(progress=False), numerics():
        draw = eqx.filter_jit(objective.init)
        keys = jax.random.split(jax.random.key(0), len(numbers))
        starts = [Member(draw(key), number) for key, number in zip(keys, numbers, strict=True)]
        settings = Settings(
            max_epochs=n_steps * BATCH_SIZE // 900,
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            patience=None,
            n_restarts=len(starts),
            race=1.0,
        )
        found = train(
            ManyWorlds(objective), rows[:900], settings, seed=0, held_out=rows[900:], start=starts
        )
        members = (found.params, *found.runners_up)
        best = [next(m for m in members if m.world == world) for world in range(n_worlds)]
        latents = [
            latents_of(m.own, "nonlinear", x, part).Z
            for m, x, part in zip(best, inputs, segments, strict=True)
        ]
    seconds = time.perf_counter() - start
    return seconds, min(mcc(world.truth.Z, Z) for world, Z in zip(worlds, latents, strict=True))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of fits of latent additive noise models.")
    parser.add_argument("--only", choices=["single", "worlds", "program"])
    parser.add_argument("--worlds", type=int, default=5, help="number of worlds")
    parser.add_argument("--restarts", type=int, default=16, help="restarts of each of these")
    parser.add_argument("--steps", type=int, default=3000, help="steps of each restart")
    arguments = parser.parse_args()
    table = Table("what", "seconds", "smallest MCC", "device")
    if arguments.only in (None, "single"):
        seconds, score, device = seconds_of_fits([0, 0])
        shown = f"{seconds[0]:.0f}, then {seconds[1]:.0f}"
        table.add_row("single", shown, f"{score:.3f}", device)
    if arguments.only in (None, "worlds"):
        seconds, score, device = seconds_of_fits(
            list(range(arguments.worlds)),
            n_restarts=arguments.restarts,
            n_steps=arguments.steps,
        )
        table.add_row("worlds", f"{sum(seconds):.0f} in all", f"{score:.3f}", device)
    if arguments.only in (None, "program"):
        total, score = seconds_in_one_program(arguments.worlds, arguments.restarts, arguments.steps)
        table.add_row("program", f"{total:.0f}", f"{score:.3f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
