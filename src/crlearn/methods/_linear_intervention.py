"""Linear mixing, one intervention on each latent (the setting of LSCALE-I).

Recovers the latents and the graph among them from an observational environment and one environment
for each latent in which that latent's mechanism was changed; nobody needs to know which one. With
hard interventions (the latent is cut off its parents) each latent is recovered up to scale and the
graph exactly; with soft ones each latent up to a mixture with its parents, and the graph up to its
transitive closure.

The paper estimates the scores of every environment, subtracts them, and reads the encoder from the
range and the graph from the support of the differences. Plug-in scores are the weak point: on the
paper's own tables their error hides weak edges. This implementation maximises a likelihood that has
the structure built in:

1. X is reduced to the span of the mixing and whitened.
2. *Without an order*: each environment changes one row of a factor of the precision matrix. A
   Newton method on covariances finds the rows, whatever the graph.
3. *With an order*: every latent is regressed on its predecessors, over all environments that leave
   it alone; orders are searched by moving one latent at a time, and edges removed by BIC. This is
   the answer if it cannot be told from a Gaussian of its own for every environment.
4. *Nonlinear mechanisms* otherwise: regressions on smooth features of the parents, the encoder by
   Newton's method with the exact Hessian, the graph by moves of single edges under BIC, first on a
   part of the rows, then on all.
5. *Noise that is not Gaussian*: if smooth densities of the noises gain more than they cost, encoder
   and graph are fitted with them.

Time grows linearly in the rows (one pass to reduce X; without step 4 nothing else sees them) and as
the sixth power of the number of latents for the Newton steps; memory holds one copy of the reduced
rows.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26(112), 2025.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import BaseCRL
from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import transitive_closure
from crlearn.inputs import (
    Environments,
    by_environment,
    check_environment_sizes,
    in_readable_units,
    read_environments,
    reference_first,
    reference_of,
    whitening,
)
from crlearn.likelihood import (
    LinearFit,
    LinearProblem,
    Moments,
    NoisyFit,
    NonlinearFit,
    adjacency_of,
    edge_p_values,
    fit_linear,
    fit_nonlinear,
    fit_with_noise,
    fit_without_order,
    graph_of,
    minimise,
    rows_inside,
    standard_errors,
)
from crlearn.methods._interventional import (
    FITS,
    fit_check,
    fit_details,
    visibility_check,
    with_any_noise,
)
from crlearn.methods._lscale import lscale_i
from crlearn.result import Check, GoodnessOfFit, Guarantee, LinearDecoder, LinearEncoder, Result

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

HARD_GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, and the exact graph, if the mixing is linear and each "
    "environment but the reference cuts one latent off its parents",
)
SOFT_GUARANTEE = Guarantee(
    latents="parents",
    graph="closure",
    text="each latent up to scale, order and a mixture with its parents, and who is an ancestor of "
    "whom, if the mixing is linear and each environment but the reference changes the mechanism of "
    "one latent",
)


def linear_intervention_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    interventions: Literal["hard", "soft"] = "hard",
    mechanisms: Literal["auto", "linear", "nonlinear"] = "auto",
    targets: Mapping[Hashable, Hashable] | None = None,
    seed: int = 0,
) -> Result:
    """Recover latents and graph; see the module's text."""
    hard, rng = interventions == "hard", np.random.default_rng(seed)
    groups = group_environments(environments, targets)
    span, column_checks = reduce_to_span(X, n_latents, groups)
    n = span.n_latents
    rows = by_environment(X @ span.matrix.T, environments, groups.order)
    moments = Moments.of(rows)
    if groups.n_targets > n:
        groups = merge_groups(groups, moments, n)
    problem = LinearProblem(moments, groups.pool(n), hard)

    linear = fit_linear(problem, rng)
    fit = problem.goodness_of_fit(linear.value, problem.masks(linear.adjacency), linear.H)
    found: NonlinearFit | None = None
    if mechanisms == "nonlinear" or (mechanisms == "auto" and fit.p_value < FITS):
        found = _nonlinear(rows, problem, linear, rng)
    noisy = fit_with_noise(rows, problem, linear) if found is None else None
    H, adjacency = _answer(problem, linear if noisy is None else noisy.linear, found)
    encoder = in_readable_units(H @ span.matrix, X, environments)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=_guarantee(problem),
        adjacency=adjacency,
        targets=groups.targets(n),
        checks=(
            *column_checks,
            *groups.checks,
            _coverage_check(problem),
            check_environment_sizes(environments, n),
            visibility_check(problem.moments, environments.labels[groups.order]),
            fit_check("single-node interventions fit", fit, is_linear=found is None),
        ),
        **_tests(problem, linear, noisy, fit) if found is None else {},
        details=fit_details(found, noisy),
    )


def _tests(
    problem: LinearProblem, linear: LinearFit, noisy: NoisyFit | None, fit: GoodnessOfFit
) -> dict[str, Any]:
    """Return the tests of the linear model, as fields of a result."""
    if noisy is not None:
        p_values, errors = noisy.edge_p_values, noisy.standard_errors
    else:
        p_values, errors = edge_p_values(problem, linear), standard_errors(problem, linear)
    return {
        "goodness_of_fit": fit,
        "edge_p_values": p_values,
        "encoder_standard_errors": errors,
    }


def published_lscale_i(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    interventions: Literal["hard", "soft"] = "hard",
    scores: Any = "ratio",
    full_rank: bool = False,
    edge_threshold: Literal["paper", "test"] = "paper",
    edge_cut: float = 1e-2,
    rank_cut: float = 1e-2,
    seed: int = 0,
) -> Result:
    """Recover latents and graph by the published algorithm; see `crlearn.methods._lscale`."""
    groups = group_environments(environments, None)
    n = groups.n_targets if n_latents is None else n_latents
    if n != groups.n_targets:
        raise IdentifiabilityError(
            "estimator='paper' needs exactly one environment for each latent beside the reference. "
            f"Got {groups.n_targets} for n_latents = {n}; estimator='likelihood' takes fewer or "
            "more."
        )
    place = np.empty(len(groups.order), dtype=np.intp)
    place[groups.order] = np.arange(len(groups.order))
    hard = interventions == "hard"
    found = lscale_i(
        X,
        place[environments.codes],
        n,
        score=scores,
        hard=hard,
        full_rank=full_rank,
        edge_threshold=edge_threshold,
        edge_cut=edge_cut,
        rank_cut=rank_cut,
        random_state=seed,
    )
    exact = hard or full_rank
    encoder = in_readable_units(found.encoder, X, environments)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=HARD_GUARANTEE if hard else SOFT_GUARANTEE,
        adjacency=found.adjacency if exact else transitive_closure(found.adjacency),
        targets=groups.targets(n),
        checks=(*groups.checks, check_environment_sizes(environments, n)),
        details={"outside_span": found.diagnostics["outside_span"]},
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Environments by what they intervene on.

    Attributes
    ----------
    environments
        As they were read; the reference is known.
    order
        Positions of the environments, the reference first.
    latent
        The latent that each of the others intervenes on, in that order.
    checks
        What is to be said about them.
    """

    environments: Environments
    order: NDArray[np.intp]
    latent: NDArray[np.intp]
    checks: tuple[Check, ...]

    @property
    def n_targets(self) -> int:
        """Number of latents that are intervened on."""
        return int(self.latent.max()) + 1

    def pool(self, n_latents: int) -> NDArray[np.intp]:
        """Return the pools: every environment on a latent has its own."""
        pool = np.zeros((n_latents, len(self.order)), dtype=np.intp)
        for place, j in enumerate(self.latent, start=1):
            pool[j, place] = pool[j].max() + 1
        return pool

    def targets(self, n_latents: int) -> BoolMatrix:
        """Return which environment intervenes on which latent, in the order of the labels."""
        targets = np.zeros((len(self.order), n_latents), dtype=bool)
        targets[self.order[1:], self.latent] = True
        return targets


def group_environments(
    environments: Environments, targets: Mapping[Hashable, Hashable] | None
) -> Groups:
    """Say which latent each environment intervenes on; without `targets` each has its own."""
    order = reference_first(environments)
    names: Sequence[Any] = environments.labels[order[1:]].tolist()
    if targets is not None:
        unknown = [name for name in names if name not in targets]
        if unknown:
            raise ValueError(
                "The 'targets' parameter must name a target for every environment but the "
                f"reference. It has none for {', '.join(map(repr, unknown))}."
            )
        names = [targets[name] for name in names]
    distinct = list(dict.fromkeys(names))
    latent = np.array([distinct.index(name) for name in names], dtype=np.intp)
    return Groups(environments, order, latent, (reference_of(environments)[1],))


def reduce_to_span(
    X: Matrix, n_latents: int | None, groups: Groups
) -> tuple[LinearEncoder, tuple[Check, ...]]:
    """Return the map to the leading principal components, by default one for each target."""
    span, checks = whitening(X, n_latents)
    n = min(groups.n_targets, span.n_latents) if n_latents is None else n_latents
    return LinearEncoder(span.matrix[:n], span.offset), checks


def merge_groups(groups: Groups, moments: Moments, n_latents: int) -> Groups:
    """Find out which environments intervene on the same latent, where nobody has said so.

    They change the precision matrix along similar directions: that gives a first grouping, and then
    environments change groups one by one while the likelihood of the model without order rises.
    """
    latent = _similar_directions(moments, groups, n_latents)
    problem = _soft_problem(groups, latent, moments, n_latents)
    H, value = minimise(
        fit_without_order(problem, np.random.default_rng(0)),
        problem.pools,
        problem.masks_without_order(),
    )
    improved = True
    while improved:
        improved = False
        for e, j in product(range(groups.n_targets), range(n_latents)):
            moved = np.where(groups.latent == e, j, latent)
            if len(np.unique(moved)) < n_latents or (moved == latent).all():
                continue
            problem = _soft_problem(groups, moved, moments, n_latents)
            masks = problem.masks_without_order()
            encoder, candidate = minimise(H, problem.pools, masks, max_steps=20)
            if candidate < value - 1 / moments.n_samples:
                latent, H, value, improved = moved, encoder, candidate, True
    return replace(groups, latent=latent)


def _soft_problem(
    groups: Groups, latent: NDArray[np.intp], moments: Moments, n_latents: int
) -> LinearProblem:
    """Return the problem of a grouping; the model without order is the same for hard ones."""
    return LinearProblem(moments, replace(groups, latent=latent).pool(n_latents), hard=False)


def _similar_directions(moments: Moments, groups: Groups, n_latents: int) -> NDArray[np.intp]:
    precisions = np.linalg.inv(moments.covariances)
    root = np.linalg.cholesky(moments.covariances[0])
    values, vectors = np.linalg.eigh(root.T @ (precisions[1:] - precisions[0]) @ root)
    leading = vectors[np.arange(len(values)), :, np.abs(values).argmax(axis=1)]
    alike = np.abs(leading @ leading.T)
    tree = linkage(squareform(np.clip(1 - alike, 0, None), checks=False), "average")
    found = fcluster(tree, n_latents, "maxclust") - 1
    # Environments with one name stay together, and every latent has at least one.
    latent = np.array([found[groups.latent == groups.latent[e]][0] for e in range(len(found))])
    for j in sorted(set(range(n_latents)) - set(latent.tolist())):
        crowded = np.bincount(latent).argmax()
        latent[groups.latent == groups.latent[np.flatnonzero(latent == crowded)[-1]]] = j
    return latent


def _nonlinear(
    rows: Sequence[Matrix], problem: LinearProblem, linear: LinearFit, rng: np.random.Generator
) -> NonlinearFit:
    """Start from the linear answer and from the model without an order."""
    H, adjacency = _answer(problem, linear, None)
    starts = [(H, graph_of(adjacency)), (fit_without_order(problem, rng), None), (H, None)]
    found = fit_nonlinear(rows, problem.pool, starts, hard=problem.hard)
    return with_any_noise(rows, found, [(linear.H, graph_of(linear.adjacency))], problem.hard)


def _answer(
    problem: LinearProblem, linear: LinearFit, found: NonlinearFit | None
) -> tuple[Matrix, BoolMatrix]:
    """Return the encoder and the graph as far as it can be known."""
    if found is not None:
        H, adjacency = found.H, adjacency_of(found.graph)
    else:
        H = linear.H if problem.hard else rows_inside(problem, linear)
        adjacency = linear.adjacency
    known = adjacency if problem.hard else transitive_closure(adjacency)
    return H, known & problem.covered & problem.covered[:, None]


def _guarantee(problem: LinearProblem) -> Guarantee:
    full = HARD_GUARANTEE if problem.hard else SOFT_GUARANTEE
    if problem.covered.all():
        return full
    hidden = ", ".join(f"z{j}" for j in np.flatnonzero(~problem.covered))
    return Guarantee(
        latents="span",
        graph="none",
        text=f"for the latents that were intervened on: {full.text}; no environment intervenes on "
        f"{hidden}, which are recovered only together, mixed with each other and their ancestors, "
        "edges from and to them are not known, and an edge between others may pass through them",
    )


def _coverage_check(problem: LinearProblem) -> Check:
    missing = np.flatnonzero(~problem.covered)
    return Check(
        "every latent is intervened on",
        len(missing) == 0,
        "latents without an intervention: " + (", ".join(f"z{j}" for j in missing) or "none"),
    )


class LinearInterventionCRL(BaseCRL):
    """Latents and graph from one intervention per latent, linear mixing (LSCALE-I).

    `y` holds one environment label a row. One environment is observational; each of the others
    changes the mechanism of one latent. Latent i is the one that the i-th of these environments
    (in the order of the labels) intervenes on.

    Parameters
    ----------
    n_latents
        Number of latents; None: one for each environment beside the reference.
    interventions
        ``"hard"``: they cut a latent off its parents. ``"soft"``: they change its mechanism; less
        can be recovered then.
    mechanisms
        ``"linear"``, ``"nonlinear"``, or ``"auto"``: nonlinear if linear ones do not fit.
    estimator
        ``"likelihood"``, or ``"paper"`` for the published algorithm; the parameters after
        `reference` belong to that one.
    targets
        Which environments intervene on the same latent: a dictionary from labels to names of
        targets. None: each on its own, or as many as `n_latents` says, found by the likelihood.
    reference
        Label of the observational environment; None: the one labelled 0.
    scores
        Score differences: ``"gaussian"``, ``"ratio"``, ``"sliced"``, or whatever
        `crlearn.scores.make_score` takes.
    full_rank
        Whether mechanisms are taken for sufficiently nonlinear: then soft interventions give the
        exact graph.
    edge_threshold, edge_cut
        ``"paper"``: an edge is a mean square of score differences above `edge_cut`; ``"test"``: it
        is one that differs from zero by a test.
    rank_cut
        With `full_rank`: least eigenvalue that counts for a rank. 1e-6 is right for exact scores.
    random_state
        Seed of the starts.

    Examples
    --------
    >>> from crlearn import LinearInterventionCRL
    >>> from crlearn.data import make_linear_interventional
    >>> world = make_linear_interventional(n_latents=3, n_features=10, random_state=0)
    >>> model = LinearInterventionCRL(interventions="hard", random_state=0).fit(world.X, world.y)
    >>> bool((model.result_.adjacency == world.truth.graph).all())
    True
    """

    _requires_y = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "interventions": [StrOptions({"hard", "soft"})],
        "mechanisms": [StrOptions({"auto", "linear", "nonlinear"})],
        "estimator": [StrOptions({"likelihood", "paper"})],
        "targets": [dict, None],
        "reference": "no_validation",
        "scores": "no_validation",
        "full_rank": ["boolean"],
        "edge_threshold": [StrOptions({"paper", "test"})],
        "edge_cut": [Interval(Real, 0, None, closed="neither")],
        "rank_cut": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        interventions: str = "hard",
        mechanisms: str = "auto",
        estimator: str = "likelihood",
        targets: dict[Hashable, Hashable] | None = None,
        reference: Any = None,
        scores: Any = "ratio",
        full_rank: bool = False,
        edge_threshold: str = "paper",
        edge_cut: float = 1e-2,
        rank_cut: float = 1e-2,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.interventions = interventions
        self.mechanisms = mechanisms
        self.estimator = estimator
        self.targets = targets
        self.reference = reference
        self.scores = scores
        self.full_rank = full_rank
        self.edge_threshold = edge_threshold
        self.edge_cut = edge_cut
        self.rank_cut = rank_cut
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, self.reference)
        if self.estimator == "paper":
            return published_lscale_i(
                X,
                environments,
                self.n_latents,
                interventions=self.interventions,  # type: ignore[arg-type]
                scores=self.scores,
                full_rank=self.full_rank,
                edge_threshold=self.edge_threshold,  # type: ignore[arg-type]
                edge_cut=self.edge_cut,
                rank_cut=self.rank_cut,
                seed=seed,
            )
        return linear_intervention_crl(
            X,
            environments,
            self.n_latents,
            interventions=self.interventions,  # type: ignore[arg-type]
            mechanisms=self.mechanisms,  # type: ignore[arg-type]
            targets=self.targets,
            seed=seed,
        )
