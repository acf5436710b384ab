"""What every method does before its own mathematics: read `y`, and reduce X to its span."""

from crlearn.inputs._environments import (
    Environments,
    by_environment,
    check_environment_sizes,
    read_environments,
    reference_first,
    reference_of,
)
from crlearn.inputs._known import (
    KnownDomains,
    intervened_rows,
    read_domains,
    read_graph,
    read_mixing,
    read_weights,
)
from crlearn.inputs._measurement import Measurement, measure
from crlearn.inputs._span import (
    Scaling,
    check_columns,
    choose_n_latents,
    in_readable_units,
    whitening,
)

__all__ = [
    "Environments",
    "KnownDomains",
    "Measurement",
    "Scaling",
    "by_environment",
    "check_columns",
    "check_environment_sizes",
    "choose_n_latents",
    "in_readable_units",
    "intervened_rows",
    "measure",
    "read_domains",
    "read_environments",
    "read_graph",
    "read_mixing",
    "read_weights",
    "reference_first",
    "reference_of",
    "whitening",
]
