"""Worlds with known truth, and other people's data.

A world is a graph, a structural causal model on it, what each environment does to the model, and
a mixing: `make_world` combines any of these, and the other ``make_`` functions are the worlds of
the papers. `WORLDS` holds them all by name, as the command line lists them.
"""

from collections.abc import Callable

from crlearn.data._convert import (
    TABLE_TYPES,
    from_anndata,
    from_pandas,
    from_polars,
    read_table,
    table_columns,
    to_anndata,
    to_pandas,
    to_polars,
    write_table,
)
from crlearn.data._dataset import Dataset, Truth
from crlearn.data.model._graphs import (
    chain,
    empty,
    erdos_renyi,
    erdos_renyi_k,
    fork,
    full,
    make_graph,
    y_graph,
)
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._layer import Layer
from crlearn.data.model._mechanisms import (
    MLP,
    Linear,
    Mechanism,
    NormSquared,
    QuadraticForm,
    Scaled,
    Sine,
    TanhCubic,
    random_mechanism,
)
from crlearn.data.model._mixing import (
    Mixing,
    curved_mixing,
    leaky_relu_mixing,
    linear_mixing,
    make_mixing,
    network_mixing,
    polynomial_mixing,
    smooth_mixing,
    tanh_mixing,
    tanh_mlp_mixing,
    wide_mlp_mixing,
)
from crlearn.data.model._node import Node
from crlearn.data.model._noise import (
    Exponential,
    Gaussian,
    Gumbel,
    Laplace,
    Noise,
    StudentT,
    Uniform,
    make_noise,
)
from crlearn.data.model._scm import SCM, make_scm
from crlearn.data.worlds._arm import make_arm
from crlearn.data.worlds._arm_views import ArmMarkers, ArmRendering
from crlearn.data.worlds._broken import make_broken
from crlearn.data.worlds._images import BallRendering, make_ball_images
from crlearn.data.worlds._interventional import (
    make_coupled_interventional,
    make_linear_interventional,
    make_multi_domain,
    make_multi_node,
)
from crlearn.data.worlds._observational import make_observational
from crlearn.data.worlds._resting_balls import make_resting_balls
from crlearn.data.worlds._segments import make_latent_anm, make_segments
from crlearn.data.worlds._series import load_weather, make_mixed_series
from crlearn.data.worlds._sparse_mixture import make_sparse_mixture
from crlearn.data.worlds._world import make_world, simulate
from crlearn.data.worlds.measured._counts import make_count_interventional
from crlearn.data.worlds.measured._gaussian import make_noisy_interventional

# Every world by name: what the command line and the studies may ask for.
WORLDS: dict[str, Callable[..., Dataset]] = {
    "world": make_world,
    "linear-interventional": make_linear_interventional,
    "multi-node": make_multi_node,
    "coupled-interventional": make_coupled_interventional,
    "ball-images": make_ball_images,
    "resting-balls": make_resting_balls,
    "arm": make_arm,
    "observational": make_observational,
    "multi-domain": make_multi_domain,
    "latent-anm": make_latent_anm,
    "segments": make_segments,
    "mixed-series": make_mixed_series,
    "sparse-mixture": make_sparse_mixture,
    "broken": make_broken,
    "noisy-interventional": make_noisy_interventional,
    "count-interventional": make_count_interventional,
}

__all__ = [
    "MLP",
    "SCM",
    "TABLE_TYPES",
    "WORLDS",
    "ArmMarkers",
    "ArmRendering",
    "BallRendering",
    "Dataset",
    "Exponential",
    "Gaussian",
    "Gumbel",
    "Intervention",
    "Laplace",
    "Layer",
    "Linear",
    "Mechanism",
    "Mixing",
    "Node",
    "Noise",
    "NormSquared",
    "QuadraticForm",
    "Scaled",
    "Sine",
    "StudentT",
    "TanhCubic",
    "Truth",
    "Uniform",
    "chain",
    "curved_mixing",
    "empty",
    "erdos_renyi",
    "erdos_renyi_k",
    "fork",
    "from_anndata",
    "from_pandas",
    "from_polars",
    "full",
    "leaky_relu_mixing",
    "linear_mixing",
    "load_weather",
    "make_arm",
    "make_ball_images",
    "make_broken",
    "make_count_interventional",
    "make_coupled_interventional",
    "make_graph",
    "make_latent_anm",
    "make_linear_interventional",
    "make_mixed_series",
    "make_mixing",
    "make_multi_domain",
    "make_multi_node",
    "make_noise",
    "make_noisy_interventional",
    "make_observational",
    "make_resting_balls",
    "make_scm",
    "make_segments",
    "make_sparse_mixture",
    "make_world",
    "network_mixing",
    "polynomial_mixing",
    "random_mechanism",
    "read_table",
    "simulate",
    "smooth_mixing",
    "table_columns",
    "tanh_mixing",
    "tanh_mlp_mixing",
    "to_anndata",
    "to_pandas",
    "to_polars",
    "wide_mlp_mixing",
    "write_table",
    "y_graph",
]
