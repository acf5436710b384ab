"""Linear mixing, one intervention on each latent (the setting of LSCALE-I).

Recovers the latents and the graph among them from an observational environment and one environment
for each latent in which that latent's mechanism was changed; nobody needs to know which one. With
hard interventions (the latent is cut off its parents) each latent is recovered up to scale and the
graph exactly; with soft ones each latent up to a mixture with its parents, and the graph up to its
transitive closure, or more if mechanisms are nonlinear. Latents that no environment intervenes on
are recovered up to layers if mechanisms are nonlinear, and else up to their span.

The paper estimates the scores of every environment, subtracts them, and reads the encoder from the
range and the graph from the support of the differences. Plug-in scores are the weak point: on the
paper's own tables their error hides weak edges. This implementation maximises a likelihood that has
the structure built in:

1. X is reduced to the span of the mixing and whitened: principal components, or factors where there
   is measurement noise. Then steps 2 and 3 climb the likelihood of the rows as they were measured.
2. *Without an order*: each environment changes one row of a factor of the precision matrix. A
   Newton method on covariances finds the rows, whatever the graph.
3. *With an order*: every latent is regressed on its predecessors, over all environments that leave
   it alone; orders are searched by moving one latent at a time, and edges removed by BIC. This is
   the answer if it cannot be told from a Gaussian of its own for every environment.
4. *Nonlinear mechanisms* otherwise: regressions on smooth features of the parents, the encoder by
   Newton's method with the exact Hessian, the graph by moves of single edges, priced by what a
   parent brings (`likelihood._price`), first on a part of the rows, then on all. Where
   interventions are soft, also if linear ones fit, but others explain more: if mechanisms are seen
   to be nonlinear along every direction of the parents, the graph is exact, and a latent is mixed
   with those parents only that are parents of all its children, too.
   Where some latents are not intervened on, nonlinear mechanisms show their layers, as they do in
   observational data (`methods._uncovered`).
5. *Noise that is not Gaussian*: if smooth densities of the noises gain more than they cost, encoder
   and graph are fitted with them.

Environments that hold a latent at a value (do-interventions) show its row of the encoder exactly
(`inputs._held`). Two environments that intervene on the same latent, without an observational one,
show that latent alone (`methods._node_level`).

Time grows linearly in the rows (one pass to reduce X; without step 4 nothing else sees them) and as
the sixth power of the number of latents for the Newton steps; memory holds one copy of the reduced
rows.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26(112), 2025. Welch, Zhang and Uhler, Identifiability guarantees for
causal disentanglement from purely observational data, NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import StrOptions

from crlearn.base import COUNTED
from crlearn.inputs import (
    Environments,
    NoiseName,
    NumberOfLatents,
    by_environment,
    check_environment_sizes,
    distinct_targets,
    names_after,
    read_environments,
    read_signal,
    reference_first,
    reference_of,
    single_targets,
)
from crlearn.likelihood import Moments, fit_interventional, grouped_targets, pools_of
from crlearn.methods._alternatives import alternatives_of, determination_check
from crlearn.methods._denoising import MeasuredCRL, encoder_of
from crlearn.methods._interventional import (
    blamed,
    doubt_check,
    far_rows_check,
    fit_checks,
    fit_details,
    held_latents,
    known_relations,
    soft_guarantee,
    visibility_check,
)
from crlearn.methods._node_level import is_pair, node_level_crl
from crlearn.methods._uncovered import coverage_check, guarantee_of, known_edges, layers_of
from crlearn.result import Check, Guarantee, LinearDecoder, Result

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
    n_latents: NumberOfLatents = None,
    *,
    interventions: Literal["hard", "soft"] = "hard",
    mechanisms: Literal["auto", "linear", "nonlinear"] = "auto",
    noise: NoiseName = "auto",
    targets: Mapping[Hashable, Hashable] | None = None,
    seed: int = 0,
) -> Result:
    """Recover latents and graph; see the module's text."""
    hard = interventions == "hard"
    if targets is not None and is_pair(environments, targets, hard=hard):
        target = targets[environments.labels.tolist()[0]]
        return node_level_crl(X, environments, target, n_latents, noise=noise, seed=seed)
    groups = group_environments(environments, targets)
    signal = read_signal(X, environments, n_latents, groups.n_targets, noise)
    n = signal.n_latents
    rows = by_environment(signal.encoder(X), environments, groups.order)
    signal_noise, rng = signal.noise_in(groups.order), np.random.default_rng(seed)
    held = held_latents(rows, environments.labels[groups.order], hard=hard)
    held.refuse_several()
    rows = held.widened(rows, rng)
    if groups.n_targets > n:
        moments = Moments.of(rows, noise=signal_noise)
        groups = replace(groups, latent=grouped_targets(groups.latent, moments, n, rng))
    pool = pools_of(groups.latent, n)
    held.refuse_shared(pool.T > 0)
    fit = fit_interventional(
        rows,
        pool,
        hard=hard,
        mechanisms=blamed(mechanisms, signal),
        rng=rng,
        noise=signal_noise,
    )
    fit = replace(fit, H=held.exact(fit.H, fit.targets))
    covered = np.isin(np.arange(n), groups.latent)
    names = groups.latent_names(n)
    known = known_relations(fit, hard=hard)
    full = HARD_GUARANTEE if hard else soft_guarantee(SOFT_GUARANTEE, fit, names)
    labels, alternatives = environments.labels[groups.order], alternatives_of(fit)
    encoder = encoder_of(fit, signal, rows, X, environments, groups.order)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=guarantee_of(full, fit, covered, names),
        adjacency=known_edges(fit, known, covered),
        targets=groups.targets(n),
        layers=layers_of(fit, covered),
        names=names,
        environments=environments.names,
        checks=(
            *signal.checks,
            *groups.checks,
            coverage_check(fit, covered, names),
            check_environment_sizes(environments, n),
            visibility_check(Moments.of(rows), labels),
            *held.checks(fit.H, fit.targets, names),
            *fit_checks("single-node interventions fit", fit, environments, groups.order),
            *far_rows_check(fit, environments, groups.order),
            determination_check(n, alternatives),
            *doubt_check(fit, known | ~(covered & covered[:, None]), names),
        ),
        alternatives=alternatives,
        goodness_of_fit=fit.goodness_of_fit if fit.mechanisms == "linear" else None,
        edge_p_values=fit.edge_p_values,
        encoder_standard_errors=fit.standard_errors,
        details=fit_details(fit, signal),
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
    names
        What each of the others is named after: its target, or itself.
    """

    environments: Environments
    order: NDArray[np.intp]
    latent: NDArray[np.intp]
    checks: tuple[Check, ...]
    names: Sequence[Any]

    @property
    def n_targets(self) -> int:
        """Number of latents that are intervened on."""
        return int(self.latent.max()) + 1

    def targets(self, n_latents: int) -> BoolMatrix:
        """Return which environment intervenes on which latent, in the order of the labels."""
        targets = np.zeros((len(self.order), n_latents), dtype=bool)
        targets[self.order[1:], self.latent] = True
        return targets

    def latent_names(self, n_latents: int) -> tuple[str, ...] | None:
        """Return the names of the latents; None: z0, z1, ..."""
        sources: list[dict[Any, None]] = [{} for _ in range(n_latents)]
        for latent, name in zip(self.latent, self.names, strict=True):
            sources[latent][name] = None
        return names_after([[*own] for own in sources])


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
    distinct = list(names) if targets is None else distinct_targets(names)
    latent = np.array([distinct.index(name) for name in names], dtype=np.intp)
    return Groups(environments, order, latent, (reference_of(environments)[1],), names)


class LinearInterventionCRL(MeasuredCRL):
    """Latents and graph from one intervention per latent, linear mixing (setting of LSCALE-I).

    The published algorithm is `crlearn.published.LSCALEI`.

    `y` holds one environment label a row. One environment is observational; each of the others
    changes the mechanism of one latent. Latent i is the one that the i-th of these environments
    (in the order of the labels) intervenes on. It has the name of that environment, or of its
    target, if that is a text; otherwise latents are called z0, z1, ...

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X, or, if noise fills all dimensions, one for each
        target, with a check that compares it; ``"auto"``: the rank of X, or as many as stand out
        from the noise.
    interventions
        ``"hard"``: they cut a latent off its parents, or set it to a value. ``"soft"``: they change
        its mechanism; less can be recovered then.
    mechanisms
        ``"linear"``, ``"nonlinear"``, or ``"auto"``: nonlinear if linear ones do not fit, or if
        interventions are soft and nonlinear ones explain more.
    noise
        Of the features: ``"gaussian"``, independent, with a variance of its own for each feature;
        ``"poisson"``: X are counts, whose variance beside the latents is their mean; ``"none"``; or
        ``"auto"``: Gaussian if X fills more dimensions than there are latents.
    targets
        Which environments intervene on the same latent: a dictionary from labels to names of
        targets, or a 0/1 matrix (labels in order, latents). None: each on its own, or as many as
        `n_latents` says, found by the likelihood. If there are two environments alone, and both
        have the same target, none is observational, and that latent alone is recovered.
    outliers
        ``"keep"``, or ``"downweight"``: rows that stand far out of their environment get the weight
        zero; ``result_.details["weights"]`` has the weights.
    reference
        Label of the observational environment; None: the one labelled 0, or by a name such as
        ``"control"``, ``"wt"`` or ``"untreated"``.
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MeasuredCRL._parameter_constraints,
        "n_latents": COUNTED,
        "interventions": [StrOptions({"hard", "soft"})],
        "mechanisms": [StrOptions({"auto", "linear", "nonlinear"})],
        "noise": [StrOptions({"auto", "gaussian", "poisson", "none"})],
        "targets": [dict, "array-like", None],
        "reference": "no_validation",
    }

    def __init__(
        self,
        n_latents: int | str | None = None,
        *,
        interventions: str = "hard",
        mechanisms: str = "auto",
        noise: str = "auto",
        targets: dict[Hashable, Hashable] | ArrayLike | None = None,
        outliers: str = "keep",
        reference: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.interventions = interventions
        self.mechanisms = mechanisms
        self.noise = noise
        self.targets = targets
        self.outliers = outliers
        self.reference = reference
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        return self._algorithm_on_some(X, y, seed, None)

    def _algorithm_on_some(
        self, X: Matrix, y: NDArray[Any] | None, seed: int, numbers: NDArray[np.intp] | None
    ) -> Result:
        assert y is not None
        environments = replace(read_environments(y, self.reference), numbers=numbers)
        return linear_intervention_crl(
            X,
            environments,
            self.n_latents,
            interventions=self.interventions,  # type: ignore[arg-type]
            mechanisms=self.mechanisms,  # type: ignore[arg-type]
            noise=self.noise,  # type: ignore[arg-type]
            targets=single_targets(self.targets, environments),
            seed=seed,
        )
