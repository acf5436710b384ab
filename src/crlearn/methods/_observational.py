"""Linear mixing, observational data only: latents up to layers, from nonlinear effects alone.

Latents follow nonlinear mechanisms with additive Gaussian noise, and nothing is intervened on. The
latents are then determined up to mixtures with their own layer and the layers upstream, and their
exogenous noises up to mixtures inside their layer; a layer holds the latents with the same longest
path to a leaf. Inside a layer nothing more can be recovered, and no single edge either.

The paper reads the layers from the Jacobian of the score (`crlearn.methods._score_layers`). That
works with exact scores; with scores that are estimated from samples it is at the level of chance.
This implementation maximises a likelihood of the whole model:

1. X is reduced to the span of the mixing and whitened.
2. Encoder, mechanisms and order are fitted together, from many starts
   (`crlearn.likelihood.fit_observational`); structures are compared by their evidence.
3. Layers are read from the mechanisms that were found. Rivals, structures that explain the data
   nearly as well, are kept with their evidence.
4. Two checks: whether the fit explains more than a Gaussian could by luck, and whether a rival with
   another answer explains the data as well.

Cost: one pass to reduce X; `fit_observational` says what the search takes.

References
----------
Welch, Zhang and Uhler, Identifiability guarantees for causal disentanglement from purely
observational data, NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.inputs import Scaling, whitening
from crlearn.likelihood import Rival, adjacency_of, fit_observational
from crlearn.methods._observational_checks import (
    best_other_answer,
    determination_check,
    environment_checks,
    nonlinearity_check,
    normality_check,
    visibility_check,
)
from crlearn.methods._score_layers import check_enough_rows, layers_from_scores
from crlearn.result import Guarantee, LinearDecoder, LinearEncoder, Result
from crlearn.scores import make_jacobian
from crlearn.tags import stored

Matrix = NDArray[np.floating]

GUARANTEE = Guarantee(
    latents="layers",
    graph="layers",
    text="each latent up to a mixture with its own layer and the layers upstream, its exogenous "
    "noise up to a mixture inside its layer, and which latents are in which layer, if the mixing "
    "is linear, mechanisms are nonlinear and their noise is additive and Gaussian; inside a layer "
    "nothing more can be recovered",
)


@stored("noise/of-mechanisms")
@dataclass(frozen=True, eq=False)
class MechanismNoise:
    """Map from observations to exogenous noises: latents minus what their mechanisms predict.

    Attributes
    ----------
    latents
        Map to the latents in the units of the mechanisms, causes first.
    mechanisms
        Predicted part of each latent, from all latents of a row.
    scale
        Units in which the noises come out, with signs.
    """

    latents: LinearEncoder
    mechanisms: Any
    scale: Matrix

    @property
    def n_latents(self) -> int:
        """Number of noises."""
        return self.latents.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the noises of each row of `X`."""
        Z = self.latents(X)
        return (Z - self.mechanisms(Z)) * self.scale


# The likelihood


def observational_crl(
    X: Matrix,
    n_latents: int | None = None,
    *,
    init: Matrix | None = None,
    seed: int = 0,
) -> Result:
    """Recover latents and noises up to layers; see the module's text."""
    whitener, column_checks = whitening(X, n_latents)
    check_enough_rows(len(X), whitener.n_latents)
    starts = {} if init is None else {"starts": [in_whitened_rows(init, whitener, X)]}
    rng = np.random.default_rng(seed)
    fit = fit_observational(whitener(X), rng=rng, **starts)
    latents = LinearEncoder(fit.H @ whitener.matrix, whitener.offset)
    scale = _units(latents, X)
    encoder = LinearEncoder(latents.matrix * scale[:, None], latents.offset)
    other = best_other_answer(fit)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=GUARANTEE,
        checks=(*column_checks, nonlinearity_check(fit), determination_check(fit, other)),
        details={
            "noise_encoder": MechanismNoise(latents, fit.mechanisms, scale),
            "layers": _leaves_first(fit.layers),
            "adjacency": adjacency_of(fit.graph),
            "evidence": float(fit.evidence),
            "gain_over_gaussian": float(fit.gain),
            "rival_gap": None if other is None else float(other.evidence_gap),
            "rivals": tuple(_plain(rival) for rival in fit.rivals),
        },
    )


def in_whitened_rows(init: Matrix, whitener: LinearEncoder, X: Matrix) -> Matrix:
    """Return rows of an encoder of X as rows of an encoder of whitened data."""
    wanted = (whitener.n_latents, X.shape[1])
    if init.shape != wanted or not np.isfinite(init).all():
        raise ValueError(
            "The 'init' parameter must be finite, with a row for each latent and a column for each "
            f"feature, {wanted}. Got shape {init.shape}, or missing or infinite values."
        )
    start = init @ LinearDecoder.undoing(whitener, X).matrix
    if np.linalg.matrix_rank(start) < len(start):
        raise ValueError(
            "The rows of the 'init' parameter must be linearly independent on the data: an encoder "
            "that repeats itself is no place to start from."
        )
    return start


def _units(latents: LinearEncoder, X: Matrix) -> Matrix:
    """Return factors that give each latent sd 1 and a positive largest coefficient.

    Coefficients are compared for standardised features, so that units do not matter.
    """
    standardised = latents.matrix * Scaling.of(X).scale
    largest = np.abs(standardised).argmax(axis=1)
    signs = np.where(standardised[np.arange(len(standardised)), largest] < 0, -1.0, 1.0)
    return signs / latents(X).std(axis=0)


def _leaves_first(layers: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Turn layers around: fits have the roots first, `crlearn.graph.layers` has the leaves."""
    return tuple(tuple(int(latent) for latent in layer) for layer in reversed(layers))


def _plain(rival: Rival) -> dict[str, Any]:
    return {
        "layers": _leaves_first(rival.layers),
        "adjacency": adjacency_of(rival.graph),
        "evidence_gap": float(rival.evidence_gap),
        "agreement": float(rival.agreement),
    }


# The paper


def published_observational_crl(
    X: Matrix,
    n_latents: int | None = None,
    *,
    scores: Any = "stein",
    threshold: Literal["test", "paper"] = "test",
    level: float = 0.05,
    n_halves: int = 8,
    prune_outliers: float = 0.0,
    noise: Literal["score", "regression"] = "score",
    seed: int = 0,
) -> Result:
    """Recover latents and noises up to layers as published; see `crlearn.methods._score_layers`."""
    whitener, column_checks = whitening(X, n_latents)
    found = layers_from_scores(
        X,
        jacobian=scores,
        n_latents=n_latents,
        threshold=threshold,
        level=level,
        n_halves=n_halves,
        prune_outliers=prune_outliers,
        noise=noise,
        random_state=seed,
    )
    encoder = LinearEncoder(found.encoder, found.offset)
    is_known = bool(getattr(make_jacobian(scores), "original_coordinates", False))
    shape_checks = () if is_known else (normality_check(whitener(X)),)
    tested = is_known or threshold == "test"
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=GUARANTEE,
        checks=(*column_checks, *shape_checks, visibility_check(found, tested=tested)),
        details={
            "noise_encoder": found.noise_encoder,
            "layers": tuple(tuple(layer.tolist()) for layer in found.layers),
            **found.diagnostics,
        },
    )


class ObservationalCRL(BaseCRL):
    """Latents and exogenous noises up to layers, from observational data alone.

    Algorithms 1 and 2 of Welch, Zhang and Uhler are ``estimator="paper"``. There are no
    environments: `y` is not used, and labels in it are reported. Latents are numbered causes first.
    ``result_.details["adjacency"]`` holds the edges of the fit, which the data do not determine:
    inside what the guarantee leaves open other edges fit as well.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    estimator
        ``"likelihood"``, or ``"paper"`` for the published algorithm; the parameters after `init`
        belong to that one.
    init
        Encoder to start from in place of a search, one row for each latent, causes first, and one
        column for each feature.
    scores
        Score and its Jacobian: ``"stein"``, ``"sliced"``, ``"flow"``, or whatever
        `crlearn.scores.make_jacobian` takes.
    threshold
        How many latents a layer has: by tests on half-samples (``"test"``), or by the tolerance of
        the published code (``"paper"``).
    level
        Of the tests: chance of taking a leaf for none, for each layer.
    n_halves
        Half-samples of the tests, each with a fit of the scores.
    prune_outliers
        Share of the Jacobians that is dropped, the largest first; 0.25 in the published code.
    noise
        How noises are found if the density is known: by the scores, or, as published, by
        ``"regression"`` alone.
    random_state
        Seed of starts, half-samples and regressions.

    Examples
    --------
    >>> from crlearn import ObservationalCRL
    >>> from crlearn.data import make_observational
    >>> from crlearn.scores import ExactJacobians
    >>> world = make_observational(n_latents=4, graph="y", random_state=0)
    >>> exact = ExactJacobians(world.truth)
    >>> model = ObservationalCRL(estimator="paper", scores=exact, random_state=0).fit(world.X)
    >>> model.layers_  # from the leaves up
    [[2, 3], [1], [0]]
    >>> model.noises(world.X).shape
    (1000, 4)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "estimator": [StrOptions({"likelihood", "paper"})],
        "init": ["array-like", None],
        "scores": "no_validation",
        "threshold": [StrOptions({"test", "paper"})],
        "level": [Interval(Real, 0, 1, closed="neither")],
        "n_halves": [Interval(Integral, 2, None, closed="left")],
        "prune_outliers": [Interval(Real, 0, 0.9, closed="both")],
        "noise": [StrOptions({"score", "regression"})],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        estimator: str = "likelihood",
        init: ArrayLike | None = None,
        scores: Any = "stein",
        threshold: str = "test",
        level: float = 0.05,
        n_halves: int = 8,
        prune_outliers: float = 0.0,
        noise: str = "score",
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.estimator = estimator
        self.init = init
        self.scores = scores
        self.threshold = threshold
        self.level = level
        self.n_halves = n_halves
        self.prune_outliers = prune_outliers
        self.noise = noise
        self.random_state = random_state

    @property
    def layers_(self) -> list[list[int]]:
        """Latents of each layer, from the leaves up, as `crlearn.graph.layers` has them."""
        return [list(layer) for layer in self._fitted_result().details["layers"]]

    def noises(self, X: ArrayLike) -> Matrix:
        """Return the exogenous noises of each row of `X`, in the units and order of the latents."""
        check_is_fitted(self)
        return self._encoded(X, self.result_.details["noise_encoder"], "noises")

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        result = self._recovered(X, seed)
        return replace(result, checks=(*result.checks, *environment_checks(y)))

    def _recovered(self, X: Matrix, seed: int) -> Result:
        if self.estimator == "paper":
            return published_observational_crl(
                X,
                self.n_latents,
                scores=self.scores,
                threshold=self.threshold,  # type: ignore[arg-type]
                level=self.level,
                n_halves=self.n_halves,
                prune_outliers=self.prune_outliers,
                noise=self.noise,  # type: ignore[arg-type]
                seed=seed,
            )
        init = None if self.init is None else np.asarray(self.init, dtype=float)
        return observational_crl(X, self.n_latents, init=init, seed=seed)
