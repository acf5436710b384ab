"""How fast errors fall along a parameter of the world: slopes of log error on its logarithm."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crlearn.bench._execute import Record
from crlearn.bench._plan import Cell, Plan
from crlearn.metrics import METRICS

_ROUNDING = 1e-12  # an error below has no logarithm that means anything


@dataclass(frozen=True)
class Slope:
    """The power of a parameter that an error is proportional to.

    Attributes
    ----------
    mean
        Over the slopes of single seeds.
    error
        Its standard error over seeds; None for a single one.
    """

    mean: float
    error: float | None


def fit_slopes(
    plan: Plan, by_cell: Mapping[str, Sequence[Record]]
) -> dict[tuple[str, str, str], Slope]:
    """Return the slopes that a study asks for, by key and label of a cell and metric.

    Cells that differ in nothing but the parameter on whose logarithm errors are regressed have the
    same slopes. The error is the distance of a metric from perfect. Cells without a slope are left
    out: see `slope_of`.
    """
    if plan.study.slope is None:
        return {}
    along = plan.study.slope.along
    families: dict[str, list[Cell]] = defaultdict(list)
    for cell in plan.cells:
        families[_all_but(along, cell)].append(cell)
    slopes: dict[tuple[str, str, str], Slope] = {}
    for cells in families.values():
        for metric in plan.study.metrics:
            slope = slope_of(_errors(metric, along, cells, by_cell))
            if slope is not None:
                slopes |= {(cell.key, cell.label, metric): slope for cell in cells}
    return slopes


def slope_of(errors: Mapping[int, Mapping[float, float]]) -> Slope | None:
    """Fit a slope to the errors of each seed, given by place, and average over seeds.

    Seeds keep what is hard about a world at every place, so that slopes of single seeds vary less
    than errors do. Seeds that lack a place which others have are left out. There is no slope if
    there are fewer than two places, or if an error is 0, as those of graphs can be.
    """
    places = sorted({place for found in errors.values() for place in found})
    whole = [found for found in errors.values() if len(found) == len(places)]
    if len(places) < 2 or not whole:
        return None
    values = np.array([[found[place] for place in places] for found in whole])
    if values.min() < _ROUNDING:
        return None
    x = np.log(places) - np.log(places).mean()
    slopes = np.log(values) @ x / (x @ x)
    spread = slopes.std(ddof=1) / np.sqrt(len(slopes)) if len(slopes) > 1 else None
    return Slope(float(slopes.mean()), None if spread is None else float(spread))


def _errors(
    metric: str, along: str, cells: Sequence[Cell], by_cell: Mapping[str, Sequence[Record]]
) -> dict[int, dict[float, float]]:
    perfect = METRICS[metric].perfect
    errors: dict[int, dict[float, float]] = defaultdict(dict)
    for cell in cells:
        for record in by_cell.get(cell.key, ()):
            if perfect is not None and record.is_done and metric in record.metrics:
                place = cell.world_parameters[along]
                errors[record.seed][place] = abs(record.metrics[metric] - perfect)
    return errors


def _all_but(along: str, cell: Cell) -> str:
    """Return a text that is the same for cells which differ in this parameter alone."""
    world = {name: value for name, value in cell.world_parameters.items() if name != along}
    return json.dumps(
        [cell.label, world, cell.scores, cell.signal_to_error], sort_keys=True, default=str
    )
