"""What every method does before its own mathematics: read `y`, and reduce X to its span."""

from crlearn.inputs._components import Components, is_wide, leading_components
from crlearn.inputs._count import Count, NumberOfLatents, count_latents, resolve_n_latents
from crlearn.inputs._covariates import CovariateEffects, read_covariates, without_effects
from crlearn.inputs._environments import (
    Environments,
    by_environment,
    check_environment_sizes,
    names_after,
    read_environments,
    reference_first,
    reference_of,
    unused_label_checks,
)
from crlearn.inputs._held import Held
from crlearn.inputs._known import (
    KnownDomains,
    codes_of,
    distinct_targets,
    intervened_rows,
    names_of_nodes,
    read_domains,
    read_graph,
    read_mixing,
    read_weights,
    single_targets,
)
from crlearn.inputs._measurement import Measurement, measure
from crlearn.inputs._outliers import MOST_FAR_OUT, Distances, robust_distances
from crlearn.inputs._signal import NoiseName, Signal, read_signal
from crlearn.inputs._span import (
    Scaling,
    check_columns,
    check_enough_rows,
    choose_n_latents,
    components_of,
    in_readable_units,
    whitening,
)

__all__ = [
    "MOST_FAR_OUT",
    "Components",
    "Count",
    "CovariateEffects",
    "Distances",
    "Environments",
    "Held",
    "KnownDomains",
    "Measurement",
    "NoiseName",
    "NumberOfLatents",
    "Scaling",
    "Signal",
    "by_environment",
    "check_columns",
    "check_enough_rows",
    "check_environment_sizes",
    "choose_n_latents",
    "codes_of",
    "components_of",
    "count_latents",
    "distinct_targets",
    "in_readable_units",
    "intervened_rows",
    "is_wide",
    "leading_components",
    "measure",
    "names_after",
    "names_of_nodes",
    "read_covariates",
    "read_domains",
    "read_environments",
    "read_graph",
    "read_mixing",
    "read_signal",
    "read_weights",
    "reference_first",
    "reference_of",
    "resolve_n_latents",
    "robust_distances",
    "single_targets",
    "unused_label_checks",
    "whitening",
    "without_effects",
]
