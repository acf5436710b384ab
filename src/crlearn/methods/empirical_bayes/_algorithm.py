"""Noisy linear measurements from many domains, known graph and targets (EB-CRL, CRL f-modelling).

Recovers the latents behind x = A z + noise, with isotropic Gaussian noise and orthogonal columns of
A (or any, with an observational domain), and denoises them: posterior means and variances. Graph
and targets of each environment are known; mechanisms, noises and interventions are not.

1. *Measurement*: the span of A and the noise variance from the second moment of X.
2. *Rotation*: inside the span, from means and covariances of the environments: an intervention
   changes its targets and their effects and nothing else; by the likelihood of these conditions
   (`crlearn.likelihood.find_unmixing`).
3. *Score*: causally structured score matching with cubic splines, in closed form
   (`crlearn.scores.StructuredScore`); where known doses are added to latents, with one mechanism
   for all doses (`crlearn.scores.ShiftedScore`).
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
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Measurement,
    NumberOfLatents,
    Scaling,
    check_environment_sizes,
    measure,
    resolve_n_latents,
)
from crlearn.likelihood import (
    DomainLikelihood,
    Domains,
    Unmixing,
    domain_checks,
    find_unmixing,
    sign_check,
)
from crlearn.methods._alternatives import determination_check
from crlearn.methods._denoising import offset_of, refuse_small_environments, what_is_known
from crlearn.result import Alternative, Check, Guarantee, LinearDecoder, Result
from crlearn.scores import (
    CubicSplines,
    Denoiser,
    ShiftedScore,
    StructuredScore,
    root_of,
    score_graph,
    whitened,
)

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

# Of a latent's variance that may be expected to be that of others, with orthogonal columns: at most
# 0.06 where domains have one target (420 worlds like those of wu2026-structure and wu2026-harder,
# 500 and 2,000 rows a domain), 0.09 to 1 in those of wu2026-targets in which all domains have
# several and latents are not found (seeds 0 to 9 and 0 to 3).
_MOST_MIXED = 0.07

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

    def fit_shifted(
        self,
        rows: Matrix,
        doses: Matrix,
        graph: BoolMatrix,
        shift: Matrix,
        weights: NDArray[np.floating] | None = None,
    ) -> ShiftedScore:
        """Match a score to noisy latents to which known doses are added."""
        assert self.structure != "none"
        return ShiftedScore.fit(
            rows,
            doses,
            score_graph(graph, self.structure),
            shift,
            n_knots=self.n_knots,
            dense=self.dense,
            ridge=self.ridge,
            weights=weights,
        )

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
    if not orthogonal and not domains.hard:
        raise IdentifiabilityError(
            "Columns of the mixing that are not orthogonal can be told from hard interventions "
            "only, which cut latents off their parents: soft ones and shifts leave latents mixed "
            "with these (Varici et al., 2025). Set mixing='orthogonal'."
        )
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
    # Where columns lean far the optimum is no parabola, and the measure means little.
    precise = (precision_check(answer.mixed_shares),) if orthogonal else ()
    return Found(
        answer.matrix,
        measurement.noise_variance,
        measurement.span,
        (sign_check(domains, answer.matrix), *rotation_checks(answer), determined, *precise),
        {
            "invariance": answer.value,
            "degrees_of_freedom": answer.freedom,
            "inflation": answer.inflation,
            "mixed_shares": answer.mixed_shares,
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
    intervened: BoolMatrix | Matrix | None,
    weights: NDArray[np.floating] | None = None,
    shift: Matrix | None = None,
) -> Denoiser:
    """Match scores to the latents that were found, with their targets and without.

    With a `shift`, what a dose of one adds to each latent, `intervened` has the doses of each row.
    """
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
        if shift is None:
            score = options.fit(rows, intervened.astype(bool), graph, weights)
        else:
            moves = np.diag(shift) @ np.linalg.inv(root)
            score = options.fit_shifted(rows, intervened.astype(float), graph, moves, weights)
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
    if options.structure != "none":
        known = replace(known, graph=score_graph(known.graph, options.structure))
    offset = offset_of(X, environments, known) if center else None
    measurement = measure(
        X,
        len(known.graph),
        offset=offset,
        scale=scale,
        noise_variance=noise_variance,
        mixing=mixing,
        codes=environments.codes,
    )
    if options.structure == "pool" and mixing is None:
        return _pooled(measurement, known, options, weights)
    domains = domains_of(measurement, environments, known, options.hard)
    if mixing is not None:
        found = given(measurement, mixing)
    else:
        refuse_small_environments(environments, len(known.graph))
        found = rotate(measurement, domains, np.random.default_rng(seed), orthogonal=orthogonal)
    shift, acts = None, known.targets
    if known.doses is not None:
        zero_base = bool(found.details.get("zero_base", not domains.shows_base))
        shift = DomainLikelihood(domains, zero_base=zero_base).start(found.unmixing).shift
        acts = known.doses
    intervened = acts[environments.codes]
    denoiser = denoise(measurement, found, options, known.graph, intervened, weights, shift)
    return Result(
        encoder=denoiser,
        decoder=decoder_of(measurement, found),
        guarantee=GUARANTEE if orthogonal else FREE_GUARANTEE,
        **what_is_known(environments, known),
        checks=(
            *measurement.checks,
            check_environment_sizes(environments, len(known.graph)),
            *measurement.noise_checks(),
            measurement.range_check(found.noisy(measurement)),
            *domain_checks(domains, found.unmixing, environments.labels, known.names),
            *found.checks,
        ),
        alternatives=found.alternatives,
        details={
            "noise_variance": found.noise_variance * measurement.unit**2,
            "ridge": None if denoiser.score is None else np.array(denoiser.score.ridges),
            "target_labels": known.labels,
            "target_rows": known.rows,
            **({} if shift is None else {"dose_effects": shift * measurement.unit}),
            **found.details,
        },
    )


def _pooled(
    measurement: Measurement,
    known: KnownDomains,
    options: ScoreOptions,
    weights: NDArray[np.floating] | None,
) -> Result:
    """Return what is left of the answer if targets are ignored: principal components, denoised."""
    n = len(known.graph)
    found = Found(np.eye(n), measurement.noise_variance, measurement.span)
    ignored = Check(
        "targets are known",
        False,
        "structure='pool' ignores them, so that latents are principal components; give the mixing "
        "to ignore them in denoising only",
    )
    return Result(
        encoder=denoise(measurement, found, options, known.graph, None, weights),
        decoder=decoder_of(measurement, found),
        guarantee=SPAN_GUARANTEE,
        names=known.names,
        checks=(*measurement.checks, ignored, *measurement.noise_checks()),
        details={"noise_variance": found.noise_variance * measurement.unit**2},
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
        decoder=decoder_of(measurement, found),
        guarantee=SPAN_GUARANTEE,
        checks=(*count_checks, *measurement.checks, not_known, *measurement.noise_checks()),
        details={**count_details, "noise_variance": found.noise_variance * measurement.unit**2},
    )


def rotation_checks(answer: Unmixing) -> tuple[Check, ...]:
    """Check that graph and targets fit the moments of the environments."""
    fits = Check(
        "targets and graph fit the data",
        answer.fits,
        f"moments that must agree between environments differ by {answer.value:.0f}, with "
        f"{answer.freedom} degrees of freedom"
        + ("" if answer.fits else "; look for edges that are missing or the wrong way round"),
    )
    if answer.zero_base_fits is None:
        return (fits,)
    zero = Check(
        "means without intervention are zero",
        answer.zero_base_fits,
        "no environment is observational, so that this had to be assumed"
        if answer.zero_base_fits
        else "no environment is observational, and the means contradict it: unless the graph or "
        "targets are wrong, latents come from covariances, less precisely; add an observational "
        "environment",
    )
    return fits, zero


def precision_check(shares: Matrix) -> Check:
    """Check that the likelihood is not so flat around its optimum that latents stay mixed."""
    worst = int(np.argmax(shares))
    return Check(
        "unmixing is precise",
        bool(shares[worst] <= _MOST_MIXED),
        f"by the width of the optimum {shares[worst]:.1%} of the variance of a latent, z{worst}, "
        "may be expected to be that of others"
        + ("" if shares[worst] <= _MOST_MIXED else "; add rows, or domains with other targets"),
    )


def domains_of(
    measurement: Measurement, environments: Environments, known: KnownDomains, hard: bool
) -> Domains:
    """Return the moments of the span in each environment."""
    return Domains.of(
        measurement.rows @ measurement.span,
        environments.codes,
        known.targets,
        known.graph,
        noise_variance=measurement.noise_variance,
        hard=hard and known.doses is None,
        doses=known.doses,
    )


def decoder_of(measurement: Measurement, found: Found) -> LinearDecoder:
    """Return the map from latents to features, in the units of X."""
    mixing = found.span @ np.linalg.inv(found.unmixing)
    return LinearDecoder(mixing * measurement.scale[:, None], measurement.offset)
