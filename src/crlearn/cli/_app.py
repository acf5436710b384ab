"""The commands. Each reads its arguments, calls the library and prints what came out."""

from __future__ import annotations

import errno
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from crlearn import __version__
from crlearn.cli import _show
from crlearn.cli._bench import bench
from crlearn.cli._paths import (
    MODEL,
    OWN_TYPE,
    check_data_file,
    check_data_type,
    check_free,
    check_is_run,
    snapshot,
)
from crlearn.exceptions import AssumptionWarning, DivergenceError

# What the user can mend; everything else is a mistake of ours and keeps its traceback.
_USER_ERRORS = (ValueError, OSError, ImportError, DivergenceError, MemoryError)
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
_INTERRUPTED = 130  # what shells expect after Ctrl-C
CHECKPOINT = "checkpoint.crl"


class _OneLineErrors(TyperGroup):
    """Commands whose errors are one line, and whose warnings are too."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)  # they are in the table of checks
            for kind in (DeprecationWarning, FutureWarning):  # nothing that a user can change
                warnings.simplefilter("ignore", kind)
            warnings.showwarning = lambda message, *_, **__: _show.say_warning(str(message))
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                _show.say_warning("interrupted. Files are as they were before, or whole.")
                raise typer.Exit(_INTERRUPTED) from None
            except _USER_ERRORS as error:
                if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                    raise
                _show.say_error(_in_words(error))
                raise typer.Exit(2) from error


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        place = "A file" if error.filename is None else f"'{error.filename}'"
        said = f"{place} cannot be read or written: {error.strerror}."
        if error.errno in _DISK_IS_FULL:
            said += " Free some space on that disk, or write to another one."
        return said
    if isinstance(error, MemoryError):
        return f"There is not enough memory. Use fewer rows, features or latents. {error}"
    return str(error)


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Causal representation learning: the hidden causes behind your measurements.",
)

app.add_typer(bench, name="bench")

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter by its name in Python; repeat. Lists and dictionaries are written as in "
        """JSON or Python, such as 'targets={"drug": 0, "other drug": 0, "knockout": 1}'; keys """
        "are matched with the labels of the data.",
    ),
]
EnvColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with the environment labels (in .h5ad files: of obs). By default the one "
        "called environment."
    ),
]
Covariates = Annotated[
    list[str] | None,
    typer.Option(
        "--covariate",
        metavar="COLUMN",
        help="Column (in .h5ad files: of obs) with batches or another covariate, whose effects are "
        "taken off inside of environments; repeat. Texts and whole numbers are labels.",
    ),
]
Latents = Annotated[int | None, typer.Option(min=1, help="Number of latents.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"crlearn {__version__}")
        raise typer.Exit


@app.callback()
def crlearn(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from; before the command.")
    ] = False,
) -> None:
    """Read the options that come before a command."""


@app.command()
def simulate(
    world: Annotated[str | None, typer.Argument(help="Name of a world; see --list.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .crl keeps the truth; .csv, .tsv, .parquet and .h5ad do not."
        ),
    ] = None,
    n_latents: Latents = None,
    n_features: Annotated[int | None, typer.Option(min=1, help="Number of features.")] = None,
    n_samples: Annotated[int | None, typer.Option(min=1, help="Rows per environment.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    settings: Settings = None,
    list_worlds: Annotated[bool, typer.Option("--list", help="List the worlds.")] = False,
) -> None:
    """Simulate a world whose latents are known."""
    from crlearn.cli._choices import first_line, make_world, read_settings, worlds

    if list_worlds:
        _show.show_catalogue({name: first_line(maker) for name, maker in worlds().items()})
        return
    if world is None or out is None:
        raise ValueError(
            "simulate needs the name of a world and --out, such as: "
            "crlearn simulate segments --out world.crl. The worlds: crlearn simulate --list."
        )
    check_data_type(out)
    parameters = read_settings(settings or [])
    from crlearn.cli._files import write_data

    sizes = {"n_latents": n_latents, "n_features": n_features, "n_samples": n_samples}
    given = {name: size for name, size in sizes.items() if size is not None}
    dataset = make_world(world, {"random_state": seed, **given, **parameters})
    write_data(dataset, out)
    _show.say(f"wrote {out}: {_show.describe(dataset)}")
    if out.suffix.lower() != OWN_TYPE:
        _show.say(f"The file holds X and the environments; only {OWN_TYPE} files keep the truth.")


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="Data: .csv, .tsv, .parquet, .h5ad or .crl.")],
    method: Annotated[str, typer.Option(help="Name of the method, such as IVAE.")],
    out: Annotated[Path, typer.Option(help="Folder to write the run to.")],
    env_column: EnvColumn = None,
    reference: Annotated[
        str | None, typer.Option(help="Label of the reference environment.")
    ] = None,
    covariate: Covariates = None,
    n_latents: Latents = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    settings: Settings = None,
    checkpoint: Annotated[
        bool,
        typer.Option("--checkpoint", help="Keep the training's state in OUT, and resume from it."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a fit that OUT holds already.")
    ] = False,
) -> None:
    """Recover the latents behind data, and write model, latents and result to a folder."""
    from crlearn.cli._choices import build_method, by_labels, label_of, read_settings

    check_data_file(data)
    if not force:
        check_free(out)
    parameters = {"random_state": seed, **read_settings(settings or [])}
    from crlearn.cli._files import Run, check_labels, covariates_for, prepare_folder, read_data

    if n_latents is not None:
        parameters["n_latents"] = n_latents
    if checkpoint:
        parameters["checkpoint"] = str(out / CHECKPOINT)
    model = build_method(method, {**parameters, **({"reference": None} if reference else {})})
    named = tuple(covariate or ())
    dataset = read_data(data, env_column, named)
    _show.say(f"read {data}: {_show.describe(dataset)}")
    check_labels(dataset, data, model)
    covariates = covariates_for(model, dataset, named=bool(named))
    if reference is not None:
        model.set_params(reference=label_of(reference, dataset.environments))
    model.set_params(**by_labels(parameters, dataset.environments))
    prepare_folder(out)
    before = snapshot(out)
    try:
        model.fit(dataset.X, dataset.y, **covariates)
        run = Run(out, model, data.resolve(), env_column, dataset.names, named)
        files = run.write(dataset)
    except KeyboardInterrupt:
        now = snapshot(out)
        _end_interrupted(out, [name for name in now if now[name] != before.get(name)])
    _show.show_result(type(model).__name__, model.result_, files)


def _end_interrupted(out: Path, written: list[str]) -> NoReturn:
    """Say what an interrupted fit leaves behind."""
    said = f"interrupted. Nothing was written to '{out}'."
    if written:
        said = f"interrupted. Written to '{out}' was only {', '.join(sorted(written))}."
        if written == [CHECKPOINT]:
            said += " The same command again goes on from the checkpoint."
        else:
            said += " This is no whole run; the same command again, with --force, makes it one."
    _show.say_warning(said)
    raise typer.Exit(_INTERRUPTED)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a fit.")],
    data: Annotated[
        Path | None, typer.Argument(help="World with known latents; by default that of the fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Compare a fit with the truth behind simulated data."""
    check_is_run(run)
    if data is not None:
        check_data_file(data)
    from crlearn.cli._files import Run
    from crlearn.metrics import evaluate as compare

    fitted = Run.read(run)
    dataset = fitted.data(data)
    if dataset.truth is None:
        raise ValueError(
            f"'{data or fitted.data_file}' holds no truth to compare with. Only simulated worlds "
            "in .crl files have one; crlearn report shows the latents of other data."
        )
    evaluation = compare(fitted.model, dataset)
    if as_json:
        _show.show_json({"method": type(fitted.model).__name__, **evaluation.to_dict()})
    else:
        _show.say(f"{type(fitted.model).__name__} on {_show.describe(dataset)}")
        _show.show_evaluation(evaluation)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a fit, or of a study (bench run).")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("report.html"),
    data: Annotated[
        Path | None, typer.Option(help="Rows to show; by default the data of the fit.")
    ] = None,
    env_column: EnvColumn = None,
    compare: Annotated[
        list[Path] | None, typer.Option(help="Folder of another fit to compare with; repeat.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
) -> None:
    """Write one HTML page about a fit or a study; it opens without a network."""
    if _is_study(run):
        for_fits = {"--data": data, "--env-column": env_column, "--compare": compare}
        _report_study(run, out, title, [name for name, value in for_fits.items() if value])
        return
    if data is not None:
        check_data_file(data)
    for folder in (run, *(compare or ())):
        check_is_run(folder)
    from crlearn.cli._files import Run
    from crlearn.report import write_report

    fitted = Run.read(run)
    if data is None and not fitted.data_file.is_file():
        _show.say_warning(f"'{fitted.data_file}' is gone: no latents are shown. Name it by --data.")
        dataset = None
    else:
        dataset = fitted.data(data, env_column)
    baselines = {folder.name: Run.read(folder).model for folder in compare or []}
    _show.say(f"wrote {write_report(out, fitted.model, dataset, baselines=baselines, title=title)}")


def _is_study(folder: Path) -> bool:
    if (folder / MODEL).is_file():
        return False  # a fit, which needs nothing of the extra of studies
    if folder.is_dir():
        from crlearn.bench import is_sweep

        if is_sweep(folder):
            return True
    raise FileNotFoundError(
        f"'{folder}' is neither the folder of a fit nor that of a study. crlearn fit DATA "
        "--method NAME --out FOLDER makes the one, crlearn bench run STUDY --out FOLDER the other."
    )


def _report_study(folder: Path, out: Path, title: str | None, unfit: list[str]) -> None:
    from crlearn.bench import Sweep
    from crlearn.report import write_study_report

    sweep = Sweep.read(folder)
    if unfit:
        raise ValueError(
            f"{', '.join(unfit)} is for the page of a single fit, but '{folder}' holds the study "
            f"'{sweep.study.name}', whose page has all its methods and data. Leave it out."
        )
    _show.say(f"wrote {write_study_report(out, sweep, title=title)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Simulate a world, recover its latents, compare with the baselines, write a page."""
    from crlearn.cli._demo import run_demo
    from crlearn.cli._files import prepare_folder

    prepare_folder(out)
    _show.say(f"the page is {run_demo(out, seed)}")
