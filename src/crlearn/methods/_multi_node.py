"""Linear mixing, interventions on unknown sets of latents (the setting of UMNI-CRL).

Recovers the latents, the graph among them and the targets of every environment from an
observational environment and others, each of which changes the mechanisms of some latents; nobody
needs to know which. The 0/1 matrix of targets must have full rank. With hard interventions each
latent is recovered up to scale and the graph exactly; with soft ones each latent up to a mixture
with its ancestors, and the graph up to its transitive closure.

The paper estimates score differences and looks for integer combinations of environments that act
like an intervention on one latent, by enumerating them and cutting singular values. This
implementation maximises one likelihood over all environments:

1. X is reduced to the span of the mixing and whitened.
2. *Peeling*: a latent whose causes are known gives a direction in which precision matrices differ
   by rank one. The environments in which it has one mechanism, and those in which it has another,
   are read from the likelihood of its conditional distribution.
3. *Joint fit*: every latent is regressed on its predecessors over the environments that leave it
   alone. Against a Gaussian of its own for every environment this is a test of the whole answer;
   while it fails, targets and order are changed.
4. Edges that are not needed are dropped.
5. *Nonlinear mechanisms*, if linear ones do not fit: as in `LinearInterventionCRL`, and targets
   are revised as well.

Time grows linearly in the rows (one pass to reduce X; without step 5 nothing else sees them), and
about as m n^4 in the number of environments and latents.

References
----------
Varıcı, Acartürk, Shanmugam and Tajer, Linear causal representation learning from unknown multi-node
interventions, NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import BaseCRL
from crlearn.graph import topological_order, transitive_closure
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
    TargetFit,
    adjacency_of,
    find_targets,
    fit_nonlinear,
    fit_with_noise,
    graph_of,
)
from crlearn.methods._interventional import (
    FITS,
    fit_check,
    fit_details,
    visibility_check,
    with_any_noise,
)
from crlearn.methods._umni import umni_crl
from crlearn.result import Check, Guarantee, LinearDecoder, LinearEncoder, Result

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

HARD_GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, the exact graph and the targets of each environment, "
    "if the mixing is linear, interventions cut latents off their parents, in one way for each "
    "latent, and the 0/1 matrix of targets has full rank",
)
SOFT_GUARANTEE = Guarantee(
    latents="ancestors",
    graph="closure",
    text="each latent up to scale, order and a mixture with its ancestors, who is an ancestor of "
    "whom, and the targets of each environment, if the mixing is linear, interventions change "
    "mechanisms in one way for each latent, and the 0/1 matrix of targets has full rank",
)


def multi_node_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    interventions: Literal["hard", "soft"] = "hard",
    mechanisms: Literal["auto", "linear", "nonlinear"] = "auto",
    seed: int = 0,
) -> Result:
    """Recover latents, graph and targets; see the module's text."""
    hard = interventions == "hard"
    order = reference_first(environments)
    span, column_checks = reduce_to_span(X, environments, n_latents)
    rows = by_environment(X @ span.matrix.T, environments, order)
    moments = Moments.of(rows)

    linear = find_targets(moments, rng=np.random.default_rng(seed), hard=hard)
    fit = linear.goodness_of_fit
    found: NonlinearFit | None = None
    if mechanisms == "nonlinear" or (mechanisms == "auto" and fit.p_value < FITS):
        starts = [(linear.encoder, graph_of(linear.parents)), (linear.encoder, None)]
        pool = linear.targets.T.astype(np.intp)
        found = fit_nonlinear(rows, pool, starts, hard=hard, unknown_targets=True)
        found = with_any_noise(rows, found, starts[:1], hard)
    noisy = _with_any_noise(rows, moments, linear) if found is None else None
    answer = _Answer.of(linear, found, noisy)
    encoder = in_readable_units(answer.encoder @ span.matrix, X, environments)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=HARD_GUARANTEE if hard else SOFT_GUARANTEE,
        adjacency=answer.parents if hard else transitive_closure(answer.parents),
        targets=answer.targets[np.argsort(order)],
        checks=(
            *column_checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, span.n_latents),
            visibility_check(moments, environments.labels[order]),
            fit_check("interventions on sets of latents fit", fit, is_linear=found is None),
        ),
        goodness_of_fit=fit if found is None else None,
        edge_p_values=answer.edge_p_values,
        encoder_standard_errors=answer.standard_errors,
        details=fit_details(found, noisy),
    )


def published_umni_crl(
    X: Matrix,
    environments: Environments,
    n_latents: int | None = None,
    *,
    interventions: Literal["hard", "soft"] = "hard",
    scores: Any = "gaussian",
    max_coefficient: int = 2,
    rank_threshold: Literal["paper", "test"] = "paper",
    rank_cut: float = 0.05,
    seed: int = 0,
) -> Result:
    """Recover latents, graph and targets as published; see `crlearn.methods._umni`."""
    order = reference_first(environments)
    n = reduce_to_span(X, environments, n_latents)[0].n_latents
    found = umni_crl(
        X,
        np.argsort(order)[environments.codes],
        n,
        score=scores,
        hard=interventions == "hard",
        max_coefficient=max_coefficient,
        rank_cut=rank_cut,
        threshold=rank_threshold,
        random_state=seed,
    )
    encoder = in_readable_units(found.encoder, X, environments)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=HARD_GUARANTEE if interventions == "hard" else SOFT_GUARANTEE,
        adjacency=found.adjacency,
        targets=found.targets[np.argsort(order)],
        checks=(
            reference_of(environments)[1],
            check_environment_sizes(environments, n),
        ),
        details=dict(found.diagnostics),
    )


def reduce_to_span(
    X: Matrix, environments: Environments, n_latents: int | None
) -> tuple[LinearEncoder, tuple[Check, ...]]:
    """Return the map to the leading principal components, and checks of the columns."""
    span, checks = whitening(X, n_latents)
    if n_latents is None and span.n_latents == X.shape[1]:
        # Measurement noise fills all dimensions; what interventions can tell apart is the limit.
        span = LinearEncoder(span.matrix[: len(environments) - 1], span.offset)
    return span, checks


def _with_any_noise(rows: Sequence[Matrix], moments: Moments, linear: TargetFit) -> NoisyFit | None:
    """Fit encoder and graph again if the noises are not Gaussian; None if they may be."""
    problem = LinearProblem(moments, linear.targets.T.astype(np.intp), hard=True)
    return fit_with_noise(rows, problem, LinearFit(linear.encoder, linear.parents, linear.value))


@dataclass(frozen=True, eq=False)
class _Answer:
    """What was found, latents in causal order."""

    encoder: Matrix
    parents: BoolMatrix
    targets: BoolMatrix
    edge_p_values: Matrix | None = None
    standard_errors: Matrix | None = None

    @classmethod
    def of(cls, linear: TargetFit, found: NonlinearFit | None, noisy: NoisyFit | None) -> _Answer:
        """Take the best model that was fitted."""
        if found is not None:
            answer = cls(found.H, adjacency_of(found.graph), found.pool.T.astype(bool))
            return answer.causes_first()
        tests = linear if noisy is None else noisy
        H, parents = (
            (linear.encoder, linear.parents)
            if noisy is None
            else (noisy.linear.H, noisy.linear.adjacency)
        )
        answer = cls(H, parents, linear.targets, tests.edge_p_values, tests.standard_errors)
        return answer.causes_first()

    def causes_first(self) -> _Answer:
        """Put the latents into causal order."""
        order = topological_order(self.parents)
        among = np.ix_(order, order)
        return _Answer(
            self.encoder[order],
            self.parents[among],
            self.targets[:, order],
            None if self.edge_p_values is None else self.edge_p_values[among],
            None if self.standard_errors is None else self.standard_errors[among],
        )


class MultiNodeCRL(BaseCRL):
    """Latents, graph and targets from interventions on unknown sets of latents (UMNI-CRL).

    `y` holds one environment label a row. One environment is observational; each of the others
    changes the mechanisms of some latents, and there are at least as many as latents. Latents are
    numbered causes first.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X, or, if noise fills all dimensions, the number of
        environments beside the reference.
    interventions
        ``"hard"``: they cut latents off their parents. ``"soft"``: they change mechanisms; less can
        be recovered then.
    mechanisms
        ``"linear"``, ``"nonlinear"``, or ``"auto"``: nonlinear if linear ones do not fit.
    estimator
        ``"likelihood"``, or ``"paper"`` for the published algorithm; the parameters after
        `reference` belong to that one.
    reference
        Label of the observational environment; None: the one labelled 0.
    scores
        Score differences: ``"gaussian"``, ``"ratio"``, ``"sliced"``, or whatever
        `crlearn.scores.make_score` takes.
    max_coefficient
        Largest coefficient of an environment in the combinations that are tried.
    rank_threshold, rank_cut
        ``"paper"``: singular values below `rank_cut` are zero; ``"test"``: those are that cannot be
        told from zero by a test.
    random_state
        Seed of the starts.

    Examples
    --------
    >>> from crlearn import MultiNodeCRL
    >>> from crlearn.data import make_multi_node
    >>> world = make_multi_node(n_latents=3, n_features=10, n_samples=2000, random_state=0)
    >>> model = MultiNodeCRL(interventions="hard", random_state=0).fit(world.X, world.y)
    >>> model.result_.targets.shape  # which environment intervenes on which latent
    (4, 3)
    """

    _requires_y = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "interventions": [StrOptions({"hard", "soft"})],
        "mechanisms": [StrOptions({"auto", "linear", "nonlinear"})],
        "estimator": [StrOptions({"likelihood", "paper"})],
        "reference": "no_validation",
        "scores": "no_validation",
        "max_coefficient": [Interval(Integral, 1, None, closed="left")],
        "rank_threshold": [StrOptions({"paper", "test"})],
        "rank_cut": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        interventions: str = "hard",
        mechanisms: str = "auto",
        estimator: str = "likelihood",
        reference: Any = None,
        scores: Any = "gaussian",
        max_coefficient: int = 2,
        rank_threshold: str = "paper",
        rank_cut: float = 0.05,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.interventions = interventions
        self.mechanisms = mechanisms
        self.estimator = estimator
        self.reference = reference
        self.scores = scores
        self.max_coefficient = max_coefficient
        self.rank_threshold = rank_threshold
        self.rank_cut = rank_cut
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, self.reference)
        if self.estimator == "paper":
            return published_umni_crl(
                X,
                environments,
                self.n_latents,
                interventions=self.interventions,  # type: ignore[arg-type]
                scores=self.scores,
                max_coefficient=self.max_coefficient,
                rank_threshold=self.rank_threshold,  # type: ignore[arg-type]
                rank_cut=self.rank_cut,
                seed=seed,
            )
        return multi_node_crl(
            X,
            environments,
            self.n_latents,
            interventions=self.interventions,  # type: ignore[arg-type]
            mechanisms=self.mechanisms,  # type: ignore[arg-type]
            seed=seed,
        )
