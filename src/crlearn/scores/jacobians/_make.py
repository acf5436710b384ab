"""Score and score Jacobian of one density: the protocol, densities that are known, and names.

The Jacobian of the score is the matrix of second derivatives of the log-density. Estimators of it
are fitted to rows and evaluated at rows. A density that is known (that of a simulated world, or a
user's own function) is never fitted; it is asked for marginals instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from crlearn.data import SCM
from crlearn.scores._base import Rows, check_rows
from crlearn.scores.jacobians._flow import FlowJacobians
from crlearn.scores.jacobians._sliced import SlicedJacobians
from crlearn.scores.jacobians._stein import SteinJacobians

if TYPE_CHECKING:
    from crlearn.data import Truth

JacobianFunction = Callable[[Rows], tuple[ArrayLike, ArrayLike]]

_MOST_STEPS = 50
# Steps below this share of the extent of the data are rounding; longer ones are shortened.
_SMALL_STEP, _LONGEST_STEP = 1e-10, 1.0


@runtime_checkable
class ScoreJacobian(Protocol):
    """Score and Jacobian of the score of one density.

    An object may say ``original_coordinates = True``: it knows the density of the rows as they were
    observed. Methods then do not fit it to rows in other coordinates, but ask for marginals:
    ``marginal(X, encoder, n_kept)`` returns score and Jacobian of the first `n_kept` coordinates of
    ``encoder @ x``, at the rows of X. Its ``accuracy`` is the error of Jacobians (root mean square,
    where their mean is one) that has to be reckoned with.
    """

    def fit(self, X: ArrayLike) -> Self:
        """Learn from rows."""
        ...

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores ``(N, d)`` and Jacobians ``(N, d, d)`` at the rows."""
        ...


class ExactJacobians:
    """Score and Jacobian of a simulated world, from its own density.

    Shows what a method reaches when the scores are no source of error. A marginal without the last
    layers of latents is again a structural causal model; those latents are left out that the
    coordinates which are kept do not see.

    Cost: O(N n^2 d) for n latents.

    Parameters
    ----------
    truth
        Of a `crlearn.data.Dataset`, with a linear mixing and without measurement noise.
    environment
        Place of the environment in the world.

    Examples
    --------
    >>> from crlearn.data import make_observational
    >>> world = make_observational(n_samples=10, random_state=0)
    >>> scores, jacobians = ExactJacobians(world.truth).evaluate(world.X)
    >>> jacobians.shape
    (10, 4, 4)
    """

    original_coordinates = True
    accuracy = 1e-6

    def __init__(self, truth: Truth, environment: int = 0) -> None:
        if truth.measurement_noise or truth.mixing.matrix is None or truth.scms is None:
            raise ValueError(
                "'truth' must be that of a world with a linear mixing, without measurement noise, "
                "and with its structural causal models. Only there the observations have exact "
                "scores."
            )
        self.truth = truth
        self.environment = environment

    def fit(self, X: ArrayLike) -> Self:
        """Do nothing: the truth is known."""
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return scores and Jacobians at the rows, in the span of the mixing."""
        matrix = cast(Rows, self.truth.mixing.matrix)
        Z = self.truth.mixing.inverse(check_rows(X, len(matrix)))
        scores, jacobians = self.truth.score(Z), self.truth.score_jacobian(Z)
        return pulled_back(scores, jacobians, np.linalg.pinv(matrix))

    def marginal(self, X: ArrayLike, encoder: Rows, n_kept: int) -> tuple[Rows, Rows]:
        """Return scores and Jacobians of the first coordinates of ``encoder @ x``."""
        matrix = cast(Rows, self.truth.mixing.matrix)
        Z = self.truth.mixing.inverse(check_rows(X, len(matrix)))
        loadings = encoder[:n_kept] @ matrix
        kept = self._kept_latents(np.linalg.norm(loadings * Z.std(axis=0), axis=0), n_kept)
        scm = self._scm()
        part = SCM(scm.graph[np.ix_(kept, kept)], [scm.nodes[j] for j in kept])
        scores, jacobians = part.score(Z[:, kept]), part.score_jacobian(Z[:, kept])
        return pulled_back(scores, jacobians, np.linalg.inv(loadings[:, kept]))

    def _kept_latents(self, visibility: Rows, n_kept: int) -> list[int]:
        """Drop childless latents, the least visible first, until `n_kept` are left."""
        graph, kept = self._scm().graph, list(range(len(visibility)))
        while len(kept) > n_kept:
            leaves = [j for j in kept if not graph[j, kept].any()]
            kept.remove(min(leaves, key=lambda j: visibility[j]))
        return kept

    def _scm(self) -> SCM:
        assert self.truth.scms is not None
        return self.truth.scms[self.environment]

    def __repr__(self) -> str:
        return "ExactJacobians(truth)"  # which may be large

    def __sklearn_clone__(self) -> Self:
        return self  # nothing is ever learned, and the truth may be large


class FunctionJacobians:
    """Score and Jacobian from a user's function, such as a network trained elsewhere.

    Marginals hold for additive Gaussian noise, the model of the methods that ask for them. There
    the density without its last layers is the largest value that it takes over them, up to a
    constant: rows are moved to that maximum by Newton's method, and the Jacobian there is the Schur
    complement. Rows for which the maximum is not found come back as NaN.

    Cost: that of the function; a few calls more for each coordinate that is left out.

    Parameters
    ----------
    function
        ``function(X)`` returns scores ``(N, d)`` and their Jacobians ``(N, d, d)`` at the rows of
        X, in the coordinates of X.
    """

    original_coordinates = True
    accuracy = 1e-3

    def __init__(self, function: JacobianFunction) -> None:
        self.function = function

    def fit(self, X: ArrayLike) -> Self:
        """Do nothing: the function is known."""
        return self

    def evaluate(self, X: ArrayLike) -> tuple[Rows, Rows]:
        """Return the function's values, checked."""
        X = check_rows(X)
        values = self.function(X)
        if not isinstance(values, tuple | list) or len(values) != 2:
            raise ValueError(
                "The score function must return two arrays, the scores and their Jacobians. Got "
                f"{type(values).__name__} instead."
            )
        scores, jacobians = (np.asarray(value, dtype=np.float64) for value in values)
        wanted = (X.shape, (*X.shape, X.shape[1]))
        if (scores.shape, jacobians.shape) != wanted:
            raise ValueError(
                f"The score function must return scores of shape {wanted[0]} and Jacobians of "
                f"shape {wanted[1]}. Got {scores.shape} and {jacobians.shape} instead."
            )
        if not (np.isfinite(scores).all() and np.isfinite(jacobians).all()):
            raise ValueError(
                "The score function must return finite numbers. Some are missing or infinite."
            )
        return scores, symmetric(jacobians)

    def marginal(self, X: ArrayLike, encoder: Rows, n_kept: int) -> tuple[Rows, Rows]:
        """Return scores and Jacobians of the first coordinates of ``encoder @ x``."""
        X = check_rows(X)
        centred = X - X.mean(axis=0)
        # Where there are more features than latents, rows must not leave the span of the mixing.
        decoder = np.linalg.lstsq(centred @ encoder.T, centred)[0].T
        found = np.ones(len(X), dtype=bool)
        for first in reversed(range(n_kept, len(encoder))):
            X, found = self._highest_point(X, decoder[:, first:])
        scores, jacobians = pulled_back(*self.evaluate(X), decoder)
        scores, across = scores[:, :n_kept], jacobians[:, n_kept:, :n_kept]
        others = jacobians[:, n_kept:, n_kept:].copy()
        others[~found] = -np.eye(len(encoder) - n_kept)  # whatever can be inverted
        profile = np.swapaxes(across, 1, 2) @ np.linalg.solve(others, across)
        jacobians = symmetric(jacobians[:, :n_kept, :n_kept] - profile)
        scores[~found], jacobians[~found] = np.nan, np.nan
        return scores, jacobians

    def _highest_point(self, X: Rows, directions: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Move each row along the directions until the score along them is zero."""
        size = np.abs(X - X.mean(axis=0)).max()
        step = np.full(len(X), np.inf)
        for _ in range(_MOST_STEPS):
            active = step > _SMALL_STEP * size
            if not active.any():
                break
            scores, jacobians = pulled_back(*self.evaluate(X[active]), directions)
            moves = np.linalg.solve(-jacobians, scores[:, :, None])[:, :, 0] @ directions.T
            length = np.abs(moves).max(axis=1)
            shortened = np.minimum(1.0, _LONGEST_STEP * size / np.maximum(length, 1e-300))
            X = X.copy()
            X[active] += moves * shortened[:, None]
            step[active] = length
        return X, step <= _SMALL_STEP * size


def pulled_back(scores: Rows, jacobians: Rows, matrix: Rows) -> tuple[Rows, Rows]:
    """Return scores and Jacobians of u as those of v, where ``u = matrix @ v``."""
    return scores @ matrix, symmetric(matrix.T @ jacobians @ matrix)


def symmetric(matrices: Rows) -> Rows:
    """Return the symmetric parts."""
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


# What `make_jacobian` knows by name.
JACOBIANS: dict[str, Callable[..., Any]] = {
    "stein": SteinJacobians,
    "full-stein": partial(SteinJacobians, n_centres=None),
    "sliced": SlicedJacobians,
    "flow": FlowJacobians,
}


def make_jacobian(jacobian: Any, random_state: Any = None) -> ScoreJacobian:
    """Return an estimator of score and Jacobian that is not fitted yet.

    Parameters
    ----------
    jacobian
        ``"stein"``, ``"full-stein"`` (with the kernel matrix of all rows), ``"sliced"`` or
        ``"flow"``; an object with ``fit`` and ``evaluate``, of which a
        copy is made; or a function of X that returns scores ``(N, d)`` and Jacobians ``(N, d, d)``.
    random_state
        Seed of an estimator that is given by name. An object keeps its own.

    Examples
    --------
    >>> make_jacobian("stein", random_state=0)
    SteinJacobians(random_state=0)
    """
    if isinstance(jacobian, str) and jacobian in JACOBIANS:
        return JACOBIANS[jacobian](random_state=random_state)
    if isinstance(jacobian, type):
        raise ValueError(
            f"The 'jacobian' must be an object, not a class. Got {jacobian.__name__}; write "
            f"{jacobian.__name__}()."
        )
    if isinstance(jacobian, ScoreJacobian):
        if hasattr(jacobian, "get_params"):
            return cast(Any, clone(jacobian))
        return copy.copy(jacobian)
    if callable(jacobian):
        return FunctionJacobians(cast(Any, jacobian))
    hint = " Exact ones need a world: give ExactJacobians(truth)." if jacobian == "exact" else ""
    raise ValueError(
        f"The 'jacobian' must be one of {', '.join(map(repr, JACOBIANS))}, an object with fit(X) "
        f"and evaluate(X), or a function of X. Got {jacobian!r} instead.{hint}"
    )
