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
    best_order,
    descendants,
    layers,
    parents_of,
    topological_order,
    transitive_closure,
    transitive_reduction,
)
from crlearn.graph._parents import (
    Graph,
    Parents,
    adjacency_of,
    complete_graph,
    graph_of,
    is_acyclic,
    neighbours,
    surrounding_parents,
    with_parents,
)
from crlearn.graph._pc import pc_cpdag

__all__ = [
    "Graph",
    "GraphLike",
    "Parents",
    "adjacency_of",
    "ancestors",
    "best_order",
    "check_adjacency",
    "check_dag",
    "closest_dag",
    "complete_graph",
    "cpdag",
    "descendants",
    "find_cycle",
    "from_causallearn",
    "from_networkx",
    "graph_of",
    "is_acyclic",
    "layers",
    "neighbours",
    "parents_of",
    "pc_cpdag",
    "surrounding_parents",
    "to_causallearn",
    "to_dowhy",
    "to_networkx",
    "topological_order",
    "transitive_closure",
    "transitive_reduction",
    "with_parents",
]
