"""Operations on directed graphs.

A graph is a bool matrix with ``adjacency[i, j]`` True if i -> j; functions take anything that
`check_dag` accepts.
"""

from crlearn.graph._check import GraphLike, check_adjacency, check_dag, find_cycle
from crlearn.graph._closest import closest_dag
from crlearn.graph._convert import (
    from_causallearn,
    from_networkx,
    to_causallearn,
    to_dowhy,
    to_networkx,
)
from crlearn.graph._cpdag import cpdag
from crlearn.graph._order import (
    ancestors,
    descendants,
    layers,
    parents_of,
    topological_order,
    transitive_closure,
    transitive_reduction,
)

__all__ = [
    "GraphLike",
    "ancestors",
    "check_adjacency",
    "check_dag",
    "closest_dag",
    "cpdag",
    "descendants",
    "find_cycle",
    "from_causallearn",
    "from_networkx",
    "layers",
    "parents_of",
    "to_causallearn",
    "to_dowhy",
    "to_networkx",
    "topological_order",
    "transitive_closure",
    "transitive_reduction",
]
