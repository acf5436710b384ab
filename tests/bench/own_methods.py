"""Methods of a user's own, named by dotted path in the studies of these tests."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from crlearn.exceptions import DivergenceError
from crlearn.methods import PCABaseline

_LONGEST_WAIT = 120.0


class Rehearsed(PCABaseline):
    """PCA that does what a test tells it to.

    Parameters
    ----------
    log
        File that gets a line, process and seed, when a fit begins.
    company
        How many processes must have begun a fit before any goes on.
    gate
        File without which fits of `gated_seeds` do not go on.
    trouble
        What happens on `troubled_seeds`, as long as the file `unless` is not there.
    scores
        Only for studies with exact scores.
    """

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        log: str = "",
        company: int = 1,
        gate: str = "",
        gated_seeds: Sequence[int] = (),
        trouble: str = "",
        troubled_seeds: Sequence[int] = (),
        unless: str = "",
        scores: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.log = log
        self.company = company
        self.gate = gate
        self.gated_seeds = gated_seeds
        self.trouble = trouble
        self.troubled_seeds = troubled_seeds
        self.unless = unless
        self.scores = scores
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        if self.log:
            _append(Path(self.log), f"{os.getpid()} {self.random_state}\n")
        if self.company > 1:
            _wait_until(lambda: len(_processes(Path(self.log))) >= self.company)
        if self.gate and self.random_state in self.gated_seeds:
            _wait_until(Path(self.gate).exists)
        if self.random_state in self.troubled_seeds and not Path(self.unless or "/-").exists():
            self._make_trouble()
        return super().fit(X, y)

    def _make_trouble(self) -> None:
        if self.trouble == "error":
            raise ValueError("this was to be expected")
        if self.trouble == "divergence":
            raise DivergenceError("no finite loss")
        if self.trouble == "interrupt":
            raise KeyboardInterrupt
        if self.trouble == "exit":
            sys.exit("enough")
        if self.trouble == "death":
            os._exit(3)
        if self.trouble == "one death":
            Path(self.unless).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def _processes(log: Path) -> set[str]:
    return {line.split()[0] for line in log.read_text().splitlines()}


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what the test promised did not come")
        time.sleep(0.01)
