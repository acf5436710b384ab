"""Combinations of environments: their second moments, and how many directions they have.

Stages 1 and 2 of UMNI-CRL (`crlearn.published.umni._estimator`) ask of integer combinations of
score differences how many directions they have beyond known rows, by cuts as published or by tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood import Moments
from crlearn.scores import zero_test

Matrix = NDArray[np.floating]
Integers = NDArray[np.intp]

ROUNDING = 1e-12  # mean squares below this share of the largest are zero
_HOPELESS = 30.0  # times the noise: what is larger fails every test


@dataclass(frozen=True, eq=False)
class Samples:
    """All that the algorithm knows of the data, in n coordinates, and of random halves of them.

    Sample 0 is the data. What is computed from it is computed from the halves as well, in arrays
    with one more axis in front, which shows how noisy it is.
    """

    differences: Matrix  # score of the reference minus that of each environment, (S, m, N, n)
    moments: Sequence[Moments]  # of the rows of each environment

    @cached_property
    def cross_moments(self) -> Matrix:
        """``R[s, i, j] = E[ds_i ds_j']`` for each pair of environments, not centred."""
        n_samples, m, n_rows, n = self.differences.shape
        flat = self.differences.transpose(0, 1, 3, 2).reshape(n_samples, m * n, n_rows)
        moments = flat @ flat.transpose(0, 2, 1) / n_rows
        return moments.reshape(n_samples, m, n, m, n).transpose(0, 1, 3, 2, 4)

    def rows_of(self, combination: Integers, known: Matrix) -> Matrix:
        """Return the row that a combination adds to known rows ``(S, r, n)``, of unit length.

        The covariance of the score difference with its largest part beyond the known rows: that
        part and what goes along with it, the latent's mixture with its ancestors. Halves take one
        step of the power method from the part that the data have, which is right where there is a
        single direction, and does not jump to another one where there are two.
        """
        moments = combined(self.cross_moments, combination[None])[:, 0]
        outside = beyond(known)
        inside = outside @ moments @ outside
        rows = (moments @ inside @ np.linalg.eigh(inside[0])[1][:, -1:])[..., 0]
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def combined(moments: Matrix, combinations: Integers) -> Matrix:
    """Return second moments of combinations ``(k, m)`` of environments, from cross moments."""
    m, n = moments.shape[-3], moments.shape[-1]
    products = (combinations[:, :, None] * combinations[:, None, :]).reshape(-1, m * m)
    flat = products.astype(float) @ moments.reshape(*moments.shape[:-4], m * m, n * n)
    return flat.reshape(*flat.shape[:-1], n, n)


def beyond(rows: Matrix) -> Matrix:
    """Return the projection on what is orthogonal to the rows ``(..., r, n)``."""
    directions = np.linalg.qr(np.swapaxes(rows, -1, -2))[0]
    return np.eye(rows.shape[-1]) - directions @ np.swapaxes(directions, -1, -2)


def compressed(differences: Matrix) -> Matrix:
    """Return differences at fewer rows, made up so that all mean products stay as they are."""
    n_samples, m, n_rows, n = differences.shape
    flat = differences.transpose(2, 0, 1, 3).reshape(n_rows, -1)
    values, vectors = np.linalg.eigh(flat.T @ flat / n_rows)
    kept = values > 1e-2 * ROUNDING * values[-1]
    few = np.sqrt(kept.sum() * values[kept])[:, None] * vectors[:, kept].T
    return few.reshape(-1, n_samples, m, n).transpose(1, 2, 0, 3)


# How many directions does a combination have beyond the known rows?


@dataclass(frozen=True, eq=False)
class RankCuts:
    """The published decisions: a cut for eigenvalues, and for sines of angles to the known rows."""

    samples: Samples
    cut: float = 0.05

    def excess(self, combinations: Integers, known: Matrix, n_tests: int = 1) -> Matrix:
        """Return how far each combination is from exactly one direction beyond the known rows.

        Up to 1 it counts as one; infinity is for none. `known` has an entry for each sample. Tests
        keep their level in `n_tests` tests together; cuts do not care.
        """
        moments = combined(self.samples.cross_moments[0], combinations)
        values, vectors = np.linalg.eigh(moments)
        image = vectors * (values > self.cut)[:, None, :]
        squares = np.linalg.eigvalsh(image.swapaxes(1, 2) @ beyond(known[0]) @ image)
        sines = np.sqrt(np.clip(squares, 0.0, None))
        second = sines[:, -2] if sines.shape[1] > 1 else np.zeros(len(sines))
        return np.where(sines[:, -1] > self.cut, second / self.cut, np.inf)


@dataclass(frozen=True, eq=False)
class RankTests:
    """Calibrated decisions: what noise alone could give is zero.

    A combination has one direction if something is left of its score difference beyond the known
    rows, and nothing beyond the known rows and the new one; `crlearn.scores.zero_test` decides. The
    tests know the noise of the scores and of the rows, and not the bias of the scores. `level` is
    the chance to find a second direction where there is none.
    """

    samples: Samples
    level: float = 0.05

    @cached_property
    def _noise(self) -> Matrix:
        """Cross moments of the noise, as far as it is in the scores."""
        whole, *halves = self.samples.differences
        return Samples(np.array(halves) - whole, ()).cross_moments.mean(axis=0)

    def excess(self, combinations: Integers, known: Matrix, n_tests: int = 1) -> Matrix:
        """Return the same as `RankCuts.excess`, by tests."""
        moments = combined(self.samples.cross_moments[0], combinations)
        outside = beyond(known[0])
        values, vectors = np.linalg.eigh(outside @ moments @ outside)
        rest = outside - vectors[:, :, -1:] * vectors[:, None, :, -1]
        noise = np.einsum("kij,kji->k", rest, combined(self._noise, combinations))
        noise += ROUNDING * np.trace(moments, axis1=1, axis2=2)
        excess = values[:, :-1].sum(axis=1) / noise
        for k in np.flatnonzero(excess < _HOPELESS):
            excess[k] = self._tested(combinations[k], known, self.level / n_tests)
        return excess

    def _tested(self, combination: Integers, known: Matrix, level: float) -> float:
        differences = np.tensordot(self.samples.differences, combination, axes=((1,), (0,)))
        if self._strength(differences, known, level) <= 1:
            return np.inf
        found = self.samples.rows_of(combination, known)[:, None]
        return self._strength(differences, np.concatenate([known, found], axis=1), level)

    def _strength(self, differences: Matrix, known: Matrix, level: float) -> float:
        """Return the mean square beyond the known rows over the least that is not noise."""
        whole, *halves = differences @ beyond(known)
        test = zero_test(whole, halves, ROUNDING * float(np.mean(differences[0] ** 2)))
        critical = test.critical_value(level)
        return test.mean_square / critical if critical > 0 else 0.0


Ranks = RankCuts | RankTests
