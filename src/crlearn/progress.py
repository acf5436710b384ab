"""Progress bars: on a terminal by default, never in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crlearn.config import get_config


@contextmanager
def progress_bar(description: str, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Show a bar and yield a function that moves it one step, with a note beside it."""
    wanted = get_config().progress
    console = Console(stderr=True, force_terminal=True if wanted is True else None)
    shown = console.is_terminal if wanted == "auto" else wanted
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not shown,
    ) as progress:
        task = progress.add_task(description, total=total, completed=done, note="")

        def advance(note: str) -> None:
            progress.update(task, advance=1, note=note)

        yield advance
