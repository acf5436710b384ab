"""Targets and a graph that users know, read as what a flow's search needs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.flows import Assignment
from crlearn.inputs import distinct_targets, names_after

BoolMatrix = NDArray[np.bool_]


def read_assignment(
    labels: Sequence[Any],
    targets: Mapping[Hashable, Hashable] | None,
    n_latents: int,
    graph: BoolMatrix | None = None,
    nodes: Sequence[str] | None = None,
) -> tuple[Assignment, tuple[str, ...] | None]:
    """Return what is known of the targets, and the names of the latents if these are texts.

    Parameters
    ----------
    labels
        Of the environments but the reference.
    targets
        What environments intervene on, by label; those that it does not name are to be found.
    n_latents
        Number of latents.
    graph, nodes
        The graph if it is known, and the names of its nodes if they are not 0, 1, ...
    """
    targets = {} if targets is None else targets
    unknown = [label for label in targets if label not in labels]
    if unknown:
        raise ValueError(
            "The 'targets' parameter must name environments that are in y. Not there: "
            f"{', '.join(map(repr, unknown))}."
        )
    if graph is not None:
        _refuse_unknown_nodes(labels, targets, nodes or range(n_latents))
        distinct: list[Any] = list(nodes or range(n_latents))
    else:
        distinct = distinct_targets(targets[label] for label in labels if label in targets)
    if len(distinct) > n_latents:
        raise IdentifiabilityError(
            f"The 'targets' parameter names {len(distinct)} different targets, and there are "
            f"{n_latents} latents. Give n_latents={len(distinct)} or more, or merge targets."
        )
    known = tuple((distinct.index(targets[e]),) if e in targets else None for e in labels)
    causes = None if graph is None else tuple(tuple(np.flatnonzero(c).tolist()) for c in graph.T)
    sources = [[target] for target in distinct] + [[]] * (n_latents - len(distinct))
    names = names_after(sources) if distinct else None
    return Assignment(0, ((), *known), causes), names


def _refuse_unknown_nodes(
    labels: Sequence[Any], targets: Mapping[Hashable, Hashable], nodes: Sequence[Any]
) -> None:
    """Refuse a graph whose nodes are not those that the targets name."""
    missing = [label for label in labels if label not in targets]
    if missing:
        raise ValueError(
            "A known 'graph' needs 'targets' for every environment but the reference. It has none "
            f"for {', '.join(map(repr, missing))}."
        )
    strange = [target for target in targets.values() if target not in nodes]
    if strange:
        raise ValueError(
            f"The 'targets' parameter must name nodes of the graph, {', '.join(map(repr, nodes))}. "
            f"Got {', '.join(map(repr, strange))}."
        )
