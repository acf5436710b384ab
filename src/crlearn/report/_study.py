"""The page of a study: ours beside the paper's values, over seeds, with everything that failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crlearn.metrics import METRICS
from crlearn.report._comparison import metric_by_axis, metric_by_row
from crlearn.report._facets import arrange, independent_axes
from crlearn.report._heatmap import mean_noise_map
from crlearn.report._outcome import SECONDS, Mark, Outcome, key_of
from crlearn.report._page import Block, Cell, Details, Page, Section, Table, Text, write_page
from crlearn.report._pen import Scene
from crlearn.report._wording import cut, described, in_words, meaning, shown

if TYPE_CHECKING:
    from crlearn.bench import Record, Sweep, Value

_MOST_ROWS = 3000
_MOST_FAILURES = 30
_LONGEST_ERROR = 400
_LONGEST_TRACEBACK = 5000
_MOST_VALUES = 4  # of a fact that should have one
_MOST_MAPS = 12


def write_study_report(out: str | Path, sweep: Sweep, *, title: str | None = None) -> Path:
    """Write one HTML page about a study that was run. It needs no network and no other file.

    Parameters
    ----------
    out
        Where to write the page.
    sweep
        The study's folder, as `crlearn.bench.run_study` returns it or `crlearn.bench.Sweep.read`
        reads it. It need not be finished.
    title
        Heading of the page; by default the study's.

    Returns
    -------
    path
        Where the page is.

    Examples
    --------
    >>> from crlearn.bench import run_study
    >>> from crlearn.report import write_study_report
    >>> sweep = run_study("varici2025-table7", "out", profile="quick")  # doctest: +SKIP
    >>> write_study_report("report.html", sweep)  # doctest: +SKIP
    """
    return write_page(study_page(Outcome.of(sweep), title), out)


def study_page(outcome: Outcome, title: str | None = None) -> Page:
    """Compose the page of a study."""
    sections = [
        _results(outcome),
        *(_metric(outcome, *family) for family in _families(outcome.study.metrics).items()),
        _slopes(outcome),
        _noises(outcome) if "noises" in outcome.study.figures else None,
        _times(outcome),
        _failures(outcome),
        _assumptions(outcome),
        _notes(outcome),
        _parameters(outcome),
    ]
    return Page(
        title=title or outcome.study.title,
        lead=outcome.study.source,
        facts=_facts(outcome),
        sections=[section for section in sections if section is not None],
    )


def _facts(outcome: Outcome) -> dict[str, str]:
    sweep, records = outcome.sweep, outcome.records
    facts = {
        "study": sweep.study.name,
        "profile": sweep.profile,
        "seeds": f"{sweep.seeds:,}",
        "runs": f"{len(outcome.done):,} done, {len(outcome.failures):,} failed, "
        f"{outcome.left:,} left",
    }
    if records:
        facts["time to fit, all runs"] = _duration(sum(run.seconds or 0.0 for run in records))
        facts["last run"] = max(run.finished for run in records)[:16].replace("T", " ") + " UTC"
    facts["crlearn"] = _code_of(outcome).removeprefix("crlearn ")
    devices = [run.device for run in records if run.device]
    if devices:
        facts["device"] = _listed(devices)
    machines = [", ".join(_machine(run.machine)) for run in records if run.machine]
    if machines:
        facts["machine"] = _listed(machines, "; ")
    versions = _versions(records)
    if versions:
        facts["versions"] = ", ".join(f"{name} {_listed(all)}" for name, all in versions.items())
    return facts


def _code_of(outcome: Outcome) -> str:
    sweep = outcome.sweep
    return f"crlearn {sweep.version}" + (f" (code {sweep.code})" if sweep.code else "")


def _machine(machine: Mapping[str, Any]) -> list[str]:
    named = {"cores": "{} cores", "python": "Python {}"}
    return [named.get(name, "{}").format(value) for name, value in machine.items()]


def _versions(records: Sequence[Record]) -> dict[str, list[str]]:
    versions: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for name, version in record.versions.items():
            if name != "crlearn":
                versions[name].append(version)
    return versions


def _listed(values: Iterable[str], between: str = ", ") -> str:
    """Return each value once, the most frequent first, and say if there are more."""
    counts = Counter(values).most_common()
    some = between.join(value for value, _ in counts[:_MOST_VALUES])
    more = len(counts) - _MOST_VALUES
    return f"{some} and {more} more" if more > 0 else some


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _results(outcome: Outcome) -> Section:
    blocks: list[Block] = list(_state(outcome))
    title = "Paper and ours" if outcome.study.published else "Results"
    if not outcome.rows:
        return Section(title, blocks)
    same = _copies(outcome)
    axes = [axis for axis in outcome.table.axes if axis not in same]
    optional = {
        "paper": any(mark.paper.mean is not None for mark in outcome.marks),
        "chance": any(mark.chance is not None for mark in outcome.marks),
    }
    others = [name for name, present in optional.items() if present]
    rows = []
    for mark in outcome.marks[:_MOST_ROWS]:
        where = [_value_cell(mark.setting.get(axis)) for axis in axes]
        numbers = {"paper": _number_cell(mark.paper), "chance": Cell.of(mark.chance)}
        beside = [numbers[name] for name in others]
        ours = _number_cell(mark.ours)
        rows.append([mark.metric, mark.method, ours, *beside, mark.n or None, *where])
    heads = ["metric", "method", "ours", *others, "n", *axes]
    choices = [axis.name for axis in independent_axes(outcome.settings)]
    filters = [name for name in heads if name in ("metric", "method", *choices)]
    if len(outcome.marks) > len(rows):
        blocks.append(
            Text(
                f"The first {len(rows):,} of {len(outcome.marks):,} rows are here; crlearn bench "
                "table writes them all to table.csv."
            )
        )
    blocks.append(Table(heads, rows, _what_the_numbers_are(outcome, others), filters))
    return Section(title, blocks)


def _state(outcome: Outcome) -> Iterable[Text]:
    """Say what a reader must know before the numbers."""
    failed = len(outcome.failures)
    if not outcome.records:
        yield Text("No run has finished yet, so there are no results.", "bad")
    elif not outcome.rows:
        yield Text(
            f"{_code_of(outcome)} made these runs, and they have no summary. Only that code can "
            "write it: crlearn bench run with the same study, profile and folder.",
            "bad",
        )
    elif not outcome.sweep.is_of_this_code:
        yield Text(
            f"{_code_of(outcome)} made these runs; the code that wrote this page is another one, "
            "and may give other results."
        )
    if outcome.left:
        yield Text(
            f"This study is not finished: {outcome.left:,} runs are left. crlearn bench run with "
            "the same study, profile and folder goes on where it stopped.",
            "bad",
        )
    if failed:
        yield Text(
            f"{failed:,} runs failed. Means are over the others; the cells concerned say how many "
            "failed.",
            "bad",
        )
    study = outcome.study
    settings = [line.setting for line in outcome.table.lines]
    if study.published and settings:
        here = sum(any(cell.fits(setting) for setting in settings) for cell in study.published)
        if here < len(study.published):
            yield Text(
                f"{here or 'None'} of the {len(study.published)} published cells "
                f"{'is' if here < 2 else 'are'} of a setting that was run here "
                f"(profile {outcome.sweep.profile})."
            )


def _copies(outcome: Outcome) -> dict[str, str]:
    """Return the parameters that have the value of another one in every setting."""
    return {
        follower: axis.name
        for axis in independent_axes(outcome.settings)
        for follower in axis.followers
        if all(setting[follower] == setting[axis.name] for setting in outcome.settings)
    }


def _what_the_numbers_are(outcome: Outcome, beside: Sequence[str]) -> str:
    parts = [
        f"Ours: mean {outcome.table.spread_of_ours} over seeds, the best bold; n is the number of "
        "runs behind it."
    ]
    if "paper" in beside:
        parts.append(f"Paper: published value ± {outcome.study.spread}.")
    if "chance" in beside:
        parts.append("Chance is what a random rotation of whitened latents scores.")
    if outcome.table.common:
        parts.append(f"All settings have {described(outcome.table.common)}.")
    parts += [f"{copy} is {name}." for copy, name in _copies(outcome).items()]
    return " ".join(parts)


def _value_cell(value: Any) -> Cell:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(in_words(value), value if number else None)


def _number_cell(value: Value) -> Cell:
    text = str(replace(value, failed=0))
    note = f"{value.failed} failed" if value.failed else ""
    return Cell(text, value.mean, "best" if value.best else "", note)


def _families(metrics: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the metrics that are drawn together, and what tells them apart.

    A metric of one environment is drawn beside those of the others, with the environment as a
    parameter of the setting.
    """
    families: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for metric in metrics:
        number = METRICS[metric].environment
        if number is not None:
            base = metric.removesuffix(f"_environment_{number}")
            families[f"{base} of each environment"][metric] = {"environment": number}
        else:
            families[metric][metric] = {}
    return families


def _metric(
    outcome: Outcome, title: str, members: Mapping[str, Mapping[str, Any]]
) -> Section | None:
    base = title.partition(" of each environment")[0]
    plots = _plots(outcome, base, members)
    if not plots:
        return None
    text = meaning(base)
    return Section(title, [*([Text(f"{text[0].upper()}{text[1:]}.")] if text else []), *plots])


def _slopes_in_theory(outcome: Outcome, metric: str) -> tuple[str | None, dict[str, float]]:
    """Return the parameter of slopes, and the slope that theory has for a metric in each setting.

    A metric that is not 0 where it is perfect is not drawn by its error, and has no such slope.
    """
    slope = outcome.study.slope
    if slope is None or metric not in METRICS or METRICS[metric].perfect != 0:
        return None, {}
    found = {
        key_of(outcome.varied(line.setting)): slope.in_theory(line.setting, metric)
        for line in outcome.table.lines
    }
    return slope.along, {key: rate for key, rate in found.items() if rate is not None}


def _slopes(outcome: Outcome) -> Section | None:
    """Say how fast errors fall, one row for each method."""
    table = outcome.table
    if not table.slopes:
        return None
    axes = table.slope_axes
    rows = [
        [
            line.metric,
            method,
            _number_cell(slope),
            Cell.of(line.theory.mean),
            *(_value_cell(line.setting.get(axis)) for axis in axes),
        ]
        for line in table.slopes
        for method, slope in line.ours.items()
        if slope.mean is not None
    ]
    heads = ["slope of", "method", "slope", "theory", *axes]
    return Section("Slopes", [Table(heads, rows, table.slope_caption, ["slope of", "method"])])


def _noises(outcome: Outcome) -> Section | None:
    """Draw which true noise is found in which recovered one, for each method in each setting."""
    found: dict[str, list[Any]] = defaultdict(list)
    for record in outcome.done:
        if record.noise_correlations is not None:
            where = described(outcome.varied(record.setting))
            found[", ".join(filter(None, (record.method, where)))].append(record.noise_correlations)
    maps: list[Block] = [
        mean_noise_map(np.mean(values, axis=0), which, len(values))
        for which, values in list(found.items())[:_MOST_MAPS]
        if len({np.shape(value) for value in values}) == 1
    ]
    if len(found) > _MOST_MAPS:
        maps.append(Text(f"{_MOST_MAPS} of {len(found)} heat maps are here."))
    return Section("True and recovered noises", maps) if maps else None


def _times(outcome: Outcome) -> Section | None:
    plots = _plots(outcome, SECONDS, {SECONDS: {}})
    return Section("Time to fit", plots) if plots else None


def _plots(outcome: Outcome, metric: str, members: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Draw metrics that are one metric in settings of its own."""
    measured = _measured(outcome)
    by_setting: dict[str, list[Mark]] = defaultdict(list)
    settings: dict[str, Mapping[str, Any]] = {}
    for mark in outcome.marks:
        if mark.metric in members and (mark.ours.mean, mark.paper.mean) != (None, None):
            given = {**outcome.varied(mark.setting), **members[mark.metric]}
            own = measured.get((key_of(mark.setting), mark.method), {})
            varied = {
                name: own.get(name) if value is None else value for name, value in given.items()
            }
            settings[key_of(varied)] = varied
            by_setting[key_of(varied)].append(replace(mark, metric=metric, setting=varied))
    scene = Scene(
        metric,
        by_setting,
        outcome.methods,
        outcome.study.spread,
        *_slopes_in_theory(outcome, metric),
    )
    panels, others = arrange(list(settings.values()))
    plots: list[Block] = []
    if panels:
        plots.append(metric_by_axis(scene, panels))
    if others:
        plots.append(metric_by_row(scene, others))
    return plots


def _measured(outcome: Outcome) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Return the means of each method in each setting, by metric.

    Where a parameter is not set, and a metric has its name, a method stands at what was measured.
    """
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for mark in outcome.marks:
        if mark.ours.mean is not None:
            found[key_of(mark.setting), mark.method][mark.metric] = mark.ours.mean
    return found


def _failures(outcome: Outcome) -> Section | None:
    failures = outcome.failures
    if not failures:
        return None
    blocks: list[Block] = [
        Details(_in_one_line(outcome, record), _traceback(record))
        for record in _different_ones_first(failures)[:_MOST_FAILURES]
    ]
    if len(failures) > _MOST_FAILURES:
        blocks.insert(
            0,
            Text(
                f"{_MOST_FAILURES} of {len(failures):,} are here, one of each error before others "
                "of the same; runs.jsonl has them all."
            ),
        )
    return Section("Failures", blocks)


def _different_ones_first(failures: Sequence[Record]) -> list[Record]:
    seen: Counter[tuple[str, str | None]] = Counter()
    ranked = []
    for record in failures:
        kind = (record.method, record.error)
        ranked.append((seen[kind], record))
        seen[kind] += 1
    return [record for _, record in sorted(ranked, key=lambda pair: pair[0])]


def _in_one_line(outcome: Outcome, record: Record) -> str:
    where = described(outcome.varied(record.setting))
    parts = [record.method, *([where] if where else []), f"seed {record.seed}"]
    error = cut(" ".join((record.error or "no message").split()), _LONGEST_ERROR)
    return f"{', '.join(parts)} {record.status}: {error}"


def _traceback(record: Record) -> str:
    text = record.traceback or "There is no traceback."
    if len(text) <= _LONGEST_TRACEBACK:
        return text
    return "…\n" + text[-_LONGEST_TRACEBACK:]  # its end says what went wrong


def _assumptions(outcome: Outcome) -> Section | None:
    """Say how often the data contradicted an assumption of a method."""
    runs = Counter(record.method for record in outcome.done)
    broken = Counter((run.method, check) for run in outcome.done for check in run.failed_checks)
    if not broken:
        return None
    rows = [[method, check, n, runs[method]] for (method, check), n in broken.items()]
    caption = "Assumptions behind the methods' promises that the data contradict."
    heads = ["method", "assumption", "runs that contradict it", "of"]
    return Section("Assumptions", [Table(heads, rows, caption)])


def _notes(outcome: Outcome) -> Section:
    study, last = outcome.study, outcome.sweep.seeds - 1
    seeds = "Seed 0 makes" if last == 0 else f"Each of the seeds 0 to {last} makes"
    rows = "all rows" if study.evaluated_on == "all" else "the rows of the reference environment"
    texts = [
        study.notes,
        f"{seeds} a world of the kind {study.world}, and is given to every method that is fitted "
        f"to it. Metrics are of {rows}.",
    ]
    return Section("Notes and seeds", [Text(text) for text in texts if text])


def _parameters(outcome: Outcome) -> Section:
    rows = []
    for method, used in _parameters_of(outcome).items():
        given = _given(outcome, method)
        for name, values in used.items():
            chosen = "default"
            if name in given:
                chosen = given[name]
            elif name == "n_latents":
                chosen = "setting"
            value = Cell(", ".join(values), tone="" if chosen == "default" else "best")
            rows.append([method, name, value, Cell(chosen, tone="quiet")])
    caption = "Parameters of each method. Those that are not the default are bold."
    heads = ["method", "parameter", "value", "set by"]
    return Section("Parameters", [Table(heads, rows, caption, ["method", "set by"])])


def _parameters_of(outcome: Outcome) -> dict[str, dict[str, list[str]]]:
    """Return the values of each parameter of each method: more than one if they vary."""
    cells = {record.cell: (record.method, record.parameters) for record in outcome.records}
    planned = {cell.key: (cell.label, cell.parameters) for cell in outcome.sweep.plan.cells}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for method, parameters in (cells or planned).values():
        for name, value in parameters.items():
            if shown(value) not in found[method][name]:
                found[method][name].append(shown(value))
    return found


def _given(outcome: Outcome, method: str) -> dict[str, str]:
    """Return the parameters that the study sets, and which part of it does."""
    entries = [entry for entry in outcome.study.methods if entry.label == method]
    in_profile = outcome.study.profile(outcome.sweep.profile).parameters.get(method, {})
    by_study = {
        name: "setting" if str(value).startswith("$") else "study"
        for entry in entries
        for name, value in entry.parameters.items()
    }
    return {**by_study, **dict.fromkeys(in_profile, f"profile {outcome.sweep.profile}")}
