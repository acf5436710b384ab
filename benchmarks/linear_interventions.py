"""Time and memory of fits behind a linear mixing, beside what is asked of them.

- speed: seconds of a fit at the sizes of the papers' tables. The first fit is told apart, as it
  pays for imports and compilation; the others are the median of three.
- noise: seconds of a fit behind measurement noise, beside those of the same latents without it.
- growth: seconds of a fit as latents, features or rows become many, with a fitted exponent.
- memory: the peak of a process that fits, in total and above what it held before.
- dag: seconds of `closest_dag` for 30 nodes, and how close to the optimum its search comes where
  the optimum can be computed.

Every fit has a process of its own, so that none finds what another has imported or compiled; after
ten minutes it is given up. Other work on the machine makes times longer, so that they are upper
bounds; beside them stands the time that the fit itself used on all processors.

    python benchmarks/linear_interventions.py
    python benchmarks/linear_interventions.py --only speed --json speed.json
    python benchmarks/linear_interventions.py --quick
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

# crlearn is imported inside functions: its import is part of what is measured, and a process
# inherits the peak memory of the one that starts it.

REPEATS = 3
LONG = 20.0  # seconds after which a fit is not repeated
LIMIT = 600.0  # seconds after which it is given up
MEMORY_BAR = 1.0  # GB
DAG_BAR = 1.0  # seconds
NOISE_BAR = 1.5  # times as long as without noise
N_GRAPHS = 5
GIVEN_UP = {"first": np.inf, "seconds": np.inf, "processors": np.inf, "mechanisms": "given up"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """A world and the method that is fitted to it."""

    name: str
    world: str
    options: Mapping[str, Any]
    method: str = "LinearInterventionCRL"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bar: float | None = None


def single_node(
    name: str, n: int, d: int, rows: int, bar: float | None = None, **options: Any
) -> Fit:
    """One intervention for each latent."""
    sizes = {"n_latents": n, "n_features": d, "n_samples": rows, **options}
    parameters = {"n_latents": n, "interventions": options.get("intervention", "hard")}
    return Fit(name, "linear-interventional", sizes, "LinearInterventionCRL", parameters, bar)


def table7(n: int, d: int, rows: int, bar: float) -> Fit:
    name = f"Table 7: n = {n}, d = {d}, {n + 1} x {rows:,} rows, linear, soft"
    return single_node(name, n, d, rows, bar, intervention="soft", variance_factor=0.25)


def table6(n: int, d: int, rows: int, bar: float) -> Fit:
    name = f"Table 6: n = {n}, d = {d}, {n + 1} x {rows:,} rows, MLP, hard"
    return single_node(name, n, d, rows, bar, mechanism="mlp", variance_factor=5.0)


def nonlinear(mechanism: str, factor: float, noise: str, bar: float) -> Fit:
    """Five latents with nonlinear mechanisms, 20,000 rows of each environment."""
    name = f"n = 5, d = 20, 6 x 20,000 rows, {mechanism}, factor {factor}, {noise} noise"
    options = {"mechanism": mechanism, "variance_factor": factor, "noise": noise}
    return single_node(name, 5, 20, 20_000, bar, **options)


def measured(n: int, share: float, rows: int) -> Fit:
    """Linear mechanisms behind measurement noise of so many standard deviations of X."""
    name = f"n = {n}, d = 100, {n + 1} x {rows:,} rows, noise of {share:.0%}"
    sizes = {"n_latents": n, "n_features": 100, "n_samples": rows, "variance_factor": 5.0}
    options = {**sizes, "kind": "single-node", "share": share}
    return Fit(name, "noisy-interventional", options, parameters={"n_latents": n})


def without_noise(fit: Fit) -> Fit:
    """Return the fit to the same latents as they are."""
    options = {name: value for name, value in fit.options.items() if name not in ("kind", "share")}
    return replace(fit, world="linear-interventional", options=options)


def multi_node(n: int, rows: int, bar: float | None) -> Fit:
    name = f"multi-node: n = {n}, d = {2 * n}, {n + 1} x {rows:,} rows, linear, hard"
    sizes = {"n_latents": n, "n_features": 2 * n, "n_samples": rows}
    options = {**sizes, "target_sets": "general"}
    return Fit(name, "multi-node", options, "MultiNodeCRL", {"interventions": "hard"}, bar)


def speed_fits(quick: bool) -> list[Fit]:
    if quick:
        return [table7(3, 10, 500, 0.5), table6(3, 10, 500, 30.0), multi_node(3, 500, 0.5)]
    bars = {5_000: 0.5, 50_000: 2.0}
    return [
        *(table7(n, 100, rows, bar) for n in (5, 8) for rows, bar in bars.items()),
        table6(5, 100, 50_000, 30.0),
        *(
            nonlinear(mechanism, factor, noise, bar)
            for mechanism, factor in (("quadratic", 0.25), ("mlp", 5.0))
            for noise, bar in (("gaussian", 15.0), ("laplace", 40.0))
        ),
        *(multi_node(n, 20_000, bar) for n, bar in ((5, 0.5), (8, 1.0), (12, None), (20, 60.0))),
    ]


def growth_fits(quick: bool) -> dict[str, dict[int, Fit]]:
    """Fits by what grows and how large it is: linear latents, hard interventions."""
    latents = (3, 4) if quick else (5, 10, 20, 30)
    features = (10, 20) if quick else (20, 100, 500, 2000)
    rows = (300, 600) if quick else (10_000, 100_000, 1_000_000)
    n, fixed = (3, 300) if quick else (5, 5_000)
    d = 10 if quick else 20
    return {
        "latents": {k: single_node(f"d = 2n, {fixed:,} rows", k, 2 * k, fixed) for k in latents},
        "features": {k: single_node(f"n = {n}, {fixed:,} rows", n, k, fixed) for k in features},
        "rows": {k: single_node(f"n = {n}, d = {d}", n, d, k) for k in rows},
    }


# In a process of its own


def alone(job: Callable[..., Row | None], *arguments: Any) -> Row | None:
    """Run a job in a new process and return what it returns, or None if it takes too long."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(there, job, *arguments), daemon=True)
    process.start()
    there.close()  # so that a process that dies ends the wait
    try:
        return here.recv() if here.poll(LIMIT) else None
    except EOFError:
        raise RuntimeError(f"The process of {job.__name__} died.") from None
    finally:
        process.terminate()
        process.join()


def answer(there: Connection, job: Callable[..., Row | None], *arguments: Any) -> None:
    there.send(job(*arguments))


def draw(fit: Fit) -> tuple[NDArray[np.floating], NDArray[Any]]:
    from crlearn.data import WORLDS

    world = WORLDS[fit.world](**fit.options, random_state=0)
    assert world.y is not None
    return world.X, world.y


def seconds_of(model: Any, X: NDArray[np.floating], y: NDArray[Any]) -> tuple[float, float]:
    """Seconds of a fit by the clock, and those of all processors."""
    start, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.perf_counter() - start, time.process_time() - used


def time_fit(fit: Fit) -> Row:
    """Time the first fit, with imports, and later ones."""
    start = time.perf_counter()
    method = method_of(fit)
    imports = time.perf_counter() - start
    from crlearn.exceptions import IdentifiabilityError

    X, y = draw(fit)
    model = method(**fit.parameters, random_state=0)
    try:
        first = seconds_of(model, X, y)
    except IdentifiabilityError as error:
        return {**GIVEN_UP, "mechanisms": f"failed: {error}"[:60]}
    later = [seconds_of(model, X, y) for _ in range(REPEATS)] if first[0] < LONG else [first]
    seconds, processors = np.median(later, axis=0).tolist()
    return {
        "first": imports + first[0],
        "seconds": seconds,
        "processors": processors,
        "mechanisms": model.result_.details.get("mechanisms"),
    }


def method_of(fit: Fit) -> Any:
    from crlearn.methods import ESTIMATORS

    return ESTIMATORS[fit.method]


def store_world(fit: Fit, folder: Path) -> None:
    X, y = draw(fit)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)


def peak_of_fit(fit: Fit, folder: Path) -> Row:
    """Return peaks in GB: of the data, before the fit, and with it."""
    model = method_of(fit)(**fit.parameters, random_state=0)
    # Drawing a world needs more memory than holding it, which would hide the fit's own peak.
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    some = slice(None, None, 50)
    seconds_of(model, X[some], y[some])  # what is imported and compiled on first use
    before = peak()
    seconds_of(model, X, y)
    return {"data": X.nbytes / 1e9, "before": before, "total": peak(), "above": peak() - before}


def peak() -> float:
    """Peak memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


# Sections


def speed(quick: bool) -> list[Row]:
    rows = []
    for fit in speed_fits(quick):
        found = alone(time_fit, fit) or GIVEN_UP
        rows.append({"fit": fit.name, **found, "bar": fit.bar, **judged(found["seconds"], fit.bar)})
    return rows


def noise(quick: bool) -> list[Row]:
    fits = [measured(2, 0.2, 400)] if quick else [measured(n, 0.2, 5_000) for n in (5, 8)]
    fits += [] if quick else [measured(n, 0.5, 5_000) for n in (5, 8)]
    rows = []
    for fit in fits:
        behind, plain = (alone(time_fit, each) or GIVEN_UP for each in (fit, without_noise(fit)))
        ratio = behind["processors"] / plain["processors"]
        rows.append(
            {
                "fit": fit.name,
                "processors": behind["processors"],
                "without noise": plain["processors"],
                "ratio": ratio,
                "bar": NOISE_BAR,
                **judged(ratio, NOISE_BAR),
            }
        )
    return rows


def growth(quick: bool) -> list[Row]:
    rows: list[Row] = []
    for grows, fits in growth_fits(quick).items():
        times = {size: alone(time_fit, fit) or GIVEN_UP for size, fit in fits.items()}
        rows += [
            {
                "grows": grows,
                "size": size,
                "with": fits[size].name,
                "seconds": found["seconds"],
                "processors": found["processors"],
                "mechanisms": found["mechanisms"],
            }
            for size, found in times.items()
        ]
        known = [
            (size, found["processors"])
            for size, found in times.items()
            if np.isfinite(found["processors"])
        ]
        rows[-1]["exponent"] = exponent(known)
        rows[-1]["of the last two"] = exponent(known[-2:])
    return rows


def exponent(known: Sequence[tuple[int, float]]) -> float | None:
    """Return the slope of log seconds over log size."""
    if len(known) < 2:
        return None
    sizes, seconds = np.log(known).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def memory(quick: bool) -> list[Row]:
    n, d, rows = (3, 20, 1_000) if quick else (5, 100, 50_000)
    found = []
    for mechanism in ("linear", "mlp"):
        name = f"n = {n}, d = {d}, {n + 1} x {rows:,} rows, {mechanism}"
        fit = single_node(name, n, d, rows, mechanism=mechanism, variance_factor=5.0)
        with tempfile.TemporaryDirectory() as folder:
            alone(store_world, fit, Path(folder))
            peaks = alone(peak_of_fit, fit, Path(folder))
        if peaks is None:
            continue
        found.append(
            {"fit": name, **peaks, "bar": MEMORY_BAR, **judged(peaks["total"], MEMORY_BAR)}
        )
    return found


def dag(quick: bool) -> list[Row]:
    from crlearn.graph import closest_dag

    n = 20 if quick else 30
    closest_dag(noisy(0, 4))
    rows = []
    for name, make in {"noisy and dense": noisy, "nearly acyclic": nearly_acyclic}.items():
        times = [seconds_to_order(make(seed, n)) for seed in range(N_GRAPHS)]
        longest, processors = np.max(times, axis=0).tolist()
        rows.append(
            {
                "weights": name,
                "nodes": n,
                "longest": longest,
                "processors": processors,
                "bar": DAG_BAR,
                **judged(longest, DAG_BAR),
                "share of the optimum": worst_share(make, 10 if quick else 18),
            }
        )
    return rows


def noisy(seed: int, n: int) -> NDArray[np.floating]:
    return np.random.default_rng(seed).random((n, n))


def nearly_acyclic(seed: int, n: int) -> NDArray[np.floating]:
    """A strong acyclic graph in a hidden order, and weak edges everywhere."""
    rng = np.random.default_rng(seed)
    strong = np.triu(rng.random((n, n)) < 0.5, k=1) * rng.uniform(0.5, 1.5, size=(n, n))
    shuffle = rng.permutation(n)
    return (strong + 0.1 * rng.random((n, n)))[np.ix_(shuffle, shuffle)]


def seconds_to_order(weights: NDArray[np.floating]) -> tuple[float, float]:
    from crlearn.graph import closest_dag

    start, used = time.perf_counter(), time.process_time()
    closest_dag(weights)
    return time.perf_counter() - start, time.process_time() - used


def worst_share(make: Callable[[int, int], NDArray[np.floating]], n: int) -> float:
    """Return the least share of the optimum that the search for large graphs keeps."""
    from crlearn.graph._closest import exact_order, kept_weight, local_search_order

    graphs = [make(seed, n) * (1 - np.eye(n)) for seed in range(N_GRAPHS)]
    return min(
        kept_weight(weights, local_search_order(weights))
        / kept_weight(weights, exact_order(weights))
        for weights in graphs
    )


def judged(value: float, bar: float | None) -> Row:
    return {"within": None if bar is None else value <= bar}


# What is printed

SECTIONS: dict[str, Callable[[bool], list[Row]]] = {
    "speed": speed,
    "noise": noise,
    "growth": growth,
    "memory": memory,
    "dag": dag,
}
UNITS = {
    "speed": "seconds",
    "noise": "seconds",
    "growth": "seconds",
    "memory": "GB",
    "dag": "seconds",
}


def show(console: Console, section: str, rows: Iterable[Row]) -> None:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        is_text = any(isinstance(row.get(name), str | bool) for row in rows)
        table.add_column(name, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*(in_words(row.get(name)) for name in columns))
    console.print(f"{section}, in {UNITS[section]}", style="bold")
    console.print(table)
    console.print()


def in_words(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if value == np.inf:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return value if isinstance(value, str) else f"{value:,}"


def finite(value: Any) -> Any:
    """Return what JSON can hold: None for a fit that was given up."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if value == np.inf else value


def machine() -> Row:
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {"cores": os.cpu_count(), **threads, "python": sys.version.split()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of fits behind a linear mixing.")
    parser.add_argument("--only", choices=SECTIONS, help="measure one section")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--json", type=Path, help="file to write the numbers to")
    options = parser.parse_args()

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    found: dict[str, Any] = {"machine": machine()}
    console.print(", ".join(f"{name}: {value}" for name, value in found["machine"].items()))
    for section in [options.only] if options.only else SECTIONS:
        found[section] = SECTIONS[section](options.quick)
        show(console, section, found[section])
        if options.json:
            options.json.write_text(json.dumps(finite(found), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
