"""`Evaluation`: the scores of one model on one dataset, with the levels they are read against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Evaluation(Mapping[str, float]):
    """Scores by name; prints as a table. What it hands out is a copy, so it cannot be changed.

    Parameters
    ----------
    scores
        Value of each metric.
    chance
        What a random rotation of whitened latents would score, or None where that means nothing.
    perfect
        What the truth itself would score, or None where that is not known.
    matching
        Pairs (true latent, recovered latent) by which graphs, targets and encoders were aligned.
    """

    def __init__(
        self,
        scores: Mapping[str, float],
        chance: Mapping[str, float | None],
        perfect: Mapping[str, float | None],
        matching: ArrayLike,
    ) -> None:
        self._scores = dict(scores)
        self._chance = dict(chance)
        self._perfect = dict(perfect)
        self._matching = np.array(matching, dtype=np.intp)

    @property
    def chance(self) -> dict[str, float | None]:
        """What a random rotation would score, or None where that means nothing."""
        return dict(self._chance)

    @property
    def perfect(self) -> dict[str, float | None]:
        """What the truth itself would score, or None where that is not known."""
        return dict(self._perfect)

    @property
    def matching(self) -> NDArray[np.intp]:
        """Pairs (true latent, recovered latent), one row a pair."""
        return self._matching.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and dictionaries, ready for JSON."""
        return {
            "scores": dict(self._scores),
            "chance": self.chance,
            "perfect": self.perfect,
            "matching": self._matching.tolist(),
        }

    def __getitem__(self, name: str) -> float:
        return self._scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        width = max(map(len, ("metric", *self)))
        lines = [f"{'metric':<{width}}  {'value':>8}  {'chance':>8}  {'perfect':>8}"]
        for name, value in self.items():
            chance, perfect = self._chance.get(name), self._perfect.get(name)
            lines.append(f"{name:<{width}}  {_cell(value)}  {_cell(chance)}  {_cell(perfect)}")
        return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return f"{'-':>8}"
    return f"{value:>8.0f}" if float(value).is_integer() else f"{value:>8.3f}"
