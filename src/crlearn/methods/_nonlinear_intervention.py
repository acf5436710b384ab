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

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.exceptions import IdentifiabilityError
from crlearn.flows import (
    Assignment,
    FlowFit,
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
    names_after,
    read_environments,
    reference_first,
    reference_of,
)
from crlearn.likelihood import Fit, Moments, fit_interventional, grouped_targets, pools_of
from crlearn.methods._reduction import (
    Composed,
    ComposedDecoder,
    FlowInverse,
    FlowMap,
    ReductionName,
    reduce,
)
from crlearn.nets import evaluate
from crlearn.result import Check, Guarantee, Result

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

# Nats a row that a parent must explain beyond the others, 1% of the variance: with latents that are
# recovered up to a few thousandths, less may be an echo of other latents. Seeds 0 to 3 of ten kinds
# of worlds of five latents had .3 wrong edges at .003 and .005, .4 at .008, .7 at .012.
_LEAST_EFFECT = 0.005
# Where an intervention cuts a latent off its causes, these explained at most .05 nats in 33 right
# answers, and .12 to .55 in four wrong ones (same worlds).
_LARGEST_DEPENDENCE = 0.07
# What mechanisms leave unexplained changed between environments by at most .01 nats in right
# answers, and by .02 to .07 in wrong ones.
_LARGEST_CHANGE = 0.015
_LARGE_GAP = 0.1  # nats a row of held-out likelihood
_SAME_LATENTS = 0.9
_ROWS_FOR_STRUCTURE = 4000  # of each environment
_BATCH = 100  # rows of each environment
_LINEAR_BATCH = 400
_LEARNING_RATE, _LINEAR_LEARNING_RATE, _REFINING_RATE = 5e-3, 2e-3, 1e-3

_COVERAGE = "every latent is intervened on"

GUARANTEE = Guarantee(
    latents="elementwise",
    graph="exact",
    text="each latent up to an invertible function of its own and order, and the exact graph, if "
    "the mixing is smooth and one to one, and each environment but the reference cuts one latent "
    "off its causes, two different ones for each latent",
)
ONE_GUARANTEE = Guarantee(
    latents="elementwise",
    graph="exact",
    text="each latent up to an invertible function of its own and order, and the exact graph, if "
    "the mixing is smooth and one to one, each environment but the reference cuts one latent off "
    "its causes, and mechanisms add noise that is near Gaussian: one intervention for each latent "
    "is enough under such an assumption only",
)
LINEAR_GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, and the exact graph, if the mixing is smooth and one "
    "to one, latents are linear and Gaussian, and each environment but the reference cuts one "
    "latent off its causes",
)


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

    fit: FlowFit
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
    """Train a flow with mechanisms of any shape."""
    objective = InterventionalObjective(rows[0].shape[1], _shares(rows), assignment)
    fit = fit_flow(
        rows,
        objective,
        n_steps=budget.n_steps,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        n_restarts=budget.n_restarts,
        seed=budget.seed,
        checkpoint=budget.checkpoint,
        description="NonlinearInterventionCRL",
    )
    return Latents(fit, np.asarray(fit.params.own), np.asarray(fit.params.before))


def linear_latents(rows: Sequence[Matrix], assignment: Assignment, budget: Budget) -> Latents:
    """Train a flow to a Gaussian for every environment, unmix its outputs, and refine both."""
    n = rows[0].shape[1]
    options = {"batch_size": _LINEAR_BATCH, "seed": budget.seed}
    free = fit_flow(
        rows,
        GaussianObjective(n, _shares(rows)),
        n_steps=budget.n_steps,
        learning_rate=_LINEAR_LEARNING_RATE,
        n_restarts=budget.n_restarts,
        checkpoint=budget.checkpoint,
        description="NonlinearInterventionCRL, Gaussians",
        **options,
    )
    unmixed = _unmixed([_encoded(free, part) for part in rows], assignment, budget.seed)
    order = topological_order(unmixed.adjacency)
    # The linear map joins the last one of the flow.
    last = np.asarray(free.flow.matrices[-1]) @ unmixed.H.T
    offset = np.asarray(free.flow.offsets[-1]) @ unmixed.H.T
    flow = replace(
        free.flow,
        matrices=np.concatenate([free.flow.matrices[:-1], last[None]]).astype(np.float32),
        offsets=np.concatenate([free.flow.offsets[:-1], offset[None]]).astype(np.float32),
    )
    start = Parameters(flow, np.zeros((2, n, 0, n), np.float32), unmixed.targets, earlier(order))
    objective = InterventionalObjective(
        n, _shares(rows), assignment, n_features=0, n_blocks=len(flow.directions), settled=0.0
    )
    fit = fit_flow(
        rows,
        objective,
        n_steps=budget.n_steps,
        learning_rate=_REFINING_RATE,
        n_restarts=1,
        start=start,
        description="NonlinearInterventionCRL, refined",
        **options,
    )
    fit = replace(fit, agreements=free.agreements, gaps=free.gaps)
    return Latents(fit, unmixed.targets, earlier(order))


def _unmixed(rows: Sequence[Matrix], assignment: Assignment, seed: int) -> Fit:
    """Find the linear map from mixtures to latents, and their structure."""
    everything = np.concatenate(rows)
    centre = everything.mean(axis=0)
    root = np.linalg.cholesky(np.linalg.inv(np.cov(everything.T).reshape(len(centre), -1)))
    white = [(part - centre) @ root for part in rows]
    n, rng = len(centre), np.random.default_rng(seed)
    latent = _grouped(assignment, Moments.of(white), n, rng)
    fit = fit_interventional(
        white, pools_of(latent, n), hard=True, mechanisms="linear", rng=rng
    )
    return replace(fit, H=fit.H @ root.T)


def _grouped(
    assignment: Assignment, moments: Moments, n: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return the latent of each environment but the first; those that are not known differ."""
    names: list[Any] = [
        f"unknown {place}" if known is None else known[0]
        for place, known in enumerate(assignment.known[1:])
    ]
    distinct = list(dict.fromkeys(names))
    latent = np.array([distinct.index(name) for name in names], dtype=np.intp)
    return latent if len(distinct) <= n else grouped_targets(latent, moments, n, rng)


def _shares(rows: Sequence[Matrix]) -> tuple[float, ...]:
    total = sum(map(len, rows))
    return tuple(len(part) / total for part in rows)


def _encoded(fit: FlowFit, rows: Matrix) -> Matrix:
    return np.asarray(evaluate(fit.flow, rows), dtype=float)


def nonlinear_intervention_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    targets: Mapping[Hashable, Hashable] | None = None,
    mechanisms: Literal["nonlinear", "linear"] = "nonlinear",
    reduction: ReductionName = "auto",
    n_steps: int = 3000,
    n_restarts: int = 2,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents, graph and targets; see the module's text."""
    order = reference_first(environments)
    reduced = reduce(X, n_latents, reduction, seed)
    n = reduced.encoder.n_latents
    labels = environments.labels[order]
    assignment, names = read_assignment(labels[1:].tolist(), targets, n)
    rows = by_environment(reduced.encoder(X), environments, order)
    budget = Budget(n_steps, n_restarts, seed, checkpoint)
    find = linear_latents if mechanisms == "linear" else nonlinear_latents
    latents = find(rows, assignment, budget)
    regressions, latents = _settled(latents, rows, linear=mechanisms == "linear")
    columns = _columns(latents, assignment)
    own = latents.own[:, columns]
    covered = own.any(axis=0)
    graph = regressions.parents(latents.before, latents.own, _LEAST_EFFECT)
    encoder = _in_readable_units(latents.fit, columns, rows[0])
    linear = mechanisms == "linear"
    return Result(
        encoder=Composed(reduced.encoder, encoder),
        decoder=ComposedDecoder(FlowInverse(encoder), reduced.decoder),
        guarantee=_guarantee(own, names, linear=linear),
        adjacency=graph[np.ix_(columns, columns)] & covered & covered[:, None],
        targets=own[np.argsort(order)],
        names=names,
        environments=environments.names,
        checks=(
            *reduced.checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, n),
            _coverage_check(covered, names),
            *_structure_checks(regressions, latents, labels, columns, names),
            _restarts_check(latents.fit),
            _finite_check(latents.fit),
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


def read_assignment(
    labels: Sequence[Any], targets: Mapping[Hashable, Hashable] | None, n_latents: int
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
    """
    if targets is None:
        return Assignment(0, ((), *[None] * len(labels))), None
    unknown = [label for label in targets if label not in labels]
    if unknown:
        raise ValueError(
            "The 'targets' parameter must name environments that are in y. Not there: "
            f"{', '.join(map(repr, unknown))}."
        )
    distinct = list(dict.fromkeys(targets[label] for label in labels if label in targets))
    if len(distinct) > n_latents:
        raise IdentifiabilityError(
            f"The 'targets' parameter names {len(distinct)} different targets, and there are "
            f"{n_latents} latents. Give n_latents={len(distinct)} or more, or merge targets."
        )
    known = tuple((distinct.index(targets[e]),) if e in targets else None for e in labels)
    sources = [[target] for target in distinct] + [[]] * (n_latents - len(distinct))
    return Assignment(0, ((), *known)), names_after(sources)


def _settled(
    latents: Latents, rows: Sequence[Matrix], *, linear: bool
) -> tuple[NodeRegressions, Latents]:
    """Return the regressions among the latents of many rows, and their best order."""
    n_rows = min(*map(len, rows), _ROWS_FOR_STRUCTURE)
    z = np.stack([_encoded(latents.fit, part[:n_rows]) for part in rows], axis=1)
    regressions = NodeRegressions(z, np.array(_shares(rows)), linear=linear)
    before = earlier(best_order(regressions.costs(latents.own)))
    return regressions, replace(latents, before=before)


def _columns(latents: Latents, assignment: Assignment) -> NDArray[np.intp]:
    """Return the order of the latents: those with known targets as these, then causes first."""
    known = {targets[0]: e for e, targets in enumerate(assignment.known) if targets}
    named = [int(latents.own[known[target]].argmax()) for target in sorted(known)]
    causes_first = np.argsort(latents.before.sum(axis=0)).tolist()
    return np.array([*named, *(j for j in causes_first if j not in named)], dtype=np.intp)


def _in_readable_units(fit: FlowFit, columns: NDArray[np.intp], reference: Matrix) -> FlowMap:
    """Give each latent mean 0 and sd 1 in the reference environment."""
    z = _encoded(fit, reference)[:, columns]
    return FlowMap(fit.flow, columns, z.mean(axis=0), z.std(axis=0))


def _guarantee(own: BoolMatrix, names: Sequence[str] | None, *, linear: bool) -> Guarantee:
    counts = own.sum(axis=0)
    full = LINEAR_GUARANTEE if linear else GUARANTEE if counts.min() >= 2 else ONE_GUARANTEE
    if counts.all():
        return full
    hidden = _listed(counts == 0, names)
    return Guarantee(
        latents="span",
        graph="none",
        text=f"for the latents that were intervened on: {full.text}; no environment intervenes on "
        f"{hidden}, which are recovered only together, mixed with each other and their ancestors",
        accounts_for=(_COVERAGE,),
    )


def _coverage_check(covered: NDArray[np.bool_], names: Sequence[str] | None) -> Check:
    missing = _listed(~covered, names)
    return Check(
        _COVERAGE, bool(covered.all()), f"latents without an intervention: {missing or 'none'}"
    )


def _listed(which: NDArray[np.bool_], names: Sequence[str] | None) -> str:
    return ", ".join(f"z{j}" if names is None else names[j] for j in np.flatnonzero(which).tolist())


def _structure_checks(
    regressions: NodeRegressions,
    latents: Latents,
    labels: NDArray[Any],
    columns: NDArray[np.intp],
    names: Sequence[str] | None,
) -> tuple[Check, ...]:
    """Check that interventions cut latents off, and that mechanisms stay otherwise."""

    def place(values: Matrix) -> tuple[float, str, Any]:
        e, j = np.unravel_index(values.argmax(), values.shape)
        position = int(np.flatnonzero(columns == j)[0])
        return float(values[e, j]), f"z{position}" if names is None else names[position], labels[e]

    cut_off = regressions.dependence(latents.before, latents.own)
    change = regressions.changes(latents.before, latents.own)
    most, latent, label = place(cut_off)
    most_changed, changed, elsewhere = place(change)
    return (
        Check(
            "interventions cut latents off",
            most <= _LARGEST_DEPENDENCE,
            f"where {latent} is intervened on ({label}) its predecessors explain {most:.3f} nats a "
            f"row of it; up to {_LARGEST_DEPENDENCE} pass",
        ),
        Check(
            "mechanisms stay where nobody intervenes",
            most_changed <= _LARGEST_CHANGE,
            f"the residual of {changed} changes most, by {most_changed:.3f} nats a row in "
            f"{elsewhere}; up to {_LARGEST_CHANGE} pass",
        ),
    )


def _restarts_check(fit: FlowFit) -> Check:
    name = "restarts agree"
    if not fit.agreements:
        return Check(name, None, "there was one restart; n_restarts=2 or more would tell")
    if max(fit.agreements) >= _SAME_LATENTS:
        return Check(name, True, f"another one has the same latents ({max(fit.agreements):.3f})")
    detail = (
        f"the next best has other latents (correlation {fit.agreements[0]:.2f}), and its held-out "
        f"likelihood is {fit.gaps[0]:.2g} nats a row lower"
    )
    if fit.gaps[0] < _LARGE_GAP:
        return Check(name, False, f"{detail}: the data do not decide")
    return Check(name, None, f"{detail}: one restart alone came to the answer; more would tell")


def _finite_check(fit: FlowFit) -> Check:
    return Check(
        "training stayed finite",
        fit.retried == 0 and fit.skipped_steps == 0,
        f"{fit.retried} restarts diverged and were run again with a smaller step, "
        f"{fit.skipped_steps} steps were left out",
    )


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
        here are found. None: all are found.
    mechanisms
        ``"nonlinear"``: of any shape, with additive noise; ``"linear"``: linear with Gaussian
        noise, which identifies latents up to scale.
    reduction
        How X with more features than latents is brought to as many numbers as there are latents:
        ``"linear"`` (principal components), ``"links"`` (monotone functions of each feature, then
        principal components), ``"auto"`` (links where they help).
    reference
        Label of the observational environment; None: 0, or the one that has the name of a control.
    n_steps
        Steps of the training.
    n_restarts
        Flows that are trained from different starts; the best by held-out likelihood is taken.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes.
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
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "targets": [dict, None],
        "mechanisms": [StrOptions({"nonlinear", "linear"})],
        "reduction": [StrOptions({"auto", "linear", "links"})],
        "reference": "no_validation",
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        targets: dict[Hashable, Hashable] | None = None,
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
        self.mechanisms = mechanisms
        self.reduction = reduction
        self.reference = reference
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        return nonlinear_intervention_crl(
            X,
            read_environments(y, self.reference),
            self.n_latents,
            targets=self.targets,
            mechanisms=cast(Any, self.mechanisms),
            reduction=cast(Any, self.reduction),
            n_steps=self.n_steps,
            n_restarts=self.n_restarts,
            seed=seed,
            checkpoint=self.checkpoint,
        )
