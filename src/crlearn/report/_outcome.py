"""What a sweep has found so far, arranged for tables and figures."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crlearn.bench import ComparisonTable, Line, Record, Row, Study, Sweep, Value

SECONDS = "seconds"


@dataclass(frozen=True)
class Mark:
    """One method in one setting by one metric: ours over seeds, the paper's value, or both.

    Attributes
    ----------
    setting, method, metric
        What it is about.
    ours
        Mean and standard deviation.
    n, seeds
        Number of runs behind them; seed and value of each run whose record is there.
    paper
        Published value and spread.
    chance
        What a random rotation scores, if that means anything.
    """

    setting: Mapping[str, Any]
    method: str
    metric: str
    ours: Value
    n: int
    seeds: Sequence[tuple[int, float]]
    paper: Value
    chance: float | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """A sweep with its records, its summary and the paper's values.

    Attributes
    ----------
    sweep
        Study, profile and number of seeds.
    records, rows
        One for each run, and one for each cell and metric.
    left
        Number of runs that have not been tried.
    """

    sweep: Sweep
    records: Sequence[Record]
    rows: Sequence[Row]
    left: int

    @classmethod
    def of(cls, sweep: Sweep) -> Outcome:
        """Read what is there now; a summary need not have been written."""
        from crlearn.bench import summarise

        records = sweep.records()
        if not sweep.is_of_this_code:  # its keys differ from ours: its own summary holds
            n_planned = len(sweep.plan.cells) * sweep.seeds
            return cls(sweep, records, sweep.summary(), max(0, n_planned - len(records)))
        tried = {record.key for record in records}
        left = sum(run.key not in tried for run in sweep.plan.runs())
        return cls(sweep, records, summarise(sweep.plan, records), left)

    @property
    def study(self) -> Study:
        """The study."""
        return self.sweep.study

    @property
    def done(self) -> list[Record]:
        """The runs that gave a result."""
        return [record for record in self.records if record.is_done]

    @property
    def failures(self) -> list[Record]:
        """The runs that failed or diverged."""
        return [record for record in self.records if not record.is_done]

    @cached_property
    def table(self) -> ComparisonTable:
        """Paper and ours side by side."""
        from crlearn.bench import compare

        return compare(self.study, self.rows)

    @cached_property
    def settings(self) -> list[Mapping[str, Any]]:
        """The settings with results, reduced to what differs between them."""
        distinct = {key_of(line.setting): self.varied(line.setting) for line in self.table.lines}
        return list(distinct.values())

    def varied(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of a setting differs from other settings."""
        return {axis: setting.get(axis) for axis in self.table.axes}

    @cached_property
    def marks(self) -> list[Mark]:
        """All marks in the order of the study; the times to fit are those of "seconds"."""
        runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in self.done:
            runs[key_of(record.setting), record.method].append(record)
        rows = {(key_of(row.setting), row.method, row.metric): row for row in self.rows}
        marks: list[Mark] = []
        for line in self.table.lines:
            ours = [
                mark
                for method in self.table.methods
                if (mark := self._mark(line, method, rows, runs)) is not None
            ]
            marks += [*ours, *self._paper_alone(line, ours)]
        return marks

    @cached_property
    def methods(self) -> list[str]:
        """Our methods, then those of which there are published values only."""
        return list(dict.fromkeys([*self.table.methods, *(mark.method for mark in self.marks)]))

    def _mark(
        self,
        line: Line,
        method: str,
        rows: Mapping[tuple[str, str, str], Row],
        runs: Mapping[tuple[str, str], Sequence[Record]],
    ) -> Mark | None:
        from crlearn.bench import Value

        key = key_of(line.setting)
        own = runs.get((key, method), ())
        ours, paper = line.ours[method], self.study.paper(line.setting, method, line.metric)
        if line.metric == SECONDS:
            seeds = [(run.seed, run.seconds) for run in own if run.seconds is not None]
            spread = statistics.stdev(s for _, s in seeds) if len(seeds) > 1 else None
            ours, n = Value(ours.mean, spread), len(seeds)
            if ours.mean is None and paper[0] is None:
                return None
        else:
            row = rows.get((key, method, line.metric))
            if row is None:
                return None  # the method does not have this metric, or not this setting
            # Some metrics, such as the gap to a competing structure, do not exist in every run.
            seeds = [
                (run.seed, run.metrics[line.metric]) for run in own if line.metric in run.metrics
            ]
            n = row.n
        return Mark(
            line.setting, method, line.metric, ours, n, seeds, Value(*paper), line.chance.mean
        )

    def _paper_alone(self, line: Line, ours: Sequence[Mark]) -> Iterator[Mark]:
        """Yield the published values that stand beside none of ours."""
        from crlearn.bench import Value

        for cell in self.study.published:
            if not cell.fits(line.setting) or line.metric not in cell.values:
                continue
            value, spread = cell.values[line.metric]
            if any(
                cell.is_about(line.setting, mark.method) and mark.paper.mean == value
                for mark in ours
            ):
                continue
            paper = Value(value, spread)
            yield Mark(
                line.setting, cell.method, line.metric, Value(), 0, (), paper, line.chance.mean
            )


def key_of(setting: Mapping[str, Any]) -> str:
    """Return a text by which equal settings can be found."""
    return json.dumps(setting, sort_keys=True, default=str)
