"""`ScoreLayers`: layers of latents from the score Jacobian of observational data, as published.

Welch, Zhang, Uhler: Identifiability Guarantees for Causal Disentanglement from Purely Observational
Data, NeurIPS 2024: Algorithms 1 and 2, with the choices of appendix C.

Latents follow mechanisms with additive Gaussian noise, and the mixing is linear. Along a latent
without children the curvature of the log-density is the same everywhere; along other directions it
is not. So the leaves are the directions in which the centred Jacobians of the score vanish; what
does not change along them are the other latents, and their density gives the next layer. Latents
are recovered up to mixtures with their own layer and the layers upstream (Algorithm 1). Whatever
the layers upstream explain of a layer, linearly or not, is taken out of it; exogenous noises are
left, up to mixtures inside their layer (Algorithm 2).

As printed: directions of length one in the units of x, each orthogonal to those of its layer before
it; the quarter of the estimated Jacobians with the largest Frobenius norm is dropped (appendix
C.2.2; none of known ones, C.2.1); t is the smallest number such that the curvature along some
direction is at most t at every sample, and a direction is a leaf if its curvature is at most
t + 0.001 at every sample (exact Jacobians have t = 0). Noises come from regression alone.

What differs from the paper, and why:

- The quadratic programs are solved by linear ones (`crlearn.published.layers._tolerance`) and not
  by a commercial solver; of all feasible directions the flattest is taken.
- Jacobians are estimated again for the latents that are left. Line 2 of Algorithm 1 estimates them
  once, but what is left has a density of its own, whose Jacobian is no part of the first one. Those
  of a known density are exact marginals.
- Directions that line 9 fills in are orthogonal to the leaves, and not random: what is left then is
  the part of x that is orthogonal to them, in the units of x.
- Features beyond the number of latents are first left out by an orthonormal basis of the span; the
  paper has as many features as latents.
- Latents have variance one, and a positive largest coefficient.
- Algorithm 2 regresses on the latents upstream, as section 4.2 says. Its line 4 has their noises in
  that place (``regress_on="noises"``), which carry the same information in a more complicated form.
  The kind of regression, on which the paper is silent, is chosen by held-out rows.
- ``threshold="test"`` replaces the tolerance by tests on half-samples, in units of the Fisher
  information and for a whole layer at once: neither units nor axes change the result, and where
  noise covers everything all latents are one layer.

Measured with exact Jacobians: all layers right on lines and Ys of four latents and on random graphs
of 6, 8 and 10 (squares, sine, tanh networks; 24 worlds). Noises on the paper's line: MAC 0.997 to
0.998 with 1,000 rows, 0.996 to 0.999 with 2,000 and 0.9994 to 0.9997 with 10,000; random graphs,
layer by layer, 0.97 to 0.998 with 2,000 rows and 0.989 to 0.9996 with 10,000. Regressions on noises
in place of latents are as good on the paper's line (2,000 rows: 0.9985 to 0.9989) and far worse on
lines of standardised latents (0.86 to 0.89, where those on latents have 0.998).

Cost: that of the Jacobians, then that of `crlearn.published.layers._tolerance` for each direction,
and O(N n^2) memory; the tests fit the Jacobians once more for each half-sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.inputs import Scaling, check_enough_rows, unused_label_checks, whitening
from crlearn.methods import OBSERVATIONAL_GUARANTEE
from crlearn.published._units import refuse_extreme_units
from crlearn.published.layers._checks import normality_check, visibility_check
from crlearn.published.layers._leaves import (
    Evidence,
    Leaves,
    is_known,
    leaf_directions,
    leaf_directions_by_test,
    observe,
    observe_for_tests,
)
from crlearn.published.layers._regression import Regression, fit_regression
from crlearn.result import LinearDecoder, LinearEncoder, Result
from crlearn.scores import ScoreJacobian, make_jacobian
from crlearn.tags import stored

Matrix = NDArray[np.floating]
Layers = tuple[NDArray[np.intp], ...]
Threshold = float | Literal["test"]
Predictors = Literal["latents", "noises"]

# Of the tests: chance of taking a leaf for none, for each layer; and fits on half-samples.
_LEVEL, _N_HALVES = 0.05, 8


@stored("noise/of-layers")
@dataclass(frozen=True, eq=False)
class NoiseEncoder:
    """Map from observations to exogenous noises: latents minus what those upstream explain.

    Attributes
    ----------
    latents
        Map to the latents, roots first.
    sizes
        Number of latents in each layer, from the roots down.
    regressions
        Of each layer but the first on all latents before it, or on their noises.
    regress_on
        Which of the two.
    """

    latents: LinearEncoder
    sizes: tuple[int, ...]
    regressions: tuple[Regression, ...]
    regress_on: str = "latents"

    @property
    def n_latents(self) -> int:
        """Number of noises."""
        return self.latents.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the noises of each row of `X`."""
        Z = self.latents(X)
        noise = Z.copy()
        upstream = noise if self.regress_on == "noises" else Z
        ends = np.cumsum(self.sizes)
        for (start, end), explained in zip(pairwise(ends), self.regressions, strict=True):
            noise[:, start:end] -= explained(upstream[:, :start])
        return noise


# Algorithm 1


def in_units_of_x(whitener: LinearEncoder, X: Matrix) -> Matrix:
    """Return rows that map x to an orthonormal basis of the span of the mixing."""
    refuse_extreme_units(X)
    _, factor = np.linalg.qr(LinearDecoder.undoing(whitener, X).matrix)
    return factor @ whitener.matrix


def split_layer(evidence: Evidence, leaves: Leaves) -> tuple[Matrix, Matrix]:
    """Return orthonormal rows for what is left without the leaves, and for the leaves.

    What is left does not change along the leaves.
    """
    along = np.linalg.qr(np.linalg.solve(evidence.units, leaves.directions), mode="complete")[0]
    size = leaves.directions.shape[1]
    return along[:, size:].T, along[:, :size].T


def find_leaves(
    X: Matrix,
    encoder: Matrix,
    n_kept: int,
    *,
    jacobian: ScoreJacobian,
    threshold: Threshold,
    prune_outliers: float,
    rng: np.random.Generator,
) -> tuple[Evidence, Leaves]:
    """Return the leaves of the first `n_kept` coordinates of ``encoder @ x``."""
    if threshold == "test":
        evidence = observe_for_tests(
            jacobian,
            X,
            encoder,
            n_kept,
            n_halves=_N_HALVES,
            prune_outliers=prune_outliers,
            rng=rng,
        )
        return evidence, leaf_directions_by_test(evidence, _LEVEL, rng)
    evidence = observe(jacobian, X, encoder, n_kept, prune_outliers)
    return evidence, leaf_directions(evidence, threshold, rng)


def upstream_layers(
    X: Matrix, rows: Matrix, find: Any
) -> tuple[Matrix, list[Leaves], Matrix | None]:
    """Algorithm 1: find the leaves, go on without them, until no latent is left.

    `rows` map x to as many coordinates as there are latents. Returns rows of an encoder and the
    layers, both from the roots down, and Jacobians of all coordinates at the first rows.
    """
    left, found = rows, rows[:0]
    layers: list[Leaves] = []
    jacobians = None
    while len(left) > 0:
        evidence, leaves = find(X, np.concatenate([left, found]), len(left))
        jacobians = jacobians if layers else evidence.first
        others, own = split_layer(evidence, leaves)
        layers.insert(0, leaves)
        left, found = others @ left, np.concatenate([own @ left, found])
    return found, layers, jacobians


def _in_units_of_their_own(rows: Matrix, X: Matrix) -> Matrix:
    """Give each latent variance one and a positive largest coefficient.

    Coefficients are compared for standardised features, so that units do not matter.
    """
    weights = rows * Scaling.of(X).scale
    largest = np.abs(weights).argmax(axis=1)
    signs = np.sign(weights[np.arange(len(rows)), largest])
    return rows * (signs / ((X - X.mean(axis=0)) @ rows.T).std(axis=0))[:, None]


# Algorithm 2


def noise_encoder(
    X: Matrix,
    latents: LinearEncoder,
    sizes: Sequence[int],
    rng: np.random.Generator,
    regress_on: Predictors = "latents",
) -> NoiseEncoder:
    """Regress each layer on all latents upstream, or their noises; residuals are its noises.

    Sizes are from the roots down.
    """
    Z, ends = latents(X), np.cumsum(sizes)
    noise, regressions = Z.copy(), list[Regression]()
    upstream = noise if regress_on == "noises" else Z
    for start, end in pairwise(ends):
        regression = fit_regression(upstream[:, :start], Z[:, start:end], rng)[0]
        noise[:, start:end] -= regression(upstream[:, :start])
        regressions.append(regression)
    return NoiseEncoder(latents, tuple(map(int, sizes)), tuple(regressions), regress_on)


# The algorithm


def score_layers(
    X: Matrix,
    n_latents: int | None = None,
    *,
    scores: Any = "stein",
    threshold: Threshold = 1e-3,
    prune_outliers: float = 0.25,
    regress_on: Predictors = "latents",
    seed: int = 0,
) -> Result:
    """Recover latents up to upstream layers, and their noises up to layers; see the module's text.

    The parameters are those of `ScoreLayers`.
    """
    seeds = np.random.default_rng(seed).integers(2**31 - 1, size=2).tolist()
    jacobian, rng = make_jacobian(scores, seeds[0]), np.random.default_rng(seeds[1])
    whitener, column_checks = whitening(X, n_latents)
    check_enough_rows(len(X), whitener.n_latents)
    tested = threshold == "test"
    rows = whitener.matrix if tested else in_units_of_x(whitener, X)
    find = partial(
        find_leaves, jacobian=jacobian, threshold=threshold, prune_outliers=prune_outliers, rng=rng
    )
    encoder, layers, jacobians = upstream_layers(X, rows, find)
    latents = LinearEncoder(_in_units_of_their_own(encoder, X), whitener.offset)
    sizes = [leaves.directions.shape[1] for leaves in layers]
    noises = noise_encoder(X, latents, sizes, rng, regress_on)
    found = {"layers": _numbered(sizes), "noise_encoder": noises}
    shape_checks = () if is_known(jacobian) else (normality_check(whitener(X)),)
    return Result(
        encoder=latents,
        decoder=LinearDecoder.undoing(latents, X),
        guarantee=OBSERVATIONAL_GUARANTEE,
        **found,
        checks=(
            *column_checks,
            *shape_checks,
            visibility_check(layers[::-1], tested=tested or is_known(jacobian)),
        ),
        details={
            **found,  # where metrics look for layers and noises
            **_diagnostics(layers[::-1]),
            **_reported(rows, X, jacobians),
        },
    )


def _numbered(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the layers from the leaves up; latents are numbered from the roots down."""
    ends = np.cumsum(sizes).tolist()
    return tuple(
        tuple(range(end - size, end)) for end, size in reversed([*zip(ends, sizes, strict=True)])
    )


def _reported(rows: Matrix, X: Matrix, jacobians: Matrix | None) -> dict[str, Any]:
    if jacobians is None:
        return {}
    at = X[: len(jacobians)] @ rows.T
    return {"jacobians": {"encoder": rows, "at": at, "values": jacobians}}


def _diagnostics(layers: Sequence[Leaves]) -> dict[str, Any]:
    return {
        "deviation": np.array([leaves.deviation for leaves in layers]),
        "next_deviation": np.array([leaves.next_deviation for leaves in layers]),
        "p_values": np.array([leaves.p_value for leaves in layers]),
        "next_p_values": np.array([leaves.next_p_value for leaves in layers]),
    }


class ScoreLayers(BaseCRL):
    """Algorithms 1 and 2 of Welch, Zhang and Uhler (2024): layers from observational scores.

    Latents and exogenous noises up to layers, from observational data alone; see
    `crlearn.ObservationalCRL` for a likelihood of the same setting. `y` is not used, and labels in
    it are reported. Latents are numbered causes first. ``result_.details`` holds how far each layer
    is from constant curvature (``deviation``), how far it would be with one latent more
    (``next_deviation``), both from the leaves up, the p-values of tests, and, if there are none,
    ``jacobians``: those of the score of ``encoder @ x`` (``values``) at the first 2,000 rows
    (``at``), as they were estimated.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    scores
        Score and its Jacobian: ``"stein"`` or ``"sliced"``, the paper's two, the former at up to
        1,000 kernels in place of one at each row (``"full-stein"``), ``"flow"``, or whatever
        `crlearn.scores.make_jacobian` takes.
    threshold
        How much larger than that of the flattest direction the curvature of a leaf may be at any
        sample, in the units of x; 0.001 in the paper. ``"test"``: tests on half-samples decide how
        many latents a layer has.
    prune_outliers
        Share of the estimated Jacobians that is dropped, the largest first; 0.25 in the paper.
        Known densities have no outliers, and nothing is dropped.
    regress_on
        What explains a layer: ``"latents"`` upstream, as section 4.2 of the paper has it, or their
        recovered ``"noises"``, as line 4 of Algorithm 2.
    random_state
        Seed of scores, starts, half-samples and regressions.

    Examples
    --------
    >>> from crlearn.data import make_observational
    >>> from crlearn.published import ScoreLayers
    >>> from crlearn.scores import ExactJacobians
    >>> world = make_observational(n_latents=4, graph="y", random_state=0)
    >>> model = ScoreLayers(scores=ExactJacobians(world.truth), random_state=0).fit(world.X)
    >>> model.layers_  # from the leaves up
    [[2, 3], [1], [0]]
    >>> model.noises(world.X).shape
    (1000, 4)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "scores": "no_validation",
        "threshold": [Interval(Real, 0, None, closed="left"), StrOptions({"test"})],
        "prune_outliers": [Interval(Real, 0, 0.9, closed="both")],
        "regress_on": [StrOptions({"latents", "noises"})],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        scores: Any = "stein",
        threshold: float | str = 1e-3,
        prune_outliers: float = 0.25,
        regress_on: str = "latents",
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.scores = scores
        self.threshold = threshold
        self.prune_outliers = prune_outliers
        self.regress_on = regress_on
        self.random_state = random_state

    @property
    def layers_(self) -> list[list[int]]:
        """Latents of each layer, from the leaves up, as `crlearn.graph.layers` has them."""
        layers = self._fitted_result().layers
        assert layers is not None
        return [list(layer) for layer in layers]

    def noises(self, X: ArrayLike) -> Matrix:
        """Return the exogenous noises of each row of `X`, in the units and order of the latents."""
        check_is_fitted(self)
        assert self.result_.noise_encoder is not None
        return self._encoded(X, self.result_.noise_encoder, "noises")

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        result = score_layers(
            X,
            self.n_latents,
            scores=self.scores,
            threshold=self.threshold,  # type: ignore[arg-type]
            prune_outliers=self.prune_outliers,
            regress_on=self.regress_on,  # type: ignore[arg-type]
            seed=seed,
        )
        return replace(result, checks=(*result.checks, *unused_label_checks(y)))
