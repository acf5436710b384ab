"""`crlearn bench`: the published tables as commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crlearn.cli import _show
from crlearn.cli._paths import check_is_file, check_is_folder
from crlearn.files import write_whole

if TYPE_CHECKING:
    from crlearn.bench import Sweep

bench = typer.Typer(
    no_args_is_help=True, help="Run the studies of published tables, and compare with the papers."
)

StudyName = Annotated[str, typer.Argument(help="Name of a study, or a .toml file of your own.")]
SweepFolder = Annotated[Path, typer.Argument(help="Folder of bench run.")]
_MOST_FAILURES = 20
_MAKES_ONE = "crlearn bench run STUDY --out FOLDER"


@bench.command("list")
def list_all() -> None:
    """List the studies."""
    from crlearn.bench import list_studies, load_study

    _show.show_catalogue({name: load_study(name).title for name in list_studies()})


@bench.command()
def show(study: StudyName) -> None:
    """Show what a study runs, and what was published."""
    if study.endswith(".toml"):
        check_is_file(Path(study))
    from crlearn.bench import Plan, load_study

    found = load_study(study)
    _show.say(found.title)
    _show.say(found.source)
    if found.notes:
        _show.say(found.notes)
    _show.say(f"world: {found.world}; metrics: {', '.join(found.metrics)}")
    for profile in found.profiles:
        plan = Plan.of(found, profile)
        n_worlds = len(found.settings(profile))
        n_runs = len(plan.cells) * plan.seeds
        _show.say(
            f"profile {profile}: {n_worlds} settings x {len(found.labels)} methods "
            f"({', '.join(found.labels)}) x {plan.seeds} seeds = "
            f"{n_runs:,} runs"
        )
    _show.show_published(found)


@bench.command()
def run(
    study: StudyName,
    out: Annotated[Path, typer.Option(help="Folder to write to, or to go on in.")],
    profile: Annotated[str, typer.Option(help="How large: quick or full.")] = "full",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; by default the profile's.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes on this machine.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, tcp://host:port.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try runs again that failed before.")
    ] = False,
) -> None:
    """Run a study, or what is left of it; the same command again goes on where it stopped."""
    if study.endswith(".toml"):
        check_is_file(Path(study))
    from crlearn.bench import run_study

    try:
        sweep = run_study(
            study,
            out,
            profile=profile,
            seeds=seeds,
            jobs=jobs,
            scheduler=scheduler,
            retry_failed=retry_failed,
        )
    except KeyboardInterrupt:
        _show.say_warning("interrupted. The same command again goes on from here.")
        raise typer.Exit(130) from None
    _say_status(sweep)
    _show_table(sweep)
    _show.say(f"wrote {out / 'runs.jsonl'}, {out / 'summary.json'}")


@bench.command()
def status(folder: SweepFolder) -> None:
    """Say how many runs are done, failed and left, and why those failed that did."""
    check_is_folder(folder, _MAKES_ONE)
    from crlearn.bench import Sweep

    sweep = Sweep.read(folder)
    _say_status(sweep)
    _say_what_is_left_aside(sweep)
    failures = [record for record in sweep.records() if not record.is_done]
    for record in failures[:_MOST_FAILURES]:
        _show.say(f"{record.status}: {record.method}, seed {record.seed}: {record.error}")
    if len(failures) > _MOST_FAILURES:
        _show.say(f"and {len(failures) - _MOST_FAILURES} more; runs.jsonl has the tracebacks.")


@bench.command()
def table(folder: SweepFolder) -> None:
    """Print paper and ours side by side; write table.md, table.tex and table.csv."""
    check_is_folder(folder, _MAKES_ONE)
    from crlearn.bench import Sweep

    sweep = Sweep.read(folder)
    comparison = _show_table(sweep)
    texts = {
        "table.md": comparison.to_markdown(),
        "table.tex": comparison.to_latex(),
        "table.csv": comparison.to_csv(),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
    _show.say(f"wrote {', '.join(str(folder / name) for name in texts)}")


def _say_status(sweep: Sweep) -> None:
    progress = sweep.progress()
    _show.say(
        f"{sweep.study.name} ({sweep.profile}, {sweep.seeds} seeds): {progress.done} of "
        f"{progress.planned} runs done, {progress.failed} failed, {progress.left} left"
    )
    if progress.unreadable:
        _show.say_warning(
            f"{progress.unreadable} lines of runs.jsonl cannot be read and are left out; their "
            "runs are done again by bench run."
        )


def _say_what_is_left_aside(sweep: Sweep) -> None:
    n_other = sweep.progress().of_other_code
    if n_other:
        _show.say(
            f"{n_other} results in runs.jsonl were made when crlearn's code was another one. They "
            "are left aside; bench run does what is left with the code of now."
        )


def _show_table(sweep: Sweep):
    from crlearn.bench import compare

    if not sweep.is_of_this_code:
        _show.say_warning(
            f"crlearn {sweep.version} made these results when its code was another one; bench run "
            "makes them anew."
        )
    comparison = compare(sweep.study, sweep.summary())
    _show.say(comparison.caption)
    _show.show_lines(comparison.columns, [[str(cell) for cell in row] for row in comparison.body])
    if comparison.slopes:
        rows = [[str(cell) for cell in row] for row in comparison.slope_body]
        _show.say(comparison.slope_caption)
        _show.show_lines(comparison.slope_columns, rows)
    return comparison
