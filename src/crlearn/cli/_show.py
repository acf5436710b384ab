"""What the commands print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from crlearn.bench import Study
    from crlearn.data import Dataset
    from crlearn.metrics import Evaluation
    from crlearn.result import Result

_ENDLESS = 10_000  # a file or pipe has no width
_MARKS = {True: "holds", False: "fails", None: "untested"}


def say(text: str) -> None:
    """Print a line; user's strings are printed as they are."""
    _console().print(text, soft_wrap=True)


def say_error(text: str) -> None:
    """Print an error as one line."""
    _console(stderr=True).print(f"error: {' '.join(text.split())}", soft_wrap=True)


def say_warning(text: str) -> None:
    """Print a warning as one line."""
    _console(stderr=True).print(f"warning: {' '.join(text.split())}", soft_wrap=True)


def show_catalogue(entries: Mapping[str, str]) -> None:
    """Print names and what they stand for."""
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column()
    for name, meaning in entries.items():
        table.add_row(name, meaning)
    _console().print(table)


def describe(dataset: Dataset) -> str:
    """Return the size of a dataset in words."""
    parts = [f"{dataset.n_samples:,} rows", f"{dataset.n_features:,} features"]
    if dataset.environments:
        parts.append(f"{dataset.n_environments} environments")
    elif dataset.y is not None and dataset.y.ndim == 2:
        parts.append(f"an auxiliary vector of {dataset.y.shape[1]}")
    if dataset.covariates:
        parts.append(f"covariates {', '.join(dataset.covariates)}")
    if dataset.truth is not None:
        parts.append(f"{dataset.truth.n_latents} known latents")
    return ", ".join(parts)


def show_result(method: str, result: Result, files: Sequence[Path]) -> None:
    """Print how far a fit can be trusted, what it found and where it was written."""
    words = result.summary()
    show_verdict(result)
    say(f"guarantee: {words['guarantee']}")
    say(f"{method}: {result.n_latents} latents in {result.seconds:.1f} s on {result.device}")
    for part, said in words.items():
        if part not in ("verdict", "guarantee"):
            say(f"{part}: {said}")
    if result.checks:
        table = _table("check", "", "detail")
        for check in result.checks:
            table.add_row(check.name, _MARKS[check.passed], check.detail)
        _console().print(table)
    say(f"wrote {', '.join(str(file) for file in files)}")


def show_verdict(result: Result) -> None:
    """Print whether the assumptions hold, in red where they do not."""
    style = "bold red" if result.is_in_doubt else "bold green"
    _console().print(result.verdict, style=style, soft_wrap=True)
    for check in result.open_checks:
        _console().print(f"  {check}", style="red", soft_wrap=True)


def show_evaluation(evaluation: Evaluation) -> None:
    """Print metrics beside their chance levels."""
    table = _table("metric", "value", "chance", "perfect")
    for name, value in evaluation.items():
        levels = (value, evaluation.chance[name], evaluation.perfect[name])
        table.add_row(name, *map(_number, levels))
    _console().print(table)


def show_comparison(rows: Sequence[tuple[str, Evaluation, float]]) -> None:
    """Print several methods side by side: name, scores, seconds."""
    table = _table("method", "MCC", "chance", "R2", "seconds")
    for name, scores, seconds in rows:
        levels = (scores.get("mcc"), scores.chance.get("mcc"), scores.get("r2"))
        table.add_row(name, *map(_number, levels), f"{seconds:.1f}")
    _console().print(table)


def show_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of texts."""
    table = _table(*columns)
    for row in rows:
        table.add_row(*row)
    console = _console()
    if not console.is_terminal:
        console.width = _ENDLESS
    console.print(table)


def show_published(study: Study) -> None:
    """Print the values that a study is compared with."""
    if not study.published:
        say("no published values")
        return
    table = _table("published", "setting", "values")
    for cell in study.published:
        setting = ", ".join(f"{key}={value}" for key, value in cell.setting.items())
        values = ", ".join(
            f"{metric} {value:g}" + (f" ± {spread:g}" if spread is not None else "")
            for metric, (value, spread) in cell.values.items()
        )
        table.add_row(cell.method, setting, values)
    _console().print(table)


def show_json(value: Any) -> None:
    """Print JSON and nothing else, for other programs."""
    print(json.dumps(value, indent=2))


def _console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, show_header=bool(columns), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3f}"
