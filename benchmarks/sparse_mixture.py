"""Time of fits of latents that switch off.

- hyperplanes: seconds and accuracy of ``mixing="affine"`` on features that are exactly affine in
  the latents, for numbers of latents up to 100; and with noise of a twentieth of the variance.
- flow: seconds of a fit with default settings, ten latents behind ten layers, 40,000 rows. The
  first fit of a process also imports and compiles.

Other work on the machine makes times longer, so that they are upper bounds.

    python benchmarks/sparse_mixture.py
    python benchmarks/sparse_mixture.py --only hyperplanes --latents 10 50 100
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, cast

from rich.console import Console
from rich.table import Table

# crlearn is imported inside the function: its import is part of what is measured.


def seconds_of_fit(
    n_latents: int, *, active: str, noise: float = 0.0, **options: Any
) -> tuple[float, float]:
    """Return the seconds of a fit, and its MCC; noise is relative to features of variance one."""
    start = time.perf_counter()
    import numpy as np

    from crlearn import SparseMixtureCRL, config_context
    from crlearn.data import make_sparse_mixture
    from crlearn.flows import white
    from crlearn.metrics import mcc

    affine = options.get("mixing") == "affine"
    layers: Any = {"n_layers": 1, "slope": 1.0} if affine else {"n_layers": 10}
    n_samples = 20_000 if affine else 40_000
    imported = time.perf_counter() - start
    world: Any = make_sparse_mixture(
        n_latents, n_samples=n_samples, active=cast(Any, active), **layers, random_state=0
    )
    X = white(world.X)[0](world.X)
    X = X + noise * np.random.default_rng(0).standard_normal(X.shape)
    start = time.perf_counter()
    with warnings.catch_warnings(), config_context(progress=False):
        warnings.simplefilter("ignore")
        model = SparseMixtureCRL(random_state=0, **options).fit(X)
    seconds = imported + time.perf_counter() - start
    return seconds, mcc(world.truth.Z, model.transform(X))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of fits of latents that switch off.")
    parser.add_argument("--only", choices=["hyperplanes", "flow"])
    parser.add_argument("--latents", type=int, nargs="+", default=[5, 10, 20, 50, 100])
    arguments = parser.parse_args()
    table = Table("what", "latents", "on", "noise", "seconds", "MCC")
    if arguments.only in (None, "hyperplanes"):
        for n in arguments.latents:
            for active in ("one", "half", "three_quarters"):
                seconds, score = seconds_of_fit(n, active=active, mixing="affine")
                table.add_row("hyperplanes", f"{n}", active, "0", f"{seconds:.1f}", f"{score:.4f}")
            seconds, score = seconds_of_fit(n, active="half", noise=0.05**0.5, mixing="affine")
            table.add_row("hyperplanes", f"{n}", "half", "5%", f"{seconds:.1f}", f"{score:.4f}")
    if arguments.only in (None, "flow"):
        for _ in range(2):
            seconds, score = seconds_of_fit(10, active="half")
            table.add_row("flow", "10", "half", "0", f"{seconds:.0f}", f"{score:.4f}")
    Console().print(table)


if __name__ == "__main__":
    main()
