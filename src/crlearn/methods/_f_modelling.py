"""Noisy linear measurements from many domains, known graph and targets (EB-CRL, CRL f-modelling).

Recovers the latents behind x = A z + noise, with isotropic Gaussian noise and orthogonal columns of
A (or any, with an observational domain), and denoises them: posterior means and variances. Graph
and targets of each environment are known; mechanisms, noises and interventions are not.

1. *Measurement*: the span of A and the noise variance from the second moment of X.
2. *Rotation*: inside the span, from means and covariances of the environments: an intervention
   changes its targets and their effects and nothing else; by a criterion, and with an
   observational environment by its likelihood (`crlearn.likelihood.find_unmixing`).
3. *Score*: causally structured score matching with cubic splines, in closed form
   (`crlearn.scores.StructuredScore`).
4. *Denoising*: Tweedie's formulas, first and second order.

The paper finds the rotation by an EM algorithm from principal components. Its M-step has errors,
and the truth is no fixed point of it even without them (see `_empirical_bayes_paper`); here steps 1
to 4 are done once. The paper's score of a latent looks at its parents; here it looks at the whole
Markov blanket, in pairs, since the child of a latent says as much about it as a parent.

Cost: O(N d^2) for step 1, nothing in N for step 2, O(N n F^2) for step 3 with F features for each
latent (`crlearn.scores.StructuredScore`), O(N n F) for step 4.

References
----------
Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal representations,
2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.graph import topological_order
from crlearn.inputs import Environments, KnownDomains, check_environment_sizes
from crlearn.likelihood import Domains, Unmixing, find_unmixing
from crlearn.methods._denoiser import Denoiser, root_of, whitened
from crlearn.methods._domain_checks import domain_checks, knots_check
from crlearn.methods._empirical_bayes_paper import em_f_modelling, match_columns
from crlearn.methods._measurement import Measurement, measure
from crlearn.result import Check, Guarantee, LinearDecoder, Result
from crlearn.scores import CubicSplines, StructuredScore

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Structure = Literal["graph", "full", "empty", "pool"]

GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, if the "
    "measurement is linear with noise alike in all features, the columns of the mixing are "
    "orthogonal, and the given graph and targets are right",
)
FREE_GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, if the "
    "measurement is linear with noise alike in all features, interventions are hard, one "
    "environment is observational, and the given graph and targets are right",
)
SPAN_GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="all latents together up to one rotation, without measurement noise: no targets were "
    "given that could tell them apart",
)


@dataclass(frozen=True)
class ScoreOptions:
    """How scores are matched."""

    structure: Structure = "graph"
    interactions: Literal["pairs", "sums", "tensor"] = "pairs"
    n_knots: int = 5
    knot_range: tuple[float, float] | None = None
    ridge: float | None = None
    hard: bool = True
    dense: bool = False
    penalty: Literal["curvature", "size"] = "curvature"

    def fit(
        self,
        rows: Matrix,
        intervened: BoolMatrix | None,
        graph: BoolMatrix,
        unit: NDArray[np.floating],
        weights: NDArray[np.floating] | None = None,
    ) -> StructuredScore:
        """Match a score to noisy latents in some unit each.

        `intervened` is None where targets are not known.
        """
        if intervened is None:
            intervened = np.zeros(rows.shape, dtype=bool)
        if self.knot_range is None:
            splines = CubicSplines.spanning(rows, self.n_knots)
        else:
            low, high = (end / unit for end in self.knot_range)
            splines = CubicSplines.between(low, high, self.n_knots)
        return StructuredScore.fit(
            rows,
            intervened,
            self.graph(graph),
            splines=splines,
            hard=self.hard,
            interactions=self.interactions,
            dense=self.dense,
            ridge=self.ridge,
            penalty=self.penalty,
            weights=weights,
        )

    def graph(self, graph: BoolMatrix) -> BoolMatrix:
        """Return the graph that the score's terms follow."""
        if self.structure == "empty":
            return np.zeros_like(graph)
        if self.structure == "full":
            place = np.argsort(topological_order(graph))
            return place[:, None] < place[None, :]
        return graph


@dataclass(frozen=True, eq=False)
class Found:
    """An unmixing of the span, before anything is denoised."""

    unmixing: Matrix
    noise_variance: float
    span: Matrix
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, NDArray[Any]] = field(default_factory=dict)

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


def empirical_bayes_crl(
    X: Matrix,
    environments: Environments,
    known: KnownDomains,
    *,
    options: ScoreOptions,
    orthogonal: bool = True,
    shrinkage: float = 1.0,
    mixing: Matrix | None = None,
    noise_variance: float | None = None,
    center: bool = False,
    scale: bool = False,
    weights: NDArray[np.floating] | None = None,
    start: Literal["moments", "pca"] = "moments",
    n_iterations: int = 0,
    seed: int = 0,
) -> Result:
    """Recover and denoise the latents; see the module's text.

    With `n_iterations` this is the paper's algorithm, from the rotation of step 2 or from
    principal components that are matched to the targets.
    """
    measurement = measure(
        X,
        len(known.graph),
        offset=_offset(X, environments, known) if center else None,
        scale=scale,
        noise_variance=noise_variance,
        mixing=mixing,
        codes=environments.codes if start == "moments" else None,
    )
    if mixing is not None:
        found = _given(measurement, mixing)
    else:
        _refuse_small_environments(environments, len(known.graph))
        rng = np.random.default_rng(seed)
        domains = _domains(measurement, environments, known, options.hard)
        found = rotate(measurement, domains, rng, orthogonal=orthogonal, start=start)
    intervened = known.targets[environments.codes] & (options.structure != "pool")

    if n_iterations:
        units = np.full(len(known.graph), measurement.unit)
        found = _iterate(
            measurement,
            found,
            intervened,
            lambda rows: options.fit(rows, intervened, known.graph, units, weights),
            shrinkage,
            n_iterations,
        )
    denoiser = _denoiser(measurement, found, options, known.graph, intervened, weights, shrinkage)
    domains = _domains(measurement, environments, known, options.hard, found.span)
    return Result(
        encoder=denoiser,
        decoder=_decoder(measurement, found),
        guarantee=GUARANTEE if orthogonal else FREE_GUARANTEE,
        adjacency=known.graph,
        targets=known.targets,
        checks=(
            *measurement.checks,
            check_environment_sizes(environments, len(known.graph)),
            *measurement.noise_checks(),
            measurement.range_check(found.noisy(measurement)),
            *domain_checks(domains, found.unmixing, environments.labels),
            *found.checks,
            *_knots_checks(measurement, found, denoiser),
        ),
        history=found.history,
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
    n_latents: int | None,
    *,
    options: ScoreOptions,
    shrinkage: float = 1.0,
    noise_variance: float | None = None,
    center: bool = False,
    scale: bool = False,
) -> Result:
    """Denoise principal components: all that is left if no targets are given."""
    offset = X.mean(axis=0) if center else None
    measurement = measure(X, n_latents, offset=offset, scale=scale, noise_variance=noise_variance)
    n = measurement.span.shape[1]
    found = Found(np.eye(n), measurement.noise_variance, measurement.span)
    empty = np.zeros((n, n), dtype=bool)
    denoiser = _denoiser(measurement, found, options, empty, None, None, shrinkage)
    not_known = Check(
        "targets are known",
        False,
        "none were given, so that latents are principal components; set graph= and targets=",
    )
    return Result(
        encoder=denoiser,
        decoder=_decoder(measurement, found),
        guarantee=SPAN_GUARANTEE,
        checks=(*measurement.checks, not_known, *measurement.noise_checks()),
        details={"noise_variance": found.noise_variance * measurement.unit**2},
    )


def rotate(
    measurement: Measurement,
    domains: Domains,
    rng: np.random.Generator,
    *,
    orthogonal: bool,
    start: Literal["moments", "pca"],
) -> Found:
    """Find the latents' axes in the span."""
    if start == "pca":
        base, _ = domains.base
        columns = match_columns(np.eye(domains.n_latents), domains.means, domains.targets, base)
        return Found(columns.T, measurement.noise_variance, measurement.span)
    if not orthogonal and not len(domains.observational):
        raise IdentifiabilityError(
            "Columns of the mixing that are not orthogonal cannot be told from the moments of "
            "intervened environments alone. Add an observational environment, whose targets are "
            "empty, or set mixing='orthogonal'."
        )
    answer = find_unmixing(domains, rng, orthogonal=orthogonal)
    return Found(
        answer.matrix,
        measurement.noise_variance,
        measurement.span,
        _rotation_checks(answer),
        {
            "invariance": answer.value,
            "degrees_of_freedom": answer.freedom,
            "start": answer.start,
            "shift": answer.shift,
            "zero_base": answer.zero_base,
        },
    )


def _rotation_checks(answer: Unmixing) -> tuple[Check, ...]:
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


def _iterate(
    measurement: Measurement,
    found: Found,
    intervened: BoolMatrix,
    fit_score: Callable[[Matrix], StructuredScore],
    shrinkage: float,
    n_iterations: int,
) -> Found:
    """Run the paper's EM from what was found."""
    answer = em_f_modelling(
        measurement.rows,
        intervened,
        found.span @ found.unmixing.T,
        found.noise_variance,
        fit_score,
        n_iterations=n_iterations,
        shrinkage=shrinkage,
    )
    variances = answer.history["noise_variance"] * measurement.unit**2
    return Found(
        np.eye(answer.mixing.shape[1]),
        answer.noise_variance,
        answer.mixing,
        found.checks,
        found.details,
        {**answer.history, "noise_variance": variances},
    )


def _refuse_small_environments(environments: Environments, n: int) -> None:
    small = environments.labels[environments.counts <= n]
    if len(small):
        raise ValueError(
            f"Every environment needs more than {n} rows, one for each latent and one more, for "
            f"its covariance. Too few are in: {', '.join(map(str, small[:8]))}. Leave them out of "
            "the fit; transform takes them."
        )


def _given(measurement: Measurement, mixing: Matrix) -> Found:
    scaled = mixing / measurement.scale[:, None]
    unmixing = np.linalg.inv(measurement.span.T @ scaled)
    return Found(unmixing, measurement.noise_variance, measurement.span, (), {"start": "given"})


def _domains(
    measurement: Measurement,
    environments: Environments,
    known: KnownDomains,
    hard: bool,
    span: Matrix | None = None,
) -> Domains:
    return Domains.of(
        measurement.rows @ (measurement.span if span is None else span),
        environments.codes,
        known.targets,
        known.graph,
        noise_variance=measurement.noise_variance,
        hard=hard,
    )


def _offset(X: Matrix, environments: Environments, known: KnownDomains) -> NDArray[np.floating]:
    """Return the mean of the observational rows, or of all if there are none."""
    free = ~np.asarray(known.targets.any(axis=1))[environments.codes]
    return X[free].mean(axis=0) if free.any() else X.mean(axis=0)


def _denoiser(
    measurement: Measurement,
    found: Found,
    options: ScoreOptions,
    graph: BoolMatrix,
    intervened: BoolMatrix | None,
    weights: NDArray[np.floating] | None,
    shrinkage: float,
) -> Denoiser:
    """Match scores to the latents that were found, with their targets and without."""
    linear = Denoiser(
        found.unmixing @ found.span.T / measurement.scale,
        measurement.offset,
        root_of(found.noise) * measurement.unit,
        shrinkage=shrinkage,
    )
    if not shrinkage or found.noise_variance <= 0:
        return linear
    root = root_of(found.noise)
    if options.structure != "empty" and not np.array_equal(root, np.diag(np.diag(root))):
        options = replace(options, dense=True)  # noise that is shared ties all latents
    rows = whitened(found.noisy(measurement), root)
    unit = measurement.unit * np.sqrt((root**2).sum(axis=0))
    pooled = options.fit(rows, None, graph, unit, weights)
    score = None
    if intervened is not None and options.structure != "pool":
        score = options.fit(rows, intervened, graph, unit, weights)
    reach = float(pooled.splines.beyond(rows).max())
    return replace(linear, score=score, pooled=pooled, reach=reach)


def _knots_checks(measurement: Measurement, found: Found, denoiser: Denoiser) -> tuple[Check, ...]:
    if denoiser.pooled is None:
        return ()
    rows = whitened(found.noisy(measurement), root_of(found.noise))
    return (knots_check(denoiser.pooled.splines, rows),)


def _decoder(measurement: Measurement, found: Found) -> LinearDecoder:
    mixing = found.span @ np.linalg.inv(found.unmixing)
    return LinearDecoder(mixing * measurement.scale[:, None], measurement.offset)
