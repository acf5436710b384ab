"""Any smooth mixing, hard interventions on every latent (the setting of GSCALE-I).

Recovers the latents, the graph among them and, if they are not known, the targets of the
environments from an observational environment and others that each cut one latent off its causes:
two for each latent in theory, where the mixing and the mechanisms are of any shape; one where the
mechanisms are additive and their noises near Gaussian, or linear.

The paper trains an autoencoder whose latent score differences are to be one-hot
(`crlearn.published.GSCALEI`). Here the encoder is invertible by construction, and its exact
likelihood takes the place of scores and reconstruction:

1. *Reduction*: X is brought to as many numbers as there are latents.
2. *Flow*: a smooth invertible map to latents. At first every environment has a mean and a variance
   of its own for every latent (nonlinear ICA); then targets and the order of the latents are read
   from the likelihood again and again, and mechanisms are regressions in closed form
   (`crlearn.flows.InterventionalObjective`).
3. *Graph*: in the best order, predecessors that explain next to nothing are dropped.

With ``mechanisms="linear"`` step 2 starts with a Gaussian of its own for every environment, which
leaves an affine map open; that is found by the linear engine (`crlearn.likelihood`), and refined
together with the flow. With ``mixing="post-nonlinear"`` monotone links of the features are learned,
and the linear engine does the rest.

Time grows as the number of steps, whatever the number of rows is; a step takes O(b m blocks units
n^2) for m environments with b rows in a batch. The search for the order takes 2^n n regressions.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26, 2025.

Buchholz, Rajendran, Rosenfeld, Aragam, Schölkopf and Ravikumar, Learning linear causal
representations from interventions under general nonlinear mixing, NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.exceptions import IdentifiabilityError
from crlearn.flows import (
    Assignment,
    GaussianObjective,
    InterventionalObjective,
    NodeRegressions,
    Parameters,
    earlier,
    fit_flow,
)
from crlearn.graph import best_order, topological_order
from crlearn.inputs import (
    Environments,
    by_environment,
    check_environment_sizes,
    names_of_nodes,
    read_environments,
    read_graph,
    reference_first,
    reference_of,
    single_targets,
)
from crlearn.likelihood import Fit
from crlearn.methods._flow_checks import (
    coverage_check,
    guarantee_of,
    restarts_check,
    structure_checks,
    training_checks,
)
from crlearn.methods._image_reduction import reduce_images
from crlearn.methods._linear_intervention import linear_intervention_crl
from crlearn.methods._reduction import (
    Composed,
    ComposedDecoder,
    FlowInverse,
    FlowMap,
    ReductionName,
    reduce,
)
from crlearn.methods.nonlinear._assignment import read_assignment
from crlearn.methods.nonlinear._linear_start import nearest, then_linear, unmixed
from crlearn.nets import evaluate
from crlearn.result import Result
from crlearn.train import Training

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

# Nats a row that a parent must explain beyond the others, 1% of the variance: with latents that are
# recovered up to a few thousandths, less may be an echo of other latents. Development seeds 0 to 3:
# at most .25 wrong edges a world in seven kinds of worlds of five latents, 1 and 1.5 in two where
# latents are recovered less well, 2 with eight latents (where .008 had .5). Not yet on fresh seeds.
_LEAST_EFFECT = 0.005
# Linear latents behind wide networks, development seeds 0 to 2: wrong edges had at most .013, right
# ones .029 and more; latents have correlations of .99 there, as codes of an autoencoder limit them.
_LEAST_LINEAR_EFFECT = 0.02
# Each of the two stages of linear latents took 8,000 steps to reach .998 (seeds 0 to 2); fewer were
# not compared on the same worlds. Others had the same latents after 3,000 steps as after 4,000.
_LINEAR_STEPS = 3
_ROWS_FOR_STRUCTURE = 4000  # of each environment
_BATCH = 100  # rows of each environment
# Steps of .02 gave more than .01 on each of six worlds, development seeds 0 to 3 (smooth maps, tanh
# networks, one intervention each), and .005 more than .002 for linear latents, seeds 0 to 2.
_LEARNING_RATE, _LINEAR_LEARNING_RATE, _REFINING_RATE = 2e-2, 5e-3, 1e-3


@dataclass(frozen=True, eq=False)
class Latents:
    """A flow whose outputs are latents, and their structure.

    Attributes
    ----------
    fit
        The trained flow.
    own
        ``own[e, j]``: environment e (the reference first) intervenes on latent j.
    before
        ``before[i, j]``: latent i comes before latent j.
    """

    fit: Training
    own: BoolMatrix
    before: BoolMatrix


@dataclass(frozen=True)
class Budget:
    """How long to train."""

    n_steps: int
    n_restarts: int
    seed: int
    checkpoint: str | Path | None = None


def nonlinear_latents(rows: Sequence[Matrix], assignment: Assignment, budget: Budget) -> Latents:
    """Train flows with mechanisms of any shape, and take the best.

    All restarts but one start as nonlinear ICA. The last one starts as a linear map that comes with
    targets and an order: where the mixing is bent little, that is near the answer, though
    interventions may change too little of single latents for the others to find targets.
    """
    n = rows[0].shape[1]
    objective = InterventionalObjective(n, _shares(rows), assignment)
    keys = jax.random.split(jax.random.key(budget.seed), budget.n_restarts)
    draw = eqx.filter_jit(objective.init)
    starts = [draw(key) for key in keys]
    if len(starts) > 1 and assignment.graph is None and len(rows) > n > 1:
        starts[-1] = _at_a_linear_map(starts[-1], rows, assignment, budget.seed)
    fit = fit_flow(
        rows,
        objective,
        n_steps=budget.n_steps,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        n_restarts=budget.n_restarts,
        start=starts,
        checkpoint=budget.checkpoint,
        description="NonlinearInterventionCRL",
        seed=budget.seed,
    )
    params = fit.params
    if np.asarray(params.own).all():  # the training ended before targets were looked for
        n_rows = min(*map(len, rows), _ROWS_FOR_STRUCTURE)
        some = np.stack([part[:n_rows] for part in rows], axis=1)
        params = objective.revise(params, some, objective.free) or params
    return Latents(fit, np.asarray(params.own), np.asarray(params.before))


def _at_a_linear_map(
    params: Parameters, rows: Sequence[Matrix], assignment: Assignment, seed: int
) -> Parameters:
    """Return a start near a linear map from the rows to latents, with their structure."""
    found = unmixed(rows, assignment, seed, quick=True)
    everything = np.concatenate(rows)
    flow = nearest(params.flow, everything, everything @ found.H.T)
    return _structured(params._replace(flow=flow), found)


def _structured(params: Parameters, found: Fit) -> Parameters:
    """Give a start targets and an order that stay."""
    before = earlier(topological_order(found.adjacency))
    return params._replace(own=found.targets, before=before, given=np.array(True))


def linear_latents(rows: Sequence[Matrix], assignment: Assignment, budget: Budget) -> Latents:
    """Train a flow to a Gaussian for every environment, unmix its outputs, and refine both."""
    n = rows[0].shape[1]
    free = fit_flow(
        rows,
        GaussianObjective(n, _shares(rows)),
        n_steps=_LINEAR_STEPS * budget.n_steps,
        learning_rate=_LINEAR_LEARNING_RATE,
        n_restarts=budget.n_restarts,
        affine=True,
        checkpoint=budget.checkpoint,
        description="NonlinearInterventionCRL, Gaussians",
        batch_size=_BATCH,
        seed=budget.seed,
    )
    mixtures = [_encoded(free, part) for part in rows]
    found = unmixed(mixtures, assignment, budget.seed, quick=False)
    flow = then_linear(free.params.flow, found.H.T, np.zeros(n))
    objective = InterventionalObjective(
        n,
        _shares(rows),
        assignment,
        n_features=0,
        n_components=1,
        n_blocks=len(flow.directions),
    )
    start = _structured(objective.init(jax.random.key(0))._replace(flow=flow), found)
    fit = fit_flow(
        rows,
        objective,
        n_steps=_LINEAR_STEPS * budget.n_steps,
        learning_rate=_REFINING_RATE,
        n_restarts=1,
        start=start,
        checkpoint=_beside(budget.checkpoint, "refined"),
        description="NonlinearInterventionCRL, refined",
        batch_size=_BATCH,
        seed=budget.seed,
    )
    fit = replace(fit, agreements=free.agreements, gaps=free.gaps)
    return Latents(fit, np.asarray(fit.params.own), np.asarray(fit.params.before))


def _beside(checkpoint: str | Path | None, stage: str) -> str | None:
    """Return the file of another stage of the training."""
    return None if checkpoint is None else f"{checkpoint}.{stage}"


def _shares(rows: Sequence[Matrix]) -> tuple[float, ...]:
    total = sum(map(len, rows))
    return tuple(len(part) / total for part in rows)


def _encoded(fit: Training, rows: Matrix) -> Matrix:
    return np.asarray(evaluate(fit.params.flow, rows), dtype=float)


def nonlinear_intervention_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    targets: Mapping[Hashable, Hashable] | None = None,
    graph: Any = None,
    mechanisms: Literal["nonlinear", "linear"] = "nonlinear",
    reduction: ReductionName = "auto",
    n_steps: int = 3000,
    n_restarts: int = 2,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents, graph and targets; see the module's text."""
    order = reference_first(environments)
    if X.ndim > 2:
        reduced = reduce_images(
            X, n_latents, n_steps=2 * n_steps, seed=seed, checkpoint=_beside(checkpoint, "codes")
        )
    else:
        reduced = reduce(X, n_latents, reduction, seed)
    n = reduced.encoder.n_latents
    labels = environments.labels[order]
    known_graph = None if graph is None else read_graph(graph, n)
    assignment, names = read_assignment(
        labels[1:].tolist(), targets, n, known_graph, names_of_nodes(graph)
    )
    rows = by_environment(reduced.rows, environments, order)
    budget = Budget(n_steps, n_restarts, seed, checkpoint)
    find = linear_latents if mechanisms == "linear" else nonlinear_latents
    latents = find(rows, assignment, budget)
    linear = mechanisms == "linear"
    regressions = _regressions(latents, rows, linear=linear)
    if known_graph is None:
        order_found = best_order(regressions.costs(latents.own))
        latents = replace(latents, before=earlier(order_found))
    columns = _columns(latents, assignment)
    own = latents.own[:, columns]
    covered = np.asarray(own.any(axis=0))
    adjacency, least = latents.before, None
    if known_graph is None:
        least = _LEAST_LINEAR_EFFECT if linear else _LEAST_EFFECT
        adjacency = regressions.parents(latents.before, latents.own, least)
    encoder = _in_readable_units(latents.fit, columns, rows[0])
    return Result(
        encoder=Composed(reduced.encoder, encoder),
        decoder=ComposedDecoder(FlowInverse(encoder), reduced.decoder),
        guarantee=guarantee_of(own, names, linear=linear, least_effect=least),
        adjacency=adjacency[np.ix_(columns, columns)] & covered & covered[:, None],
        targets=own[np.argsort(order)],
        names=names,
        environments=environments.names,
        checks=(
            *reduced.checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, n),
            coverage_check(covered, names),
            *structure_checks(regressions, latents.own, latents.before, labels, columns, names),
            restarts_check(latents.fit),
            *training_checks(latents.fit),
        ),
        history=latents.fit.history,
        details={
            "held_out_loss": latents.fit.loss,
            "restart_agreement": np.array(latents.fit.agreements),
            "restart_gaps": np.array(latents.fit.gaps),
            "stopped": latents.fit.stopped,
        },
        device=device_name(),
    )


def post_nonlinear_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    targets: Mapping[Hashable, Hashable] | None = None,
    seed: int = 0,
) -> Result:
    """Undo monotone links of the features, then find a linear map; see the module's text."""
    n = len(set((targets or {}).values())) or None if n_latents is None else n_latents
    if n is None or n >= X.shape[1]:
        raise IdentifiabilityError(
            "With mixing='post-nonlinear' there must be more features than latents, so that links "
            f"can be told from the features' rank. Got {X.shape[1]} features and n_latents={n}; "
            "give a smaller 'n_latents', or set mixing='smooth'."
        )
    reduced = reduce(X, n, "links", seed)
    inner = linear_intervention_crl(reduced.rows, environments, n, targets=targets, seed=seed)
    guarantee = replace(
        inner.guarantee,
        text=inner.guarantee.text.replace(
            "the mixing is linear", "the mixing is linear up to a monotone function of each feature"
        ),
    )
    return replace(
        inner,
        encoder=Composed(reduced.encoder, inner.encoder),
        decoder=ComposedDecoder(inner.decoder, reduced.decoder),
        guarantee=guarantee,
        checks=(*reduced.checks, *inner.checks[2:]),  # not those of columns that were made here
    )


def _regressions(latents: Latents, rows: Sequence[Matrix], *, linear: bool) -> NodeRegressions:
    """Return the regressions among the latents of many rows."""
    n_rows = min(*map(len, rows), _ROWS_FOR_STRUCTURE)
    z = np.stack([_encoded(latents.fit, part[:n_rows]) for part in rows], axis=1)
    return NodeRegressions(z, np.array(_shares(rows)), linear=linear)


def _columns(latents: Latents, assignment: Assignment) -> NDArray[np.intp]:
    """Return the order of the latents: those with known targets as these, then causes first."""
    known = {targets[0]: e for e, targets in enumerate(assignment.known) if targets}
    named = [int(latents.own[known[target]].argmax()) for target in sorted(known)]
    causes_first = np.argsort(latents.before.sum(axis=0)).tolist()
    return np.array([*named, *(j for j in causes_first if j not in named)], dtype=np.intp)


def _in_readable_units(fit: Training, columns: NDArray[np.intp], reference: Matrix) -> FlowMap:
    """Give each latent mean 0 and sd 1 in the reference environment."""
    z = _encoded(fit, reference)[:, columns]
    return FlowMap(fit.params.flow, columns, z.mean(axis=0), z.std(axis=0))


class NonlinearInterventionCRL(BaseCRL):
    """Latents and graph behind any smooth mixing, from hard interventions (setting of GSCALE-I).

    The published algorithms are `crlearn.published.GSCALEI` and, for linear Gaussian latents,
    `crlearn.published.ContrastiveCRL`.

    `y` holds one environment label a row. One environment is observational; each of the others cuts
    one latent off its causes and gives it another distribution. Two such environments for each
    latent are what the theory asks for; one is enough if mechanisms add near Gaussian noise.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    targets
        What environments intervene on, by label: environments with equal targets intervene on the
        same latent, which has the name of the target if that is a text. Those that are not named
        here are found. Also a 0/1 matrix (labels in order, latents). None: all are found.
    graph
        The causal graph over the targets, if it is known (an adjacency matrix or a
        `networkx.DiGraph`); then all targets must be. It is not searched for then. Not for linear
        mechanisms.
    mixing
        ``"smooth"``: any smooth map that is one to one; ``"post-nonlinear"``: a monotone function
        of each feature after a linear map to more features than latents. Then links are undone, and
        the rest is done as in `LinearInterventionCRL`: latents up to scale.
    mechanisms
        ``"nonlinear"``: of any shape, with additive noise; ``"linear"``: linear with Gaussian
        noise, which identifies latents up to scale.
    reduction
        How X with more features than latents is brought to as many numbers as there are latents:
        ``"linear"`` (principal components), ``"links"`` (monotone functions of each feature, then
        principal components), ``"autoencoder"`` (smooth networks), ``"flow"`` (an invertible map
        that makes the surface flat on which rows lie), ``"auto"`` (the first of these that loses
        little and does not fold; flows are for X of up to 16 dimensions).
    reference
        Label of the observational environment; None: 0, or the one that has the name of a control.
    n_steps
        Steps of the training of each flow; linear mechanisms take three times as many, two times,
        and an autoencoder of images twice as many.
    n_restarts
        Flows that are trained from different starts; the best by held-out likelihood is taken.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes; further
        stages have files beside it.
    random_state
        Seed of flows, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import NonlinearInterventionCRL
    >>> from crlearn.data import make_coupled_interventional
    >>> world = make_coupled_interventional(2, 2, 300, mixing="smooth", random_state=0)
    >>> model = NonlinearInterventionCRL(n_steps=50, n_restarts=1, random_state=0)
    >>> model.fit(world.X, world.y).transform(world.X).shape == world.truth.Z.shape
    True
    """

    _requires_y = True
    _allows_images = True
    _keeps_uint8 = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "targets": [dict, "array-like", None],
        "graph": "no_validation",
        "mixing": [StrOptions({"smooth", "post-nonlinear"})],
        "mechanisms": [StrOptions({"nonlinear", "linear"})],
        "reduction": [StrOptions({"auto", "linear", "links", "flow", "autoencoder"})],
        "reference": "no_validation",
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        targets: dict[Hashable, Hashable] | ArrayLike | None = None,
        graph: Any = None,
        mixing: str = "smooth",
        mechanisms: str = "nonlinear",
        reduction: str = "auto",
        reference: Any = None,
        n_steps: int = 3000,
        n_restarts: int = 2,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.targets = targets
        self.graph = graph
        self.mixing = mixing
        self.mechanisms = mechanisms
        self.reduction = reduction
        self.reference = reference
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, self.reference)
        if X.ndim == 2:
            X = X.astype(float, copy=False)  # whole numbers of 8 bits are for images
        targets = single_targets(self.targets, environments)
        self._refuse_graph_of_linear_latents()
        if self.mixing == "post-nonlinear":
            self._refuse_for_links(X)
            return post_nonlinear_crl(X, environments, self.n_latents, targets=targets, seed=seed)
        return nonlinear_intervention_crl(
            X,
            environments,
            self.n_latents,
            targets=targets,
            graph=self.graph,
            mechanisms=cast(Any, self.mechanisms),
            reduction=cast(Any, self.reduction),
            n_steps=self.n_steps,
            n_restarts=self.n_restarts,
            seed=seed,
            checkpoint=self.checkpoint,
        )

    def _refuse_graph_of_linear_latents(self) -> None:
        if self.graph is not None and self.mechanisms == "linear":
            raise ValueError(
                "A known 'graph' is used with mechanisms='nonlinear' only; linear ones find the "
                "graph by moments. Leave one of the two out."
            )

    def _refuse_for_links(self, X: NDArray[Any]) -> None:
        if X.ndim > 2:
            raise ValueError(
                "mixing='post-nonlinear' is for rows of features. Got images of shape "
                f"{X.shape[1:]}: leave out 'mixing'."
            )
        if self.graph is not None or self.mechanisms == "linear":
            raise ValueError(
                "With mixing='post-nonlinear' the linear engine finds the graph and the kind of "
                "the mechanisms: leave out 'graph' and 'mechanisms'."
            )
