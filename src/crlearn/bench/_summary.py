"""The summary of a sweep: one row for each cell and metric, with the paper's value beside it."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from crlearn.bench._execute import Record
from crlearn.bench._plan import Cell, Plan
from crlearn.bench._slope import Slope, fit_slopes
from crlearn.exceptions import CorruptFileError
from crlearn.metrics import METRICS
from crlearn.persist import plain


@dataclass(frozen=True)
class Row:
    """A row of ``summary.json``.

    Attributes
    ----------
    study, setting, method, metric
        Which cell, and what was measured.
    mean, sd, n
        Over the runs that gave the metric; the standard deviation has n - 1 below.
    lower_quartile, median, upper_quartile
        Of these runs; None for fewer than two.
    slope, slope_error
        Of the logarithm of the distance from perfect on that of the parameter which the study
        names: mean over seeds and its standard error. The same in all settings that differ in that
        parameter alone.
    paper, paper_spread
        The published value, if there is one for this method in this setting.
    chance
        What a random rotation of whitened latents scores, or None where that means nothing.
    seconds
        Mean time to fit.
    failed
        Number of runs of the cell that failed or diverged.
    """

    study: str
    setting: Mapping[str, Any]
    method: str
    metric: str
    mean: float | None
    sd: float | None
    n: int
    paper: float | None
    seconds: float | None
    paper_spread: float | None = None
    chance: float | None = None
    failed: int = 0
    lower_quartile: float | None = None
    median: float | None = None
    upper_quartile: float | None = None
    slope: float | None = None
    slope_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row in terms of JSON."""
        return plain(asdict(self))


def summarise(plan: Plan, records: Iterable[Record]) -> list[Row]:
    """Average over seeds, cell by cell in the order of the study."""
    by_cell: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_cell[record.cell].append(record)
    slopes = fit_slopes(plan, by_cell)
    return [
        row
        for cell in plan.cells
        if cell.key in by_cell
        for row in _rows(
            plan, cell, sorted(by_cell[cell.key], key=lambda record: record.seed), slopes
        )
    ]


def _rows(
    plan: Plan,
    cell: Cell,
    records: Sequence[Record],
    slopes: Mapping[tuple[str, str, str], Slope],
) -> Iterable[Row]:
    done = [record for record in records if record.is_done]
    times = [record.seconds for record in done if record.seconds is not None]
    for metric in plan.study.metrics:
        measured = [record for record in done if metric in record.metrics]
        if done and not measured:
            continue  # the method does not have it
        values = [record.metrics[metric] for record in measured]
        chances = [record.chance.get(metric) for record in measured]
        paper, spread = plan.study.paper(cell.setting, cell.label, metric)
        lower, median, upper = _quartiles(values)
        slope = slopes.get((cell.key, cell.label, metric))
        yield Row(
            study=plan.study.name,
            setting=plain(cell.setting),
            method=cell.label,
            metric=metric,
            mean=_mean(values),
            sd=statistics.stdev(values) if len(values) > 1 else None,
            n=len(values),
            paper=paper,
            paper_spread=spread,
            chance=_mean([chance for chance in chances if chance is not None]),
            seconds=_mean(times),
            failed=len(records) - len(done),
            lower_quartile=lower,
            median=median,
            upper_quartile=upper,
            slope=slope.mean if slope else None,
            slope_error=slope.error if slope else None,
        )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _quartiles(values: Sequence[float]) -> list[float] | list[None]:
    several = len(values) > 1
    return statistics.quantiles(values, n=4, method="inclusive") if several else [None] * 3


def read_summary(path: str | Path) -> list[Row]:
    """Read the rows of a ``summary.json``."""
    try:
        return [Row(**row) for row in json.loads(Path(path).read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise CorruptFileError(f"'{path}' is not a summary of crlearn bench: {error}.") from error


def summary_schema() -> dict[str, Any]:
    """Return the JSON schema of ``summary.json``, with the names of all metrics."""
    text = (files("crlearn.bench") / "summary.schema.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    schema["items"]["properties"]["metric"]["enum"] = list(METRICS)
    return schema
