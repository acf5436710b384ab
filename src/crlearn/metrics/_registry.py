"""The metrics, each in one entry: what it compares, what is perfect, and what chance reaches.

Whatever lists, explains, draws or checks metrics reads `METRICS`; to add one is to add its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from crlearn.exceptions import MissingExtraError, import_extra
from crlearn.metrics._alignment import (
    coverage,
    frobenius,
    relmse,
    relmse_by_environment,
    relmse_worst,
)
from crlearn.metrics._chance import (
    Sizes,
    block_level,
    layer_level,
    mac_level,
    matched_level,
    matched_rank_level,
    share_level,
)
from crlearn.metrics._check import Matrix
from crlearn.metrics._comparison import MIXED, Comparison, Unavailable
from crlearn.metrics._correlation import mac, mac_matched, mcc
from crlearn.metrics._graphs import (
    edge_f1,
    edge_precision,
    edge_recall,
    shd,
    shd_closure,
    shd_cpdag,
    shd_pc,
    targets_right,
)
from crlearn.metrics._subspace import (
    block_recovery,
    layer_recovery,
    r2,
    r2_across_blocks,
    r2_within_blocks,
)
from crlearn.metrics._unmixing import (
    ancestor_error,
    nested_error,
    parent_error,
    scale_error,
    surrounding_error,
)
from crlearn.result import GraphLevel, LatentLevel


@dataclass(frozen=True, eq=False)
class Metric:
    """One way to compare a fitted model with the truth.

    Attributes
    ----------
    name
        What `evaluate` and studies call it.
    compute
        Its value, or `Unavailable` where model or dataset lack something that it needs.
    description
        What it says, in one line.
    unit
        Of its values.
    perfect
        What the truth itself scores; None where that is not known beforehand.
    chance
        What a random rotation of whitened latents scores, by numbers of latents and sizes of
        groups; None where that means nothing.
    latents, graphs
        Levels of a guarantee for which `evaluate` computes it unasked.
    sizes
        Numbers and sizes that `chance` takes.
    environment
        The environment that it looks at, counted from one, if it is a single one.
    needs
        The module of an optional package, and the extra that brings it; None: it needs no more.
    """

    name: str
    compute: Callable[[Comparison], float]
    description: str
    unit: str
    perfect: float | None = None
    chance: Callable[[Sizes], float] | None = None
    latents: tuple[LatentLevel, ...] = ()
    graphs: tuple[GraphLevel, ...] = ()
    sizes: Callable[[Comparison], Sizes] = lambda found: Sizes(found.n_latents, found.n_recovered)
    environment: int | None = None
    needs: tuple[str, str] | None = None

    @property
    def larger_is_better(self) -> bool | None:
        """Whether values grow towards perfection; None where none is perfect."""
        return None if self.perfect is None else self.perfect > 0

    def check_installed(self) -> None:
        """Raise `MissingExtraError` if the optional package that it needs is not there."""
        if self.needs is not None:
            import_extra(*self.needs)


def _signal_to_error(exact: Matrix, estimated: Matrix) -> float:
    """Compare mean squares; errors that are rounding alone are none."""
    signal, error = float((exact**2).mean()), float(((estimated - exact) ** 2).mean())
    if error <= _ROUNDING * signal:
        raise Unavailable("the model was given the true score")
    return signal / error


def _centred(matrices: Matrix) -> Matrix:
    return matrices - matrices.mean(axis=0)


def _layer_recovery(found: Comparison) -> float:
    """Compare exogenous noises, or the latents up to upstream layers if there are no noises."""
    if found.recovers_noise:
        return layer_recovery(found.noise, found.noise_hat, found.layers, found.layers_hat)
    return layer_recovery(found.Z, found.Z_hat, found.layers, found.layers_hat, upstream=True)


def _relmse_environment(number: int, found: Comparison) -> float:
    errors = relmse_by_environment(found.Z, found.Z_hat, found.labels)
    if number > len(errors):
        raise Unavailable(f"there are {len(errors)} environments only")
    return float(errors[number - 1])


def _correlation_of_latent(number: int, found: Comparison) -> float:
    if number > found.n_latents:
        raise Unavailable(f"there are {found.n_latents} latents only")
    partner = dict(found.matching.tolist()).get(number - 1)
    if partner is None:
        raise Unavailable(f"no recovered latent is left for latent {number}")
    return mcc(found.Z[:, [number - 1]], found.Z_hat[:, [partner]])


def _layer_sizes(found: Comparison) -> Sizes:
    true, recovered = _sizes_of(found.layers), _sizes_of(found.layers_hat)
    return Sizes(found.n_latents, found.n_recovered, true, recovered)


def _block_sizes(found: Comparison) -> Sizes:
    return Sizes(found.n_latents, found.n_recovered, None, _sizes_of(found.blocks_hat))


def _true_block_sizes(found: Comparison) -> Sizes:
    return Sizes(found.n_latents, found.n_recovered, _sizes_of(found.blocks))


def _r2_across_blocks(found: Comparison) -> float:
    if len(found.blocks) < 2:
        raise Unavailable("all latents are in one block")
    return r2_across_blocks(found.Z, found.Z_hat, found.blocks)


def _sizes_of(groups: Sequence[ArrayLike]) -> tuple[int, ...]:
    return tuple(np.size(group) for group in groups)


def _shd_by_pc(graph: ArrayLike, Z: ArrayLike, active: ArrayLike | None) -> float:
    try:
        return shd_pc(graph, Z, active=active)
    except (MissingExtraError, ValueError) as reason:  # the latter: rows that PC cannot use
        raise Unavailable(str(reason).rstrip(".")) from reason


_PC = ("causallearn.search.ConstraintBased.PC", "graph")
_ROUNDING = 1e-12  # mean square error of Jacobians, relative to their size, that is none
_RIGHT = 0.9  # accuracy from which an answer counts as right


def _accuracy(found: Comparison) -> float:
    """Return how much of what the guarantee is about was found, latents or graph."""
    aim = found.result.guarantee.intended or found.result.guarantee
    parts = []
    if aim.latents == "layers":
        parts.append(_layer_recovery(found))
    elif aim.latents == "elementwise":
        parts.append(mcc(found.Z, found.Z_hat, "spearman"))
    elif aim.latents not in MIXED:  # there a mixture is as good
        parts.append(mcc(found.Z, found.Z_hat))
    if aim.graph in ("exact", "closure"):
        n_pairs = max(found.n_latents * (found.n_latents - 1) / 2, 1)
        distance = shd if aim.graph == "exact" else shd_closure
        parts.append(max(1 - distance(*found.graphs) / n_pairs, 0.0))
    return min(parts, default=1.0)


def _is_warned(found: Comparison) -> bool:
    return bool(found.result.failed_checks)


_ENTRIES = (
    Metric(
        "mcc",
        lambda found: mcc(found.Z, found.Z_hat),
        "mean absolute correlation of true and recovered latents after optimal matching",
        "correlation",
        perfect=1.0,
        chance=matched_level,
        latents=("scale", "elementwise", *MIXED, "span", "none"),
    ),
    # As many latents have a number of their own, for studies in which some are not identified.
    *(
        Metric(
            f"mcc_latent_{number}",
            partial(_correlation_of_latent, number),
            f"absolute correlation of true latent {number} with its match",
            "correlation",
            perfect=1.0,
        )
        for number in range(1, 5)
    ),
    Metric(
        "mcc_spearman",
        lambda found: mcc(found.Z, found.Z_hat, "spearman"),
        "mean absolute rank correlation of true and recovered latents after optimal matching",
        "correlation",
        perfect=1.0,
        chance=matched_rank_level,
        latents=("scale", "elementwise"),
    ),
    Metric(
        "layer_recovery",
        _layer_recovery,
        "how well each true layer is spanned by the recovered layer in its place",
        "correlation",
        perfect=1.0,
        chance=layer_level,
        sizes=_layer_sizes,
        latents=("layers",),
    ),
    Metric(
        "mac",
        lambda found: mac(found.noise, found.noise_hat),
        "mean absolute correlation of true and recovered noises in the order given",
        "correlation",
        perfect=1.0,
        chance=mac_level,
        latents=("layers",),
    ),
    Metric(
        "mac_matched",
        lambda found: mac_matched(found.noise, found.noise_hat),
        "mean absolute correlation of true and recovered noises after optimal matching",
        "correlation",
        perfect=1.0,
        chance=matched_level,
        latents=("layers",),
    ),
    Metric(
        "noise_mcc",
        lambda found: mcc(*found.noises_within_environments),
        "mean absolute correlation of noises, without the means of environments, after matching",
        "correlation",
        perfect=1.0,
        chance=matched_level,
    ),
    Metric(
        "block_recovery",
        lambda found: block_recovery(found.Z, found.Z_hat, blocks_hat=found.blocks_hat),
        "how well each block of true latents is spanned by one block of recovered ones",
        "correlation",
        perfect=1.0,
        chance=block_level,
        sizes=_block_sizes,
        latents=("blocks",),
    ),
    Metric(
        "r2",
        lambda found: r2(found.Z, found.Z_hat),
        "share of the variance of the true latents that an affine map of the recovered explains",
        "share",
        perfect=1.0,
        latents=get_args(LatentLevel),
    ),
    Metric(
        "r2_within_blocks",
        lambda found: r2_within_blocks(found.Z, found.Z_hat, found.blocks),
        "share of the variance of each recovered latent that its true block explains",
        "share",
        perfect=1.0,
        chance=share_level,
        sizes=_true_block_sizes,
    ),
    # No value is perfect: dependent blocks explain something of each other.
    Metric(
        "r2_across_blocks",
        _r2_across_blocks,
        "share of the variance of each recovered latent that another true block explains",
        "share",
    ),
    Metric(
        "relmse",
        lambda found: relmse(found.Z, found.Z_hat),
        "squared error of the recovered latents relative to the size of the true ones",
        "relative squared error",
        perfect=0.0,
    ),
    Metric(
        "relmse_worst",
        lambda found: relmse_worst(found.Z, found.Z_hat, found.labels),
        "relmse of the worst environment",
        "relative squared error",
        perfect=0.0,
    ),
    # As many environments have a number of their own, for figures that show each.
    *(
        Metric(
            f"relmse_environment_{number}",
            partial(_relmse_environment, number),
            f"relmse of environment {number} in the order of labels",
            "relative squared error",
            perfect=0.0,
            environment=number,
        )
        for number in range(1, 5)
    ),
    Metric(
        "coverage",
        lambda found: coverage(found.Z, *found.intervals),
        "share of the true latents that lie inside their 90% intervals",
        "share",
    ),
    Metric(
        "frobenius",
        lambda found: frobenius(found.mixing, found.mixing_hat),
        "squared Frobenius error of the mixing matrix after alignment of its columns",
        "squared error",
        perfect=0.0,
    ),
    Metric(
        "scale_error",
        lambda found: scale_error(*found.linear_maps, match=False),
        "spectral norm of what each recovered latent has of any other true latent",
        "spectral norm",
        perfect=0.0,
        latents=("scale",),
    ),
    Metric(
        "parent_error",
        lambda found: parent_error(*found.linear_maps, found.graph, match=False),
        "spectral norm of what each recovered latent has of others than its parents",
        "spectral norm",
        perfect=0.0,
        latents=("parents",),
    ),
    Metric(
        "ancestor_error",
        lambda found: ancestor_error(*found.linear_maps, found.graph, match=False),
        "spectral norm of what each recovered latent has of others than its ancestors",
        "spectral norm",
        perfect=0.0,
        latents=("ancestors",),
    ),
    Metric(
        "surrounding_error",
        lambda found: surrounding_error(*found.linear_maps, found.graph, match=False),
        "spectral norm of what each recovered latent has of others than its surrounding parents",
        "spectral norm",
        perfect=0.0,
        latents=("surrounding",),
    ),
    Metric(
        "nested_error",
        lambda found: nested_error(*found.linear_maps, found.graph, match=False),
        "spectral norm of what each recovered latent has of others that lack one of its children",
        "spectral norm",
        perfect=0.0,
    ),
    Metric(
        "shd",
        lambda found: shd(*found.graphs),
        "structural Hamming distance: edges to add, to delete or to reverse",
        "edges",
        perfect=0.0,
        graphs=("exact",),
    ),
    Metric(
        "shd_closure",
        lambda found: shd_closure(*found.graphs),
        "structural Hamming distance of the transitive closures: who is whose ancestor",
        "edges",
        perfect=0.0,
        graphs=("closure",),
    ),
    Metric(
        "shd_cpdag",
        lambda found: shd_cpdag(*found.partial_graphs),
        "node pairs whose edge differs between the completed PDAGs",
        "edges",
        perfect=0.0,
        graphs=("cpdag",),
    ),
    Metric(
        "shd_pc",
        lambda found: _shd_by_pc(found.graph, *found.matched_latents),
        "node pairs whose edge PC finds otherwise on recovered latents than the CPDAG has it",
        "edges",
        needs=_PC,
    ),
    Metric(
        "shd_pc_of_truth",
        lambda found: _shd_by_pc(found.graph, found.Z, found.active),
        "shd_pc of the true latents: what a perfect recovery would have",
        "edges",
        needs=_PC,
    ),
    Metric(
        "edge_precision",
        lambda found: edge_precision(*found.graphs),
        "share of the recovered edges that are true, direction included",
        "share",
        perfect=1.0,
        graphs=("exact",),
    ),
    Metric(
        "edge_recall",
        lambda found: edge_recall(*found.graphs),
        "share of the true edges that were recovered, direction included",
        "share",
        perfect=1.0,
        graphs=("exact",),
    ),
    Metric(
        "edge_f1",
        lambda found: edge_f1(*found.graphs),
        "harmonic mean of edge_precision and edge_recall",
        "share",
        perfect=1.0,
        graphs=("exact",),
    ),
    Metric(
        "targets_right",
        lambda found: targets_right(*found.targets),
        "share of the environments whose set of targets is exactly right",
        "share",
        perfect=1.0,
        graphs=("exact", "closure", "cpdag", "layers", "none"),
    ),
    Metric(
        "accuracy",
        _accuracy,
        "the worse of the latents' correlation and the share of pairs with the right edge",
        "share",
        perfect=1.0,
    ),
    Metric(
        "warned",
        lambda found: float(_is_warned(found)),
        "whether a check failed, so that the fit warned",
        "share of fits",
    ),
    Metric(
        "silently_wrong",
        lambda found: float(_accuracy(found) < _RIGHT and not _is_warned(found)),
        "whether accuracy is below 0.9 and no check failed",
        "share of fits",
        perfect=0.0,
    ),
    Metric(
        "false_alarm",
        lambda found: float(_accuracy(found) >= _RIGHT and _is_warned(found)),
        "whether accuracy is 0.9 or more and a check failed",
        "share of fits",
        perfect=0.0,
    ),
    Metric(
        "signal_to_error",
        lambda found: _signal_to_error(*found.jacobians),
        "mean square of the score's Jacobians over that of the errors of their estimates",
        "ratio",
    ),
    Metric(
        "centred_signal_to_error",
        lambda found: _signal_to_error(*map(_centred, found.jacobians)),
        "the same of Jacobians less their means over rows, by which leaves are told",
        "ratio",
    ),
    Metric(
        "gain_over_gaussian",
        lambda found: found.stated("gain_over_gaussian"),
        "log evidence of the fit over that of a Gaussian without structure",
        "nats",
    ),
    Metric(
        "evidence_gap",
        lambda found: found.evidence_gap,
        "log evidence of the fit over that of the best competing structure with another answer",
        "nats",
    ),
)

# Every metric that `evaluate` knows, by name.
METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ENTRIES})


def find_metrics(names: str | Sequence[str], argument: str = "metrics") -> list[Metric]:
    """Return metrics by their names, or say which names there are."""
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(
            f"{argument} must be among {', '.join(METRICS)}. Got {', '.join(map(repr, unknown))}."
        )
    return [METRICS[name] for name in names]


def chance_level(
    metric: str,
    n_latents: int,
    *,
    n_recovered: int | None = None,
    sizes: Sequence[int] | None = None,
    sizes_hat: Sequence[int] | None = None,
) -> float | None:
    """Return the expected value of a metric for a random rotation of whitened latents.

    A closed form for ``"mac"``, a Monte-Carlo mean with a fixed seed (error about 0.002) for the
    others.

    Parameters
    ----------
    metric
        Name of the metric.
    n_latents
        Number of true latents.
    n_recovered
        Number of recovered latents, if it differs.
    sizes, sizes_hat
        Sizes of the true and recovered layers or blocks, for ``"layer_recovery"``,
        ``"block_recovery"`` and (the true ones) ``"r2_within_blocks"``; one that is left out is
        treated as in these functions.

    Returns
    -------
    level
        None for metrics that have no such level: a rotation has an `r2` of 1, and graphs and errors
        are not correlations.

    Examples
    --------
    >>> round(chance_level("mac", 4), 3), round(chance_level("mcc", 4), 2)
    (0.424, 0.77)
    """
    (found,) = find_metrics(metric, "metric")
    known = Sizes.checked(n_latents, n_recovered, sizes, sizes_hat)
    return None if found.chance is None else found.chance(known)
