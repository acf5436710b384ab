"""`EmpiricalBayesCRL`: the estimator. What it does is in `crlearn.methods._f_modelling`."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, cast
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from crlearn.base import BaseCRL
from crlearn.exceptions import AssumptionWarning
from crlearn.inputs import (
    intervened_rows,
    read_domains,
    read_environments,
    read_graph,
    read_weights,
)
from crlearn.methods._denoiser import Denoiser, Posterior
from crlearn.methods._f_modelling import ScoreOptions, denoised_span, empirical_bayes_crl
from crlearn.result import Result

Matrix = NDArray[np.floating]

# Rows this much farther outside the knots than those of the fit, in lengths of their interval, are
# worth a warning.
_FAR = 1.0
_KNOTS = {"moments": 5, "paper": 8}


class EmpiricalBayesCRL(BaseCRL):
    """Latents behind a noisy linear measurement of many domains, denoised (EB-CRL, f-modeling).

    `y` holds one environment label a row. The causal graph over the latents and the targets of each
    environment are known. Latents are the nodes of the graph, in its order; interventions raise
    their targets on average, which sets the signs, and the columns of the mixing have unit norm,
    which sets the scales.

    Without `graph` and `targets` latents are denoised principal components, with a warning.

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
        What the score of a latent depends on: its neighbours in the ``"graph"``, all latents
        (``"full"``), itself only (``"empty"``), or as ``"graph"`` without the targets
        (``"pool"``).
    shrinkage
        Share of Tweedie's correction that is made: 1 for posterior means, 0 for no denoising (eta).
    interventions
        ``"hard"``: they cut latents off their parents; ``"soft"``: they change mechanisms.
    mixing
        ``"orthogonal"`` columns, ``"any"`` columns (needs an environment without targets), or the
        mixing itself if it is known, one column a latent.
    noise_variance
        Of the measurement; None: estimated.
    center
        Whether to take the mean of the environments without targets off X first (of all rows, if
        there is none). Latents are then relative to it.
    scale
        Whether to divide each feature by its standard deviation first, for features in different
        units. The noise is then taken for alike in the scaled features.
    environment_weights
        Weights in score matching, by label or one for each label in order; None: all rows alike.
    interactions
        Terms of the score: ``"pairs"`` of a latent and each neighbour (K^2 features each, for K =
        n_knots + 2), ``"sums"`` over the neighbours (K features each), or ``"tensor"``, all parents
        at once, as published (K^(parents + 1) features; refused beyond 4,096). None: pairs, and
        tensor for the published algorithm.
    n_knots
        Of the splines; None: 5, and 8 for the published algorithm.
    knot_range
        First and last knot; None: 0.2% and 99.8% quantiles of each latent.
    ridge
        Penalty in score matching; None: by cross-validation, for each latent.
    estimator
        ``"moments"``: latents from the moments of the environments, denoised once. ``"paper"``: the
        published EM algorithm, with its M-step mended; the parameters after this one belong to it.
    start
        ``"moments"``, or ``"pca"`` for principal components, matched to the targets.
    max_iter
        Iterations. With ``start="pca"``, 0 and no shrinkage it is the paper's PCA.
    random_state
        Seed of starts at random, which are tried if none of the closed forms fits.

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

    _requires_y = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "graph": "no_validation",
        "targets": "no_validation",
        "structure": [StrOptions({"graph", "full", "empty", "pool"})],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "interventions": [StrOptions({"hard", "soft"})],
        "mixing": [StrOptions({"orthogonal", "any"}), "array-like"],
        "noise_variance": [Interval(Real, 0, None, closed="left"), None],
        "center": ["boolean"],
        "scale": ["boolean"],
        "environment_weights": "no_validation",
        "interactions": [StrOptions({"pairs", "sums", "tensor"}), None],
        "n_knots": [Interval(Integral, 2, None, closed="left"), None],
        "knot_range": ["array-like", None],
        "ridge": [Interval(Real, 0, None, closed="neither"), None],
        "estimator": [StrOptions({"moments", "paper"})],
        "start": [StrOptions({"moments", "pca"})],
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
        interventions: str = "hard",
        mixing: Any = "orthogonal",
        noise_variance: float | None = None,
        center: bool = False,
        scale: bool = False,
        environment_weights: Any = None,
        interactions: str | None = None,
        n_knots: int | None = None,
        knot_range: Any = None,
        ridge: float | None = None,
        estimator: str = "moments",
        start: str = "moments",
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.graph = graph
        self.targets = targets
        self.structure = structure
        self.shrinkage = shrinkage
        self.interventions = interventions
        self.mixing = mixing
        self.noise_variance = noise_variance
        self.center = center
        self.scale = scale
        self.environment_weights = environment_weights
        self.interactions = interactions
        self.n_knots = n_knots
        self.knot_range = knot_range
        self.ridge = ridge
        self.estimator = estimator
        self.start = start
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def n_iter_(self) -> int:
        """Times that latents were denoised: once, unless the published algorithm iterates."""
        return max(len(self._fitted_result().history.get("step", ())), 1)

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Matrix:
        """Return the posterior means of the latents.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        y
            Environment label of each row: one of those in `targets`. None: not known; the rows are
            denoised as a mixture of all environments, less precisely.
        """
        check_is_fitted(self)
        by_label = cast(Any, lambda rows: self._posterior(rows, y).mean)
        means = self._encoded(X, by_label, "transform")
        self._warn_if_far(X)
        return means

    def posterior(self, X: ArrayLike, y: ArrayLike | None = None) -> Posterior:
        """Return posterior means and variances of the latents; arguments as for `transform`."""
        check_is_fitted(self)
        rows = cast(Any, validate_data(self, cast(Any, X), dtype=np.float64, reset=False))
        self._warn_if_far(rows)
        return self._posterior(rows, y)

    def _posterior(self, rows: Matrix, y: ArrayLike | None) -> Posterior:
        encoder = cast(Denoiser, self.result_.encoder)
        if y is None or self.result_.targets is None:
            return encoder.posterior(rows)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        details = self.result_.details
        return encoder.posterior(
            rows, intervened_rows(details["target_labels"], details["target_rows"], labels)
        )

    def _warn_if_far(self, X: ArrayLike) -> None:
        rows = np.asarray(X, dtype=float)
        encoder = cast(Denoiser, self.result_.encoder)
        far = encoder.beyond(rows) > encoder.reach + _FAR
        if far.any():
            warn(
                f"EmpiricalBayesCRL: {int(far.sum())} of {len(far)} rows have latents far outside "
                "the range of the fit, where nothing is known of their distribution: their score "
                "is continued along straight lines. Check their units and environments.",
                AssumptionWarning,
                stacklevel=3,
            )

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, fewest=1)
        options = self._score_options()
        if self.targets is None:
            return denoised_span(
                X,
                self._n_latents(),
                options=options,
                shrinkage=self.shrinkage,
                noise_variance=self.noise_variance,
                center=self.center,
                scale=self.scale,
            )
        if self.graph is None:
            raise ValueError(
                "'targets' number the nodes of a graph, so that 'graph' has to be given too. If no "
                "latent causes another, give a matrix of zeros."
            )
        known = read_domains(read_graph(self.graph, self.n_latents), self.targets, environments)
        is_paper = self.estimator == "paper"
        return empirical_bayes_crl(
            X,
            environments,
            known,
            options=options,
            orthogonal=not (isinstance(self.mixing, str) and self.mixing == "any"),
            shrinkage=self.shrinkage,
            mixing=self._known_mixing(X.shape[1], len(known.graph)),
            noise_variance=self.noise_variance,
            center=self.center,
            scale=self.scale,
            weights=read_weights(self.environment_weights, environments),
            start=self.start if is_paper else "moments",  # type: ignore[arg-type]
            n_iterations=self.max_iter if is_paper else 0,
            seed=seed,
        )

    def _n_latents(self) -> int | None:
        if self.graph is None:
            return self.n_latents
        return len(read_graph(self.graph, self.n_latents))

    def _score_options(self) -> ScoreOptions:
        is_paper = self.estimator == "paper"
        published = "tensor" if is_paper else "pairs"
        interactions = self.interactions or published
        return ScoreOptions(
            structure=self.structure,  # type: ignore[arg-type]
            interactions=interactions,  # type: ignore[arg-type]
            n_knots=self.n_knots or _KNOTS[self.estimator],
            knot_range=_checked_range(self.knot_range),
            ridge=self.ridge,
            hard=self.interventions == "hard",
            penalty="size" if is_paper else "curvature",
        )

    def _known_mixing(self, n_features: int, n_latents: int) -> Matrix | None:
        if isinstance(self.mixing, str):
            return None
        mixing = np.asarray(self.mixing, dtype=float)
        if mixing.shape != (n_features, n_latents):
            raise ValueError(
                f"A known 'mixing' must have shape ({n_features}, {n_latents}): one row for each "
                f"feature and one column for each latent. Got shape {mixing.shape} instead."
            )
        if np.linalg.matrix_rank(mixing) < n_latents:
            raise ValueError(
                "A known 'mixing' must have linearly independent columns, or latents cannot be "
                f"told apart. Got rank {np.linalg.matrix_rank(mixing)} for {n_latents} latents."
            )
        return mixing


def _checked_range(knot_range: Any) -> tuple[float, float] | None:
    if knot_range is None:
        return None
    ends = np.asarray(knot_range, dtype=float)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(
            "The 'knot_range' must be the first and the last knot, such as (-15, 15). "
            f"Got {knot_range!r} instead."
        )
    return float(ends[0]), float(ends[1])
