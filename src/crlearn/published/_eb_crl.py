"""EM f-modelling with causal score matching: Algorithm 1 of Wu, von Kügelgen and Blei (2026).

x = A z + noise with A = O D, O of orthonormal columns and D diagonal (or A = O Lambda with Lambda
positive definite, section 4.6). One iteration: y = O'x; a score of y for each latent, from tensor
products of cubic splines of the latent and its parents (A.1); Tweedie's formulas for the first two
moments of z (4.4, 4.5); then A (4.8) and the noise variance (4.9) given these moments. A mixing or
a noise variance that is known is held fixed, as in the oracle panel of Figure 3.

What is mended
--------------
With M = sum x z' and S = sum E[z z'], the M-step minimises tr(A'A S) - 2 tr(A'M).

- *O given D* is the polar factor of M D, not of M (4.8); they agree only if D is a multiple of I.
- *D given O* is (O'M)_jj / S_jj. Equation 4.8 gives its square root, and both it and the appendix
  use the sorted singular values of M, which do not belong to the latents: D overflows in a few
  steps.
- *D is not identified*: with nonparametric scores (D, z) and (c D, z / c) are the same model. It
  stays at one unless ``mixing="orthogonal"`` asks for it; what it does then is drift.
- *Lambda* (section 4.6). "Updates that solve (4.7)" are those of A = M S^-1 with the whole matrix
  S, whose polar decomposition is O Lambda; its columns are brought to unit norm, since their scale
  is not identified either. The causal structure (5.2) is one of the latents, so that scores are
  matched to Lambda^-1 O'x, whose noise has covariance sigma^2 Lambda^-2, not to O'x, in which they
  are mixed. The Jacobian of a causal score is not symmetric; its diagonal, as in (4.5), gives a
  covariance. With O'x and the whole Jacobian, as printed, the error passes 1 within 100 iterations
  even from the true mixing, or columns collapse onto each other (4 worlds with tanh5, skew 0.15).
- *The permutation of A.2*, that maximises the diagonal of a diagonal matrix, is always the
  identity. Principal components are matched to targets at the start instead, and raised by them.
- *Not printed*: the ridge (1e-4, relative to the mean over rows), what splines do outside their
  knots (straight lines), and a floor of posterior variances (1e-3 of the noise).

What cannot be mended. With exact scores every rotation of O is a fixed point, and with the causal
class of scores the truth is none where parents and children are correlated: started there, the
error grows with the iterations. `crlearn.EmpiricalBayesCRL` finds the rotation from moments and
does not iterate.

Cost of an iteration: O(N d n) beside the scores, which take O(N K^(2P)) for products of P <= 2
latents with K = 10 splines each, and O(N 4^P) for each of some dozen products beyond
(`crlearn.scores.StructuredScore`). Memory: O(N (d + 4^P)).

References
----------
Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal representations,
2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.exceptions import DivergenceError
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Measurement,
    check_environment_sizes,
    measure,
    read_environments,
    read_graph,
    read_mixing,
)
from crlearn.likelihood import Domains, domain_checks
from crlearn.methods import DenoisingCRL
from crlearn.progress import progress_bar
from crlearn.result import Check, Guarantee, LinearDecoder, Result
from crlearn.scores import (
    CubicSplines,
    Denoiser,
    Structure,
    StructuredScore,
    root_of,
    score_graph,
)

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Kind = Literal["orthonormal", "orthogonal", "any", "given"]

# Section D: 8 knots on [-15, 15].
KNOTS, KNOT_RANGE = 8, (-15.0, 15.0)
RIDGE = 1e-4
_SMALLEST_SHARE = 1e-3
# Share of the rows that may lie outside the knots.
_OUTSIDE = 0.05
# How far as many iterations again, at the pace of the last, may move a column of unit length.
_SETTLED = 0.01

GUARANTEE = Guarantee(
    latents="none",
    graph="none",
    text="none: the true mixing is no fixed point of the published iterations, even if graph and "
    "targets are right",
)
GIVEN_GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent in the scale of the given mixing, if the mixing is right and the noise of "
    "the measurement is alike in all features",
)


@dataclass(frozen=True, eq=False)
class EMAnswer:
    """Mixing, noise variance, and how they came about."""

    mixing: Matrix
    noise_variance: float
    history: Mapping[str, Vector]


def match_columns(columns: Matrix, means: Matrix, targets: BoolMatrix, base: Vector) -> Matrix:
    """Give each latent the principal component that its interventions move most, and raise it."""
    weight = targets / np.maximum(targets.sum(axis=0), 1)
    shifts = weight.T @ (means - base) @ columns  # latents x components
    latents, components = linear_sum_assignment(-np.abs(shifts))
    signs = np.where(shifts[latents, components] < 0, -1.0, 1.0)
    matched = np.empty_like(columns)
    matched[:, latents] = columns[:, components] * signs
    return matched


def causal_score(
    rows: Matrix,
    intervened: BoolMatrix,
    graph: BoolMatrix,
    unit: float = 1.0,
    weights: Vector | None = None,
) -> StructuredScore:
    """Match (5.2) by the normal equations of A.1 to rows in this unit; weights as in C."""
    low, high = (np.full(rows.shape[1], end / unit) for end in KNOT_RANGE)
    return StructuredScore.fit(
        rows,
        intervened,
        graph,
        splines=CubicSplines.between(low, high, KNOTS),
        interactions="tensor",
        penalty="size",
        ridge=RIDGE,
        weights=weights,
    )


def unmix(columns: Matrix) -> tuple[Matrix, Matrix]:
    """Return the pseudo-inverse of unit columns, and the noise covariance that it makes of I."""
    inner = columns.T @ columns
    if np.allclose(inner, np.diag(np.diag(inner)), rtol=0, atol=1e-9):
        inner = np.diag(np.diag(inner))  # orthogonal up to rounding
    inverse = np.linalg.inv(inner)
    return inverse @ columns.T, inverse


def posterior_moments(
    y: Matrix, noise: Matrix, score: Matrix, slope: Matrix, shrinkage: float
) -> tuple[Matrix, Matrix]:
    """Return E[D z] in each row (4.4), and the sum over rows of E[D z z'D] (4.5).

    `noise` is the covariance of the noise of y, and `slope` has the derivative of each latent's
    score along it.
    """
    mean = y + shrinkage * score @ noise
    slope = np.maximum(slope, (_SMALLEST_SHARE - 1) / np.diag(noise))
    covariance = len(y) * noise + (noise * slope.sum(axis=0)) @ noise
    return mean, mean.T @ mean + covariance


def update_columns(kind: Kind, columns: Matrix, cross: Matrix, second: Matrix) -> Matrix:
    """Minimise (4.7) over mixings of this kind, given sum x m' and sum E[m m'] of m = D z.

    The answer is relative to D: its columns have the factors by which D changes as their norms.
    """
    if kind == "given":
        return columns
    if kind == "any":
        return np.linalg.solve(second, cross.T).T
    new = polar(cross)
    if kind == "orthonormal":
        return new
    return new * (np.einsum("ij,ij->j", new, cross) / np.diag(second))


def polar(matrix: Matrix) -> Matrix:
    """Return the matrix with orthonormal columns that is closest (Procrustes)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def em_f_modelling(
    X: Matrix,
    intervened: BoolMatrix,
    start: Matrix,
    noise_variance: float,
    fit_score: Callable[[Matrix], StructuredScore],
    *,
    kind: Kind = "orthonormal",
    noise_is_known: bool = False,
    n_iterations: int = 1000,
    shrinkage: float = 1.0,
) -> EMAnswer:
    """Algorithm 1; see the module's text.

    Parameters
    ----------
    X, intervened
        Rows, and the targets of each row's environment.
    start, noise_variance
        Mixing and noise variance to start with.
    fit_score
        Matches a score to noisy latents.
    kind
        What is learned of the mixing: ``"orthonormal"`` O, ``"orthogonal"`` O D, ``"any"`` O Lambda
        with unit columns, or nothing (``"given"``).
    noise_is_known
        Whether the noise variance is held fixed.
    n_iterations, shrinkage
        Iterations, and the share of Tweedie's correction that is made (eta).
    """
    scales = np.linalg.norm(start, axis=0)  # D
    columns, variance = start / scales, noise_variance
    total, (n_rows, n_features) = float(np.einsum("ij,ij->", X, X)), X.shape
    if kind == "given" and noise_is_known:
        n_iterations = 0  # nothing is left to be learned
    steps, variances = np.zeros(n_iterations), np.zeros(n_iterations)
    scored = None
    with progress_bar("EM f-modelling", n_iterations) as advance:
        for t in range(n_iterations):
            if scored is None or kind != "given":
                unmixing, inverse = unmix(columns)
                y = X @ unmixing.T
                scored = (y, inverse, *fit_score(y)(y, intervened))
            y, inverse, score, slope = scored
            mean, second = posterior_moments(y, variance * inverse, score, slope, shrinkage)
            cross = X.T @ mean
            _refuse_divergence(t, variance, np.isfinite(cross).all() and np.isfinite(second).all())
            new = update_columns(kind, columns, cross, second)
            if not noise_is_known:  # (4.9)
                left_over = total + np.vdot(new.T @ new, second) - 2 * np.vdot(new, cross)
                variance = float(left_over) / (n_rows * n_features)
            norms = np.linalg.norm(new, axis=0)
            scales = scales * norms if kind == "orthogonal" else scales
            steps[t], variances[t] = np.linalg.norm(new / norms - columns), variance
            columns = new / norms if kind != "given" else columns
            _refuse_divergence(t, variance, np.isfinite(scales).all() and variance > 0)
            advance(f"step {steps[t]:.1e}")
    mixing = start if kind == "given" else columns * scales
    return EMAnswer(mixing, variance, {"step": steps, "noise_variance": variances})


def eb_crl(
    X: Matrix,
    environments: Environments,
    graph: BoolMatrix,
    known: KnownDomains | None = None,
    *,
    structure: Structure = "graph",
    shrinkage: float = 1.0,
    kind: Kind = "orthonormal",
    mixing: Matrix | None = None,
    noise_variance: float | None = None,
    weights: Vector | None = None,
    n_iterations: int = 1000,
) -> Result:
    """Recover and denoise the latents as published; see the module's text.

    Parameters
    ----------
    X, environments, graph, known
        Rows, their environments, the graph, and the targets (`crlearn.inputs.read_domains`); None:
        not known.
    structure, shrinkage, noise_variance, n_iterations
        See `EBCRL`.
    kind, mixing
        Which kind of mixing is learned, and the mixing to start with (None: principal components),
        or that is held fixed if the kind is ``"given"``.
    weights
        Of the rows in score matching (appendix C), with mean one (`crlearn.inputs.read_weights`).
    """
    measurement = measure(X, len(graph), noise_variance=noise_variance)
    rows, unit = measurement.rows, measurement.unit
    intervened = np.zeros((len(X), len(graph)), dtype=bool)
    if known is not None and structure != "pool":
        intervened = known.targets[environments.codes]
    followed = score_graph(graph, structure)
    answer = em_f_modelling(
        rows,
        intervened,
        start_columns(measurement, environments, known) if mixing is None else mixing,
        measurement.noise_variance,
        lambda y: causal_score(y, intervened, followed, unit, weights),
        kind=kind,
        noise_is_known=noise_variance is not None,
        n_iterations=n_iterations if measurement.noise_variance > 0 else 0,
        shrinkage=shrinkage,
    )
    targets = None if known is None or structure == "pool" else intervened
    denoiser = denoise(measurement, answer, followed, targets, weights, shrinkage)
    return Result(
        encoder=denoiser,
        decoder=LinearDecoder(answer.mixing, measurement.offset),
        guarantee=GIVEN_GUARANTEE if kind == "given" else GUARANTEE,
        adjacency=None if known is None else graph,
        targets=None if known is None else known.targets,
        names=None if known is None else known.names,
        environments=environments.names,
        checks=(
            *measurement.checks,
            check_environment_sizes(environments, len(graph)),
            *measurement.noise_checks(),
            measurement.range_check(denoiser.noisy(X) / unit),
            *_target_checks(environments, known, denoiser.noisy(X)),
            *_knots_checks(denoiser, X),
            *_settled_checks(answer),
        ),
        history={
            "step": answer.history["step"],
            "noise_variance": answer.history["noise_variance"] * unit**2,
        },
        details={
            "noise_variance": answer.noise_variance * unit**2,
            "target_labels": () if known is None else known.labels,
            "target_rows": None if known is None else known.rows,
        },
    )


def start_columns(
    measurement: Measurement, environments: Environments, known: KnownDomains | None
) -> Matrix:
    """Return principal components, matched to the targets where these are known."""
    if known is None:
        return measurement.span
    rows = measurement.rows @ measurement.span
    domains = Domains.of(rows, environments.codes, known.targets, known.graph)
    base, _ = domains.base
    return measurement.span @ match_columns(
        np.eye(len(known.graph)), domains.means, known.targets, base
    )


def denoise(
    measurement: Measurement,
    answer: EMAnswer,
    graph: BoolMatrix,
    intervened: BoolMatrix | None,
    weights: Vector | None,
    shrinkage: float,
) -> Denoiser:
    """Make the last E-step an encoder, with targets and, for rows without labels, without them."""
    scales = np.linalg.norm(answer.mixing, axis=0)
    unmixing, inverse = unmix(answer.mixing / scales)
    root = root_of(answer.noise_variance * inverse / np.outer(scales, scales))
    linear = Denoiser(
        unmixing / scales[:, None],
        measurement.offset,
        root * measurement.unit,
        shrinkage=shrinkage,
        axes=measurement.unit / scales,
    )
    if not shrinkage or answer.noise_variance <= 0:
        return linear
    y = measurement.rows @ unmixing.T
    unknown = np.zeros(y.shape, dtype=bool)
    pooled = causal_score(y, unknown, graph, measurement.unit, weights)
    reach = float(pooled.splines.beyond(y).max())
    score = None
    if intervened is not None:
        score = causal_score(y, intervened, graph, measurement.unit, weights)
    return replace(linear, score=score, pooled=pooled, reach=reach)


class EBCRL(DenoisingCRL):
    """EM f-modelling with causal score matching, as published (EB-CRL, Algorithm 1).

    The setting is that of `crlearn.EmpiricalBayesCRL`, whose answers are better (see there): a
    noisy linear measurement of many domains, known graph and targets, one environment label a row
    in `y`. Scores have 8 knots on [-15, 15], in the units of X: bring latents into that range.

    Without `targets` all rows are taken for one domain, and without `graph` no latent for the cause
    of another; latents are then rotated principal components, with a warning.

    Parameters
    ----------
    n_latents
        Number of latents; None: that of the graph (without a graph, the rank of X).
    graph
        ``graph[i, j]`` non-zero if latent i causes latent j, or a ``networkx.DiGraph``.
    targets
        Mapping from environment labels to the latents that it intervenes on (``[]`` for none); or a
        0/1 array with one row for each environment in y, in the order of the labels, and one column
        for each latent. A mapping may name environments that are to come.
    structure
        What the score of a latent depends on beside the latent and whether it is a target: its
        parents in the ``"graph"`` (TRUE DAG in the paper), all latents before it (``"full"``),
        nothing (``"empty"``), or its parents but not the targets (``"pool"``).
    shrinkage
        Share of Tweedie's correction that is made: 1 for posterior means, 0 for no shrinkage (eta).
    mixing
        What is learned: ``"orthonormal"`` columns, ``"orthogonal"`` columns of any length (the
        paper's D, which is not identified and drifts), ``"any"`` columns of unit length (section
        4.6); or the mixing itself, one column a latent, which is then held fixed.
    noise_variance
        Of the measurement, if it is known; it is then held fixed. None: learned.
    max_iter
        Iterations. With 0 and no shrinkage it is the paper's PCA.
    random_state
        Not used: the algorithm starts at principal components.

    Examples
    --------
    >>> from crlearn.data import make_multi_domain
    >>> from crlearn.published import EBCRL
    >>> world = make_multi_domain(n_latents=3, n_features=20, n_samples=300, random_state=0)
    >>> model = EBCRL(graph=world.truth.graph, targets=world.known_targets, max_iter=20)
    >>> model.fit(world.X, world.y).transform(world.X, world.y).shape  # posterior means
    (900, 3)
    >>> model.n_iter_
    20
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DenoisingCRL._parameter_constraints,
        "graph": "no_validation",
        "targets": "no_validation",
        "structure": [StrOptions({"graph", "full", "empty", "pool"})],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "mixing": [StrOptions({"orthonormal", "orthogonal", "any"}), "array-like"],
        "noise_variance": [Interval(Real, 0, None, closed="left"), None],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        graph: Any = None,
        targets: Any = None,
        structure: str = "graph",
        shrinkage: float = 1.0,
        mixing: Any = "orthonormal",
        noise_variance: float | None = None,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.graph = graph
        self.targets = targets
        self.structure = structure
        self.shrinkage = shrinkage
        self.mixing = mixing
        self.noise_variance = noise_variance
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def n_iter_(self) -> int:
        """Times that latents were denoised: once at least."""
        return max(len(self._fitted_result().history["step"]), 1)

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, fewest=1)
        n_latents, known = self._known(environments)
        if self.graph is None:
            n_latents = measure(X, n_latents).span.shape[1]
            graph = np.zeros((n_latents, n_latents), dtype=bool)
        else:
            graph = read_graph(self.graph, n_latents)
        mixing = read_mixing(self.mixing, X.shape[1], len(graph))
        return eb_crl(
            X,
            environments,
            graph,
            known,
            structure=self.structure,  # type: ignore[arg-type]
            shrinkage=self.shrinkage,
            kind=self.mixing if mixing is None else "given",
            mixing=mixing,
            noise_variance=self.noise_variance,
            n_iterations=self.max_iter,
        )


def _refuse_divergence(t: int, variance: float, all_is_well: bool | np.bool_) -> None:
    if not all_is_well:
        raise DivergenceError(
            f"EM f-modelling diverged in iteration {t + 1}, at a noise variance of {variance:.3g}. "
            "Use fewer iterations (max_iter), or crlearn.EmpiricalBayesCRL, which has none."
        )


def _target_checks(
    environments: Environments, known: KnownDomains | None, noisy: Matrix
) -> tuple[Check, ...]:
    if known is None:
        return (
            Check(
                "targets are known",
                False,
                "none were given, so that nothing tells latents apart; set graph= and targets=",
            ),
        )
    domains = Domains.of(noisy, environments.codes, known.targets, known.graph)
    return domain_checks(domains, np.eye(len(known.graph)), environments.labels, known.names)


def _knots_checks(denoiser: Denoiser, X: Matrix) -> tuple[Check, ...]:
    """Check that few latents lie outside the knots, where splines are straight lines."""
    if denoiser.pooled is None or denoiser.axes is None:
        return ()
    outside = (denoiser.pooled.splines.beyond(denoiser.noisy(X) / denoiser.axes) > 0).mean(axis=0)
    worst = int(np.argmax(outside))
    return (
        Check(
            "latents lie within the knots",
            bool(outside[worst] <= _OUTSIDE),
            f"{outside[worst]:.1%} of latent z{worst} outside of [-15, 15]; multiply X by a number "
            "that brings it inside"
            if outside[worst] > _OUTSIDE
            else f"at most {outside[worst]:.1%} of a latent outside",
        ),
    )


def _settled_checks(answer: EMAnswer) -> tuple[Check, ...]:
    """Say whether the iterations have come to an end, which is not to say that it is the truth."""
    steps = answer.history["step"]
    if not len(steps):
        return ()
    ahead = float(steps[-1]) * len(steps) / np.sqrt(answer.mixing.shape[1])
    return (
        Check(
            "the iterations have settled",
            bool(ahead <= _SETTLED),
            f"as many again, at the pace of the last, would move a column by {ahead:.2g} of its "
            f"length{'' if ahead <= _SETTLED else '; raise max_iter'}",
        ),
    )
