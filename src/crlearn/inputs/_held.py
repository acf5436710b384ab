"""Latents that environments hold at a value: what do-interventions leave of them.

Where latent j is set to a value, rows lie in a hyperplane whose normal is row j of the encoder: it
is known from that alone, exactly. The density of the others is one on the hyperplane, and the same
as that of a hard intervention which leaves latent j a small variance, but for the logarithm of that
variance, which all models share. So rows get a small width across the hyperplane, and all that is
known of hard interventions holds; at the end the rows of held latents are the normals.

An environment that holds several latents shows no more of their rows than the space that they span.
Which these are, others have to tell: spaces of several environments meet in a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.result import Check

Matrix = NDArray[np.floating]

# All in standard deviations of all rows together. Rounding of X in single precision leaves a held
# latent about 1e-6.
_FLAT = 1e-4
# Across a hyperplane. In linear, quadratic and network worlds (seeds 0 and 1) errors of the other
# rows were the same from 1e-2 to 1e-3; with 1e-4 Newton's steps were too short to arrive.
_WIDTH = 1e-3
_ALIKE = 1e-3  # radians between rows that are the same
_DECIMALS = 6  # of rows that are alike


@dataclass(frozen=True, eq=False)
class Held:
    """What each environment holds at a value.

    Attributes
    ----------
    rows
        Rows of an encoder, of unit length, whose latents do not vary in an environment, ``(k, n)``.
    labels
        Of the environments, for messages.
    """

    rows: tuple[Matrix, ...]
    labels: NDArray[Any]

    @classmethod
    def of(cls, environments: Sequence[Matrix], labels: NDArray[Any]) -> Held:
        """Find what rows that are white together do not vary along."""
        spaces = tuple(map(_flat_directions, environments))
        for rows, space, label in zip(environments, spaces, labels, strict=True):
            if len(space):
                _refuse_few_rows(rows, len(rows[0]) - len(space), label)
        found = _meets(spaces)
        held = tuple(
            space if len(space) < 2 else np.array([row for row in found if _is_in(row, space)])
            for space in spaces
        )
        return cls(held, labels)._refusing_open_spaces(spaces)

    @property
    def any(self) -> bool:
        """Whether some environment holds something."""
        return any(map(len, self.rows))

    def where(self) -> str:
        """Name the environments that hold something."""
        return _named(self.labels[[len(rows) > 0 for rows in self.rows]])

    def refuse_flat_reference(self) -> None:
        """Refuse a first environment that holds something: it is the reference."""
        if len(self.rows[0]):
            n_held, n = self.rows[0].shape
            raise ValueError(
                f"In the reference environment, {self.labels[0]}, X varies in {n - n_held} of the "
                f"{n} directions that latents have. It must be observational, so that all of them "
                "vary: name another one by reference=, or ask for fewer latents."
            )

    def refuse_several(self) -> None:
        """Refuse environments that hold more than one latent."""
        many = [len(rows) > 1 for rows in self.rows]
        if any(many):
            raise ValueError(
                f"In {_named(self.labels[many])} several latents are held at values, so that X "
                "does not vary along as many directions. LinearInterventionCRL takes interventions "
                "on one latent; MultiNodeCRL takes these, or leave them out."
            )

    def refuse_shared(self, targets: NDArray[np.bool_]) -> None:
        """Refuse environments that hold the same latent, where their targets are different ones."""
        holding = [e for e, rows in enumerate(self.rows) if len(rows)]
        for e, f in combinations(holding, 2):
            if len(_meet(self.rows[e], self.rows[f])) and not (targets[e] & targets[f]).any():
                one, other = self.labels[[e, f]].tolist()
                raise ValueError(
                    f"Environments {one} and {other} hold the same latent at values: they have the "
                    "same target, and 'targets' must say so, for instance "
                    f"targets={{{one!r}: 'A', {other!r}: 'A', ...}}."
                )

    def one_row(self) -> NDArray[np.floating]:
        """Return the row of the only latent that is held."""
        rows = np.concatenate(self.rows)
        if any(not _is_in(row, rows[:1]) for row in rows):
            raise ValueError(
                f"In {self.where()} different latents are held at values. They were said to be the "
                "same one: give each environment a target of its own."
            )
        return np.asarray(rows[0])

    def widened(self, environments: Sequence[Matrix], rng: np.random.Generator) -> Sequence[Matrix]:
        """Return rows in which held latents vary a little, independently of each other."""
        if not self.any:
            return environments
        return [
            rows + _WIDTH * rng.standard_normal((len(rows), len(held))) @ np.linalg.pinv(held).T
            if len(held)
            else rows
            for rows, held in zip(environments, self.rows, strict=True)
        ]

    def exact(self, H: Matrix, targets: NDArray[np.bool_]) -> Matrix:
        """Return an encoder with the rows of held latents as they are known; signs stay."""
        exact = H.copy()
        for held, latents in zip(self.rows, targets, strict=True):
            for row in held:
                for j in np.flatnonzero(latents & _are_alike(H, row)):
                    exact[j] = row * (row @ H[j])
        return exact

    def checks(
        self, H: Matrix, targets: NDArray[np.bool_], names: Sequence[str] | None
    ) -> tuple[Check, ...]:
        """Check that what an environment holds are latents that it intervenes on."""
        if not self.any:
            return ()
        said, passed = [], True
        for held, latents, label in zip(self.rows, targets, self.labels, strict=True):
            for row in held:
                alike = np.flatnonzero(latents & _are_alike(H, row))
                passed &= len(alike) == 1
                name = "none that it intervenes on"
                if len(alike):
                    name = f"z{alike[0]}" if names is None else names[alike[0]]
                said.append(f"{label} holds {name}")
        detail = "environments hold latents at a value, whose rows of the encoder are exact: "
        return (Check("held latents are targets", passed, detail + ", ".join(said)),)

    def _refusing_open_spaces(self, spaces: Sequence[Matrix]) -> Held:
        are_open = [
            len(held) != len(space) or np.linalg.matrix_rank(held, _ALIKE) < len(space)
            for held, space in zip(self.rows, spaces, strict=True)
            if len(space)
        ]
        if any(are_open):
            labels = self.labels[[len(space) > 0 for space in spaces]][are_open]
            raise IdentifiabilityError(
                f"Several latents do not vary in {_named(labels)}: they are held at values "
                "together, so that nothing but the space of their rows can be seen. That is enough "
                "if each of them is what two such environments have in common, or is held alone in "
                "another one. Leave these environments out, or add such others."
            )
        return self


def _flat_directions(rows: Matrix) -> Matrix:
    variances, axes = np.linalg.eigh(np.cov(rows.T, bias=True).reshape(2 * rows.shape[1:]))
    return axes.T[variances < _FLAT**2]


def _refuse_few_rows(rows: Matrix, n_varying: int, label: Any) -> None:
    if not n_varying:
        raise ValueError(
            f"In environment {label} no latent varies: its {len(rows)} rows are one. If all of "
            "them are held at values, that shows no row of any: leave this environment out."
        )
    n_distinct = len(np.unique(rows.round(_DECIMALS), axis=0))
    if n_distinct <= n_varying + 1:
        raise ValueError(
            f"In environment {label} X varies in {n_varying} of the {rows.shape[1]} directions "
            f"that latents have, as its {len(rows)} rows are alike: {n_distinct} "
            f"{'is' if n_distinct == 1 else 'are'} distinct. Each environment needs more distinct "
            "rows than there are latents: leave this one out, or ask for fewer latents."
        )


def _meets(spaces: Sequence[Matrix]) -> list[Matrix]:
    """Return the single rows that are spaces, or in which spaces meet."""
    found = [space for space in spaces if len(space)]
    for space in found:  # grows while it is read
        for other in found[: len(found)]:
            meet = _meet(space, other)
            if len(meet) and not any(
                len(meet) == len(known) and len(_meet(meet, known)) == len(meet) for known in found
            ):
                found.append(meet)
    singles: list[Matrix] = []
    for space in found:
        if len(space) == 1 and not any(_is_in(space[0], known[None]) for known in singles):
            singles.append(space[0])
    return singles


def _meet(one: Matrix, other: Matrix) -> Matrix:
    """Return what two spaces have in common."""
    left, cosines, _ = np.linalg.svd(one @ other.T, full_matrices=False)
    return left.T[cosines > np.cos(_ALIKE)] @ one


def _is_in(row: Matrix, space: Matrix) -> bool:
    return bool(np.linalg.norm(row - (row @ space.T) @ space) < _ALIKE)


def _are_alike(H: Matrix, row: Matrix) -> NDArray[np.bool_]:
    along = H @ row
    beside = np.linalg.norm(H - along[:, None] * row, axis=1)
    return np.asarray(beside < _ALIKE * np.linalg.norm(H, axis=1))


def _named(labels: NDArray[Any]) -> str:
    shown = ", ".join(map(str, labels[:8])) + (", ..." if len(labels) > 8 else "")
    return f"environment{'s' if len(labels) > 1 else ''} {shown}"
