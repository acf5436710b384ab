"""Noisy linear measurements from many domains, known graph and targets (EB-CRL, CRL f-modelling).

Recovers the latents behind x = A z + noise, with isotropic Gaussian noise and orthogonal columns of
A (or any, with an observational domain), and denoises them: posterior means and variances. Graph
and targets of each environment are known; mechanisms, noises and interventions are not.

1. *Measurement*: the span of A and the noise variance from the second moment of X.
2. *Rotation*: inside the span, from means and covariances of the environments: an intervention
   changes its targets and their effects and nothing else; by the likelihood of these conditions
   (`crlearn.likelihood.find_unmixing`).
3. *Score*: causally structured score matching with cubic splines, in closed form
   (`crlearn.scores.StructuredScore`).
4. *Denoising*: Tweedie's formulas, first and second order (`crlearn.scores.Denoiser`).

The paper finds the rotation by an EM algorithm from principal components, of which the truth is no
fixed point (`crlearn.published.EBCRL`); here steps 1 to 4 are done once. The paper's score of a
latent looks at its parents; here it looks at the whole Markov blanket, in pairs, since the child of
a latent says as much about it as a parent.

Cost: O(N d^2) for step 1, nothing in N for step 2, O(N n F^2) for step 3 with F features for each
latent (`crlearn.scores.StructuredScore`), O(N n F) for step 4.

References
----------
Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal representations,
2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import COUNTED, counted
from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Measurement,
    NumberOfLatents,
    Scaling,
    check_environment_sizes,
    measure,
    names_of_nodes,
    read_domains,
    read_environments,
    read_graph,
    read_mixing,
    resolve_n_latents,
)
from crlearn.likelihood import Domains, Unmixing, domain_checks, find_unmixing, sign_check
from crlearn.methods._alternatives import determination_check
from crlearn.methods._denoising import NO_GRAPH, DenoisingCRL, offset_of, refuse_small_environments
from crlearn.methods.adjusted._estimator import AdjustedCRL
from crlearn.result import Alternative, Check, Guarantee, LinearDecoder, Result
from crlearn.scores import (
    CubicSplines,
    Denoiser,
    Posterior,
    StructuredScore,
    root_of,
    score_graph,
    whitened,
)

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, if the "
    "measurement is linear with noise alike in all features, the columns of the mixing are "
    "orthogonal, and the given graph and targets are right; its sign by the shift of its mean, if "
    "interventions shift it",
    accounts_for=("signs are determined",),
)
FREE_GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, if the "
    "measurement is linear with noise alike in all features, interventions are hard, one "
    "environment is observational, and the given graph and targets are right; its sign by the "
    "shift of its mean, if interventions shift it",
    accounts_for=("signs are determined",),
)
SPAN_GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="all latents together up to one rotation, without measurement noise: no targets were "
    "given that could tell them apart",
    accounts_for=("targets are known",),
)


@dataclass(frozen=True)
class ScoreOptions:
    """How scores are matched.

    Attributes
    ----------
    structure
        See `EmpiricalBayesCRL`.
    interactions
        Terms of the score: ``"pairs"`` of a latent and each neighbour (K^2 features each, for K =
        n_knots + 2), or ``"sums"`` over the neighbours (K features each; 1% less precise).
    n_knots
        Of the splines, over the 0.2% to 99.8% quantiles of each latent.
    ridge
        Penalty in score matching; None: by cross-validation, for each latent.
    hard
        Whether interventions cut latents off their parents.
    dense
        Whether all latents have a term, for noise that is not independent.
    """

    structure: Literal["graph", "full", "empty", "pool", "none"] = "graph"
    interactions: Literal["pairs", "sums"] = "pairs"
    n_knots: int = 5
    ridge: float | None = None
    hard: bool = True
    dense: bool = False

    def fit(
        self,
        rows: Matrix,
        intervened: BoolMatrix | None,
        graph: BoolMatrix,
        weights: NDArray[np.floating] | None = None,
    ) -> StructuredScore:
        """Match a score to noisy latents; `intervened` is None where targets are not known."""
        if intervened is None:
            intervened = np.zeros(rows.shape, dtype=bool)
        assert self.structure != "none"
        return StructuredScore.fit(
            rows,
            intervened,
            score_graph(graph, self.structure),
            splines=CubicSplines.spanning(rows, self.n_knots),
            hard=self.hard,
            interactions=self.interactions,
            dense=self.dense,
            ridge=self.ridge,
            weights=weights,
        )


@dataclass(frozen=True, eq=False)
class Found:
    """An unmixing of the span, before anything is denoised."""

    unmixing: Matrix
    noise_variance: float
    span: Matrix
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()

    @property
    def noise(self) -> Matrix:
        """Covariance of the noise of the latents."""
        inner = self.unmixing @ self.unmixing.T
        alone = np.diag(np.diag(inner))
        if np.allclose(inner, alone, rtol=0, atol=1e-9 * alone.max()):
            inner = alone  # orthogonal columns up to rounding
        return self.noise_variance * inner

    def noisy(self, measurement: Measurement) -> Matrix:
        """Return the latents with their noise, in the units of the measurement."""
        return measurement.rows @ self.span @ self.unmixing.T


def rotate(
    measurement: Measurement, domains: Domains, rng: np.random.Generator, *, orthogonal: bool
) -> Found:
    """Find the latents' axes in the span."""
    if not orthogonal and not len(domains.observational):
        raise IdentifiabilityError(
            "Columns of the mixing that are not orthogonal cannot be told from the moments of "
            "intervened environments alone. Add an observational environment, whose targets are "
            "empty, or set mixing='orthogonal'."
        )
    answer = find_unmixing(domains, rng, orthogonal=orthogonal)
    alternatives = tuple(
        Alternative(domains.graph, None, rival.gap, rival.agreement) for rival in answer.rivals
    )
    determined = determination_check(domains.n_latents, alternatives, subject="unmixing")
    return Found(
        answer.matrix,
        measurement.noise_variance,
        measurement.span,
        (*rotation_checks(answer), determined),
        {
            "invariance": answer.value,
            "degrees_of_freedom": answer.freedom,
            "inflation": answer.inflation,
            "start": answer.start,
            "shift": answer.shift,
            "zero_base": answer.zero_base,
        },
        alternatives,
    )


def given(measurement: Measurement, mixing: Matrix) -> Found:
    """Take the latents' axes from a mixing that is known."""
    scaled = mixing / measurement.scale[:, None]
    unmixing = np.linalg.inv(measurement.span.T @ scaled)
    return Found(unmixing, measurement.noise_variance, measurement.span, (), {"start": "given"})


def denoise(
    measurement: Measurement,
    found: Found,
    options: ScoreOptions,
    graph: BoolMatrix,
    intervened: BoolMatrix | None,
    weights: NDArray[np.floating] | None = None,
) -> Denoiser:
    """Match scores to the latents that were found, with their targets and without."""
    root = root_of(found.noise)
    matrix = found.unmixing @ found.span.T / measurement.scale
    linear = Denoiser(matrix, measurement.offset, root * measurement.unit, shrinkage=0.0)
    if options.structure == "none" or found.noise_variance <= 0:
        return linear
    if options.structure != "empty" and not np.array_equal(root, np.diag(np.diag(root))):
        options = replace(options, dense=True)  # noise that is shared ties all latents
    rows = whitened(found.noisy(measurement), root)
    pooled = options.fit(rows, None, graph, weights)
    score = None
    if intervened is not None and options.structure != "pool":
        score = options.fit(rows, intervened, graph, weights)
    reach = float(pooled.splines.beyond(rows).max())
    return replace(linear, score=score, pooled=pooled, shrinkage=1.0, reach=reach)


def empirical_bayes_crl(
    X: Matrix,
    environments: Environments,
    known: KnownDomains,
    *,
    options: ScoreOptions | None = None,
    orthogonal: bool = True,
    mixing: Matrix | None = None,
    noise_variance: float | None = None,
    center: bool = False,
    scale: bool = False,
    weights: NDArray[np.floating] | None = None,
    seed: int = 0,
) -> Result:
    """Recover and denoise the latents; see the module's text.

    Parameters
    ----------
    X, environments, known
        Rows, their environments, and what is known of these: graph and targets
        (`crlearn.inputs.read_environments`, `crlearn.inputs.read_domains`).
    options
        How scores are matched.
    orthogonal, mixing
        Whether the columns of the mixing are orthogonal; the mixing itself, if it is known.
    noise_variance, center, scale
        See `EmpiricalBayesCRL`.
    weights
        Of the rows in score matching, with mean one (`crlearn.inputs.read_weights`).
    seed
        Of starts at random.
    """
    options = ScoreOptions() if options is None else options
    measurement = measure(
        X,
        len(known.graph),
        offset=offset_of(X, environments, known) if center else None,
        scale=scale,
        noise_variance=noise_variance,
        mixing=mixing,
        codes=environments.codes,
    )
    domains = _domains(measurement, environments, known, options.hard)
    if mixing is not None:
        found = given(measurement, mixing)
    else:
        refuse_small_environments(environments, len(known.graph))
        found = rotate(measurement, domains, np.random.default_rng(seed), orthogonal=orthogonal)
    intervened = known.targets[environments.codes] & (options.structure != "pool")
    denoiser = denoise(measurement, found, options, known.graph, intervened, weights)
    return Result(
        encoder=denoiser,
        decoder=_decoder(measurement, found),
        guarantee=GUARANTEE if orthogonal else FREE_GUARANTEE,
        adjacency=known.graph,
        targets=known.targets,
        names=known.names,
        environments=environments.names,
        checks=(
            *measurement.checks,
            check_environment_sizes(environments, len(known.graph)),
            *measurement.noise_checks(),
            measurement.range_check(found.noisy(measurement)),
            *domain_checks(domains, found.unmixing, environments.labels, known.names),
            *(() if mixing is not None else (sign_check(domains, found.unmixing),)),
            *found.checks,
        ),
        alternatives=found.alternatives,
        details={
            "noise_variance": found.noise_variance * measurement.unit**2,
            "ridge": None if denoiser.score is None else np.array(denoiser.score.ridges),
            "target_labels": known.labels,
            "target_rows": known.rows,
            **found.details,
        },
    )


def denoised_span(
    X: Matrix,
    n_latents: NumberOfLatents,
    *,
    codes: NDArray[np.intp] | None = None,
    options: ScoreOptions | None = None,
    noise_variance: float | None = None,
    center: bool = False,
    scale: bool = False,
) -> Result:
    """Denoise principal components: all that is left if no targets are given."""
    offset = Scaling.of(X).mean if center else None
    number, count_checks, count_details = resolve_n_latents(X, n_latents, codes)
    measurement = measure(X, number, offset=offset, scale=scale, noise_variance=noise_variance)
    n = measurement.span.shape[1]
    found = Found(np.eye(n), measurement.noise_variance, measurement.span)
    empty = np.zeros((n, n), dtype=bool)
    not_known = Check(
        "targets are known",
        False,
        "none were given, so that latents are principal components; set graph= and targets=",
    )
    return Result(
        encoder=denoise(measurement, found, options or ScoreOptions(), empty, None),
        decoder=_decoder(measurement, found),
        guarantee=SPAN_GUARANTEE,
        checks=(*count_checks, *measurement.checks, not_known, *measurement.noise_checks()),
        details={**count_details, "noise_variance": found.noise_variance * measurement.unit**2},
    )


class EmpiricalBayesCRL(AdjustedCRL, DenoisingCRL):
    """Latents behind a noisy linear measurement of many domains, denoised (EB-CRL, f-modeling).

    `y` holds one environment label a row. The causal graph over the latents and the targets of each
    environment are known. Latents are the nodes of the graph, in its order; interventions raise
    their targets on average, which sets the signs (if they move means at all), and the columns of
    the mixing have unit norm, which sets the scales.

    Without `graph` and `targets` latents are denoised principal components, with a warning.
    The published algorithm is `crlearn.published.EBCRL`; knots, ridge, terms of the score and
    weights of environments are arguments of `crlearn.methods.empirical_bayes_crl`.

    Parameters
    ----------
    n_latents
        Number of latents; ``"auto"`` or None: that of the graph; without a graph the rank of X, or,
        if noise fills all dimensions, as many as stand out from it.
    graph
        ``graph[i, j]`` non-zero if latent i causes latent j, or a ``networkx.DiGraph``, whose
        nodes, if they are texts, name the latents.
    targets
        Mapping from environment labels to the latents that it intervenes on (``[]`` for none), by
        number or by name; or a
        0/1 array with one row for each environment in y, in the order of the labels, and one column
        for each latent. A mapping may name environments that are to come.
    interventions
        ``"hard"``: they cut latents off their parents; ``"soft"``: they change mechanisms.
    mixing
        ``"orthogonal"`` columns, ``"any"`` columns (needs an environment without targets), or the
        mixing itself if it is known, one column a latent.
    noise_variance
        Of the measurement; None: estimated.
    structure
        What the score of a latent depends on: its neighbours in the ``"graph"``, all latents
        (``"full"``), itself only (``"empty"``), as ``"graph"`` without the targets (``"pool"``), or
        nothing (``"none"``), which leaves the noise on the latents.
    center
        Whether to take the mean of the environments without targets off X first (of all rows, if
        there is none). Latents are then relative to it.
    scale
        Whether to divide each feature by its standard deviation first, for features in different
        units. The noise is then taken for alike in the scaled features.
    outliers
        ``"keep"``, or ``"downweight"``: rows that stand far out of their environment get the weight
        zero; ``result_.details["weights"]`` has the weights.
    random_state
        Seed of starts at random: some always, more while none fits or another answer is near.

    Examples
    --------
    >>> from crlearn import EmpiricalBayesCRL
    >>> from crlearn.data import make_multi_domain
    >>> world = make_multi_domain(n_latents=3, n_features=20, n_samples=500, random_state=0)
    >>> model = EmpiricalBayesCRL(graph=world.truth.graph, targets=world.known_targets)
    >>> model.fit(world.X, world.y).transform(world.X, world.y).shape  # posterior means
    (1500, 3)
    >>> low, high = model.posterior(world.X, world.y).interval(0.9)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **AdjustedCRL._parameter_constraints,
        "n_latents": COUNTED,
        "graph": "no_validation",
        "targets": "no_validation",
        "interventions": [StrOptions({"hard", "soft"})],
        "mixing": [StrOptions({"orthogonal", "any"}), "array-like"],
        "noise_variance": [Interval(Real, 0, None, closed="left"), None],
        "structure": [StrOptions({"graph", "full", "empty", "pool", "none"})],
        "center": ["boolean"],
        "scale": ["boolean"],
    }

    def __init__(
        self,
        n_latents: int | str | None = "auto",
        *,
        graph: Any = None,
        targets: Any = None,
        interventions: str = "hard",
        mixing: Any = "orthogonal",
        noise_variance: float | None = None,
        structure: str = "graph",
        center: bool = False,
        scale: bool = False,
        outliers: str = "keep",
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.graph = graph
        self.targets = targets
        self.interventions = interventions
        self.mixing = mixing
        self.noise_variance = noise_variance
        self.structure = structure
        self.center = center
        self.scale = scale
        self.outliers = outliers
        self.random_state = random_state

    def transform(
        self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None
    ) -> Matrix:
        """Return the posterior means of the latents.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        y
            Environment label of each row: one of those in `targets`. None: not known; the rows are
            denoised as a mixture of all environments, less precisely.
        covariates
            Of each row, if `fit` had some; their effects are taken off.
        """
        check_is_fitted(self)
        means = cast(Any, lambda rows: self._posterior_of_near_rows(rows, y).mean)
        return self._encoded_without_effects(X, covariates, means, "transform")

    def posterior(
        self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None
    ) -> Posterior:
        """Return posterior means and variances of the latents; arguments as for `transform`."""
        check_is_fitted(self)
        rows = self._without_effects(self._checked(X, reset=False), covariates)
        return self._posterior_of_near_rows(rows, y)

    def _posterior_of_near_rows(self, rows: Matrix, y: ArrayLike | None) -> Posterior:
        self._warn_if_far(rows)
        return self._posterior(rows, y)

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, fewest=1)
        options = ScoreOptions(
            structure=self.structure,  # type: ignore[arg-type]
            hard=self.interventions == "hard",
        )
        measured: dict[str, Any] = {
            "noise_variance": self.noise_variance,
            "center": self.center,
            "scale": self.scale,
        }
        given = None if isinstance(self.n_latents, str) else self.n_latents
        graph = None if self.graph is None else read_graph(self.graph, given)
        if self.targets is None:
            n_latents = counted(self.n_latents) if graph is None else len(graph)
            codes = environments.codes
            return denoised_span(X, n_latents, codes=codes, options=options, **measured)
        if graph is None:
            raise ValueError(NO_GRAPH)
        return empirical_bayes_crl(
            X,
            environments,
            read_domains(graph, self.targets, environments, names_of_nodes(self.graph)),
            options=options,
            orthogonal=not (isinstance(self.mixing, str) and self.mixing == "any"),
            mixing=read_mixing(self.mixing, X.shape[1], len(graph)),
            seed=seed,
            **measured,
        )


def rotation_checks(answer: Unmixing) -> tuple[Check, ...]:
    """Check that graph and targets fit the moments of the environments."""
    fits = Check(
        "targets and graph fit the data",
        answer.fits,
        f"moments that must agree between environments differ by {answer.value:.0f}, with "
        f"{answer.freedom} degrees of freedom",
    )
    if answer.zero_base_fits is None:
        return (fits,)
    zero = Check(
        "means without intervention are zero",
        answer.zero_base_fits,
        "no environment is observational, so that this had to be assumed"
        if answer.zero_base_fits
        else "no environment is observational, and the means contradict it: unless targets are "
        "wrong, latents come from covariances, less precisely; add an observational environment",
    )
    return fits, zero


def _domains(
    measurement: Measurement, environments: Environments, known: KnownDomains, hard: bool
) -> Domains:
    return Domains.of(
        measurement.rows @ measurement.span,
        environments.codes,
        known.targets,
        known.graph,
        noise_variance=measurement.noise_variance,
        hard=hard,
    )


def _decoder(measurement: Measurement, found: Found) -> LinearDecoder:
    mixing = found.span @ np.linalg.inv(found.unmixing)
    return LinearDecoder(mixing * measurement.scale[:, None], measurement.offset)
