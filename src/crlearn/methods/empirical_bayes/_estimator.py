"""`EmpiricalBayesCRL`: the algorithm behind scikit-learn's interface."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import COUNTED, counted
from crlearn.inputs import (
    read_environments,
    read_mixing,
    read_weights,
)
from crlearn.methods._denoising import DenoisingCRL
from crlearn.methods.adjusted._estimator import AdjustedCRL
from crlearn.methods.empirical_bayes._algorithm import (
    ScoreOptions,
    denoised_span,
    empirical_bayes_crl,
)
from crlearn.result import Result
from crlearn.scores import Posterior

Matrix = NDArray[np.floating]


class EmpiricalBayesCRL(AdjustedCRL, DenoisingCRL):
    """Latents behind a noisy linear measurement of many domains, denoised (EB-CRL, f-modeling).

    `y` holds one environment label a row. The causal graph over the latents and the targets of each
    environment are known. Latents are the nodes of the graph, in its order; interventions raise
    their targets on average, which sets the signs (if they move means at all), and the columns of
    the mixing have unit norm, which sets the scales.

    Without `graph` and `targets` latents are denoised principal components, with a warning.
    The published algorithm is `crlearn.published.EBCRL`; knots, ridge and terms of the score are
    arguments of `crlearn.methods.empirical_bayes_crl`.

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
        for each latent. A mapping may name environments that are to come. With
        ``interventions="shift"`` numbers are doses: ``{"drug a": {0: 2.0}}``, or any numbers in the
        array.
    interventions
        ``"hard"``: they cut latents off their parents; ``"soft"``: they change mechanisms;
        ``"shift"``: they add a dose to a latent, in units that are the same for all doses of this
        latent and are learned, and mechanisms stay as they are.
    mixing
        ``"orthogonal"`` columns, ``"any"`` columns (needs an environment without targets), or the
        mixing itself if it is known, one column a latent.
    noise_variance
        Of the measurement; None: estimated.
    structure
        What the whole fit takes the structure for: the given one (``"graph"``), the graph with all
        edges of its order (``"full"``) or none (``"empty"``), the graph without the targets
        (``"pool"``; nothing tells latents apart then, unless the mixing is given), or the given one
        for the mixing and nothing for denoising (``"none"``), which leaves the noise on latents.
    center
        Whether to take the mean of the environments without targets off X first (of all rows, if
        there is none). Latents are then relative to it.
    scale
        Whether to divide each feature by its standard deviation first, for features in different
        units. The noise is then taken for alike in the scaled features.
    environment_weights
        In denoising (step 3): None, all rows count alike; ``"equal"``: all environments do; or the
        weight of each row of an environment, in a mapping from labels or in their order.
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
        "interventions": [StrOptions({"hard", "soft", "shift"})],
        "mixing": [StrOptions({"orthogonal", "any"}), "array-like"],
        "noise_variance": [Interval(Real, 0, None, closed="left"), None],
        "structure": [StrOptions({"graph", "full", "empty", "pool", "none"})],
        "center": ["boolean"],
        "scale": ["boolean"],
        "environment_weights": "no_validation",
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
        environment_weights: Any = None,
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
        self.environment_weights = environment_weights
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
        n_latents, known = self._known(environments, doses=self.interventions == "shift")
        if known is None:
            codes = environments.codes
            return denoised_span(X, counted(n_latents), codes=codes, options=options, **measured)
        return empirical_bayes_crl(
            X,
            environments,
            known,
            options=options,
            weights=read_weights(self.environment_weights, environments),
            orthogonal=not (isinstance(self.mixing, str) and self.mixing == "any"),
            mixing=read_mixing(self.mixing, X.shape[1], len(known.graph)),
            seed=seed,
            **measured,
        )
