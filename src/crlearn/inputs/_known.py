"""What is known before the data: the graph, the targets of each environment, the mixing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from crlearn.graph import check_dag
from crlearn.inputs._environments import Environments

BoolMatrix = NDArray[np.bool_]
Matrix = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class KnownDomains:
    """Graph and targets, checked against the environments of the data.

    Attributes
    ----------
    graph
        ``graph[i, j]`` is True if latent i causes latent j.
    targets
        ``targets[e, j]`` is True if environment e, in the order of the labels in y, intervenes on
        latent j.
    labels, rows
        Labels whose targets are known, those that are not in y included, and their targets.
    names
        Names of the latents; None: they have none.
    doses
        ``doses[e, j]`` is how much of its shift environment e adds to latent j; None: interventions
        are of another kind. `rows` then holds doses, too.
    """

    graph: BoolMatrix
    targets: BoolMatrix
    labels: tuple[Any, ...]
    rows: BoolMatrix | Matrix
    names: tuple[str, ...] | None = None
    doses: Matrix | None = None


def read_graph(graph: Any, n_latents: int | None) -> BoolMatrix:
    """Return the adjacency matrix of a known graph."""
    adjacency = check_dag(graph, name="graph")
    if n_latents is not None and len(adjacency) != n_latents:
        raise ValueError(
            f"The 'graph' must have one node for each latent. Got {len(adjacency)} nodes and "
            f"n_latents={n_latents}; leave n_latents out, the graph says it."
        )
    return adjacency


def names_of_nodes(graph: Any) -> tuple[str, ...] | None:
    """Return the names of the nodes of a graph that has names; None: its nodes are numbers."""
    nodes = tuple(graph.nodes) if isinstance(graph, nx.Graph) else ()
    return nodes if nodes and all(isinstance(node, str) for node in nodes) else None


def read_domains(
    graph: BoolMatrix,
    targets: Any,
    environments: Environments,
    names: tuple[str, ...] | None = None,
    *,
    doses: bool = False,
) -> KnownDomains:
    """Read targets: a mapping from labels to latents, or a 0/1 matrix in the order of labels.

    With `doses` entries of the matrix are any numbers, and a mapping may have a mapping from
    latents to doses for a label; latents without a dose have the dose one.
    """
    n = len(graph)
    if isinstance(targets, Mapping):
        table = {
            _plain(label): _doses_of(latents, n, names, label)
            if doses
            else _row(_numbered(_without_doses(latents, label), names, label), n, label)
            for label, latents in targets.items()
        }
    else:
        matrix = _matrix(targets, len(environments), n, doses=doses)
        table = dict(zip(map(_plain, environments.labels), matrix, strict=True))
    missing = [label for label in map(_plain, environments.labels) if label not in table]
    if missing:
        raise ValueError(
            f"The 'targets' must name every environment in y. Missing are {_listed(missing)}; "
            "write label: [] for an environment that intervenes on nothing. "
            f"Got targets of {_listed(table)}."
        )
    found: Any = np.array([table[_plain(label)] for label in environments.labels]).reshape(-1, n)
    rows: Any = np.array(list(table.values())).reshape(-1, n)
    return KnownDomains(
        graph,
        found != 0,
        tuple(table),
        rows,
        names,
        found if doses else None,
    )


def single_targets(targets: Any, environments: Environments) -> Mapping[Any, Any] | None:
    """Return what single environments intervene on, by label.

    Parameters
    ----------
    targets
        A mapping from labels to targets, a 0/1 matrix with a row for each label in order and at
        most one target each, or None.
    environments
        Those of y.
    """
    if targets is None or isinstance(targets, Mapping):
        return targets
    n = np.shape(targets)[1] if np.ndim(targets) == 2 else 0
    matrix = _matrix(targets, len(environments), n)
    if matrix.sum(axis=1).max(initial=0) > 1:
        label = _plain(environments.labels[int(matrix.sum(axis=1).argmax())])
        raise ValueError(
            "The 'targets' must name one latent for each environment here. Environment "
            f"{label!r} has {int(matrix.sum(axis=1).max())}; MultiNodeCRL takes several."
        )
    rows = zip(environments.labels, matrix, strict=True)
    return {_plain(label): int(row.argmax()) for label, row in rows if row.any()}


def distinct_targets(targets: Iterable[Any]) -> list[Any]:
    """Return different targets, numbers in their order and names as they come first."""
    distinct = list(dict.fromkeys(targets))
    numbers = all(isinstance(target, int | np.integer) for target in distinct)
    return sorted(distinct) if numbers else distinct


def intervened_rows(
    labels: Iterable[Any], rows: BoolMatrix | Matrix, y: NDArray[Any]
) -> BoolMatrix | Matrix:
    """Return the targets, or doses, of each row's environment."""
    place = {label: e for e, label in enumerate(labels)}
    found, codes = np.unique(y, return_inverse=True)
    unknown = [label for label in map(_plain, found) if label not in place]
    if unknown:
        raise ValueError(
            f"y names environments whose targets are not known: {_listed(unknown)}. Known are "
            f"{_listed(place)}. Give the targets of new environments to the constructor as "
            "targets={label: latents}, or leave y out."
        )
    return rows[[place[_plain(label)] for label in found]][codes]


def codes_of(labels: Iterable[Any], y: NDArray[Any]) -> NDArray[np.intp]:
    """Return the number of each row's environment among those of the fit."""
    place = {_plain(label): e for e, label in enumerate(labels)}
    found, codes = np.unique(y, return_inverse=True)
    unknown = [label for label in map(_plain, found) if label not in place]
    if unknown:
        raise ValueError(
            f"y names environments that the model was not fitted to: {_listed(unknown)}. Known are "
            f"{_listed(place)}. Leave y out for rows of other environments."
        )
    return np.array([place[_plain(label)] for label in found], dtype=np.intp)[codes]


def read_mixing(mixing: Any, n_features: int, n_latents: int) -> NDArray[np.floating] | None:
    """Return a mixing that is known; None where `mixing` only says of which kind it is."""
    if isinstance(mixing, str):
        return None
    matrix = np.asarray(mixing, dtype=float)
    if matrix.shape != (n_features, n_latents):
        raise ValueError(
            f"A known 'mixing' must have shape ({n_features}, {n_latents}): one row for each "
            f"feature and one column for each latent. Got shape {matrix.shape} instead."
        )
    if np.linalg.matrix_rank(matrix) < n_latents:
        raise ValueError(
            "A known 'mixing' must have linearly independent columns, or latents cannot be "
            f"told apart. Got rank {np.linalg.matrix_rank(matrix)} for {n_latents} latents."
        )
    return matrix


def read_weights(weights: Any, environments: Environments) -> NDArray[np.floating] | None:
    """Return the weight of each row, with mean one; None if all are alike.

    ``"equal"`` gives all environments the same weight together, whatever their sizes.
    """
    if weights is None:
        return None
    if isinstance(weights, str) and weights == "equal":
        weights = 1.0 / environments.counts
    if isinstance(weights, Mapping):
        table = {_plain(label): weight for label, weight in weights.items()}
        missing = [label for label in map(_plain, environments.labels) if label not in table]
        if missing:
            raise ValueError(
                f"'environment_weights' must name every environment in y. Missing are "
                f"{_listed(missing)}."
            )
        weights = [table[_plain(label)] for label in environments.labels]
    by_environment = np.asarray(weights)
    numbers = by_environment.dtype.kind in "biuf"
    by_environment = by_environment.astype(float) if numbers else np.empty(0)
    good = by_environment.shape == (len(environments),) and np.isfinite(by_environment).all()
    if not good or by_environment.min() < 0 or not by_environment.any():
        raise ValueError(
            "'environment_weights' must be 'equal' or hold one number for each of the "
            f"{len(environments)} environments in y, none negative and not all zero. "
            f"Got {weights!r} instead."
        )
    by_row = by_environment[environments.codes]
    return by_row / by_row.mean()


def _numbered(latents: Any, names: tuple[str, ...] | None, label: Any) -> Any:
    """Return latents by number where the graph has given them names."""
    given = np.atleast_1d(np.asarray(latents)).tolist()
    if names is None or not given or not all(isinstance(item, str) for item in given):
        return latents
    unknown = [item for item in given if item not in names]
    if unknown:
        raise ValueError(
            f"The 'targets' of an environment must be nodes of the graph: {_listed(names)}. "
            f"Got {_listed(unknown)} for environment {label!r}."
        )
    return [names.index(item) for item in given]


def _row(latents: Any, n: int, label: Any) -> NDArray[np.bool_]:
    """Read the targets of one environment: a latent, some latents, or a row of 0 and 1."""
    given = np.atleast_1d(np.asarray(latents))
    if given.dtype == bool and given.shape == (n,):
        return given.copy()
    whole = given.size == 0 or given.dtype.kind in "iu"
    if given.ndim != 1 or not whole or (given.size and not (0 <= given.min() <= given.max() < n)):
        raise ValueError(
            f"The 'targets' of an environment must be latents from 0 to {n - 1}, as the graph has "
            f"{n} nodes. Got {latents!r} for environment {label!r}."
        )
    row = np.zeros(n, dtype=bool)
    row[given.astype(np.intp)] = True
    return row


def _without_doses(latents: Any, label: Any) -> Any:
    """Return latents that were given without doses."""
    if isinstance(latents, Mapping):
        raise ValueError(
            "The 'targets' of an environment can have doses with interventions='shift' only, where "
            f"they multiply what an intervention adds. Got {dict(latents)!r} for environment "
            f"{label!r}; give the latents alone, or take "
            "EmpiricalBayesCRL with interventions='shift'."
        )
    return latents


def _doses_of(latents: Any, n: int, names: tuple[str, ...] | None, label: Any) -> Matrix:
    """Read the doses of one environment: one for each latent in a mapping, or ones."""
    if not isinstance(latents, Mapping):
        return _row(_numbered(latents, names, label), n, label).astype(float)
    row = np.zeros(n)
    for latent, dose in latents.items():
        hit = _row(_numbered([latent], names, label), n, label)
        if not isinstance(dose, Real) or not np.isfinite(float(dose)):
            raise ValueError(
                "The doses of an environment must be finite numbers. "
                f"Got {dose!r} for latent {latent!r} of environment {label!r}."
            )
        row[hit] = float(dose)
    return row


def _matrix(targets: Any, n_environments: int, n: int, *, doses: bool = False) -> Any:
    matrix = np.asarray(targets)
    if doses:
        if matrix.shape != (n_environments, n) or not np.isfinite(matrix.astype(float)).all():
            raise ValueError(
                "The 'targets' must be a mapping from labels to latents and doses, or an array of "
                f"finite doses with one row for each of the {n_environments} environments in y "
                f"(in the order of their labels) and one column for each of the {n} latents. Got "
                f"shape {matrix.shape} instead."
            )
        return matrix.astype(float)
    binary = matrix.dtype.kind in "biuf" and np.isin(matrix, (0, 1)).all()
    if matrix.shape != (n_environments, n) or not binary:
        raise ValueError(
            f"The 'targets' must be a mapping from labels to latents, or a 0/1 array with one row "
            f"for each of the {n_environments} environments in y (in the order of their labels) "
            f"and one column for each of the {n} latents. Got shape {matrix.shape} instead"
            + (
                "."
                if binary
                else ", with other numbers; doses need interventions='shift' of EmpiricalBayesCRL."
            )
        )
    return matrix.astype(bool)


def _plain(label: Any) -> Any:
    """Return a label as Python has it, so that 1 and numpy's 1 are the same key."""
    plain = label.item() if isinstance(label, np.generic) else label
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


def _listed(labels: Iterable[Any], at_most: int = 8) -> str:
    names = [repr(label) for label in labels]
    return ", ".join(names[:at_most]) + (", ..." if len(names) > at_most else "")
