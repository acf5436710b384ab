"""`y` read as environment labels: which rows belong together, and which are the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.result import Check

Matrix = NDArray[np.floating]

_LONGEST_NAME = 24  # of several environments together
# What people call rows without an intervention, in small letters and digits alone.
_REFERENCE_NAMES = frozenset(
    {
        "0",
        "baseline",
        "control",
        "controls",
        "ctl",
        "ctrl",
        "dmso",
        "mock",
        "negativecontrol",
        "none",
        "nointervention",
        "nontargeting",
        "nontargetingcontrol",
        "nt",
        "ntc",
        "obs",
        "observational",
        "observed",
        "ref",
        "reference",
        "unperturbed",
        "unstimulated",
        "untreated",
        "vehicle",
        "wildtype",
        "wt",
    }
)


@dataclass(frozen=True, eq=False)
class Environments:
    """`y` read as environment labels.

    Attributes
    ----------
    labels
        The distinct labels in order.
    codes
        Position of each row's label in `labels`.
    counts
        Rows of each environment.
    reference
        Position of the reference (observational) environment, or None.
    numbers
        Of the rows, as they were given; None: none was left out.
    """

    labels: NDArray[Any]
    codes: NDArray[np.intp]
    counts: NDArray[np.intp]
    reference: int | None = None
    numbers: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as people read them."""
        return tuple(map(str, self.labels))


def read_environments(y: NDArray[Any], reference: Any = None, *, fewest: int = 2) -> Environments:
    """Read environment labels; the reference environment is the one labelled `reference`."""
    try:
        labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            "y must hold labels of one kind, all numbers or all strings, and none missing. "
            f"Got a mixture ({error})."
        ) from error
    shown = _listed(labels)
    if len(labels) < fewest:
        raise IdentifiabilityError(
            f"y must name at least {fewest} environments. Got {len(labels)} ({shown}). "
            "Data of a single environment need a method that works without labels."
        )
    if reference is None:
        return Environments(labels, codes, counts)
    places = np.flatnonzero(labels == reference) if np.ndim(reference) == 0 else []
    if len(places) == 0:
        raise ValueError(
            f"The reference environment {reference!r} is not among the labels in y: {shown}. "
            "Name one of these with reference=."
        )
    return Environments(labels, codes, counts, int(places[0]))


def check_environment_sizes(environments: Environments, n_latents: int) -> Check:
    """Check that each environment has more rows than there are latents."""
    small = environments.labels[environments.counts <= n_latents]
    return Check(
        "environment sizes",
        len(small) == 0,
        f"environments with no more rows than the {n_latents} latents: {_listed(small) or 'none'}",
    )


def reference_of(environments: Environments) -> tuple[int, Check]:
    """Return the position of the observational environment, and how it was found."""
    name = "reference environment"
    if environments.reference is not None:
        label = environments.labels[environments.reference]
        return environments.reference, Check(name, True, f"{label}, as given")
    zero = np.flatnonzero(environments.labels == 0)
    if len(zero):
        return int(zero[0]), Check(name, True, "the one labelled 0")
    named = [e for e, label in enumerate(environments.labels) if _names_a_reference(label)]
    if len(named) == 1:
        return named[0], Check(name, True, f"{environments.labels[named[0]]}, by its name")
    found = (
        f"several have the name of one ({_listed(environments.labels[named])})"
        if named
        else "none is labelled 0 or has the name of one, such as control or wt"
    )
    taken = f"so {environments.labels[0]} was taken; name it by reference="
    return 0, Check(name, False, f"{found}, {taken}")


def _names_a_reference(label: Any) -> bool:
    plain = "".join(letter for letter in str(label).casefold() if letter.isalnum())
    return isinstance(label, str) and plain in _REFERENCE_NAMES


def reference_first(environments: Environments) -> NDArray[np.intp]:
    """Return the positions of the environments, the reference first."""
    reference, _ = reference_of(environments)
    others = [e for e in range(len(environments)) if e != reference]
    return np.array([reference, *others], dtype=np.intp)


def names_after(sources: Sequence[Sequence[Any]]) -> tuple[str, ...] | None:
    """Name latents after what intervenes on them.

    Parameters
    ----------
    sources
        Labels or targets of the interventions on each latent; a latent without any is z0, z1, ...

    Returns
    -------
    names
        No two alike. None if the sources are numbers: these count environments, not latents.
    """
    if not all(isinstance(source, str) and source.strip() for own in sources for source in own):
        return None
    names = [_joined(own) if own else f"z{j}" for j, own in enumerate(sources)]
    seen = Counter(names)
    names = [f"{name} (z{j})" if seen[name] > 1 else name for j, name in enumerate(names)]
    return tuple(names) if len(set(names)) == len(names) else None


def _joined(sources: Sequence[str]) -> str:
    whole = "/".join(sources)
    return whole if len(sources) == 1 or len(whole) <= _LONGEST_NAME else f"{sources[0]}/..."


def by_environment(
    rows: Matrix, environments: Environments, order: NDArray[np.intp]
) -> list[Matrix]:
    """Return the rows of the environments in an order; none may have too few."""
    small = environments.counts <= rows.shape[1]
    if small.any():
        raise ValueError(
            f"Every environment needs more than {rows.shape[1]} rows, one for each latent and one "
            f"more. Too few are in: {', '.join(map(str, environments.labels[small][:8]))}."
        )
    return [rows[environments.codes == e] for e in order]


def unused_label_checks(y: NDArray[Any] | None) -> tuple[Check, ...]:
    """Say that labels were not used; numbers with a fraction are no labels."""
    if y is None or y.dtype.kind == "f":
        return ()
    n_labels = len(set(y.tolist()))
    if n_labels < 2:
        return ()
    return (
        Check(
            "one environment",
            False,
            f"y has {n_labels} labels and was not used: all rows were taken for observational data "
            "of one environment. If labels are interventions, LinearInterventionCRL and "
            "MultiNodeCRL use them; else leave y out",
        ),
    )


def _listed(labels: NDArray[Any], at_most: int = 10) -> str:
    return ", ".join(map(str, labels[:at_most])) + (", ..." if len(labels) > at_most else "")
