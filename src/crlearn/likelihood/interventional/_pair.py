"""Two environments that intervene on the same latent, and no observational one.

Both interventions are hard: latent i has one density in the first environment and another one in
the second, and everything else, given latent i, is the same. So the logarithm of the ratio of the
two densities of x is a function of z_i alone, whatever mechanisms and graph are, and its gradient,
the difference of scores, lies along row i of the encoder (Varıcı et al. 2025). Nothing else can be
told from two such environments.

The ratio is what a logistic regression of the environment on x estimates: here one on smooth
functions of a single direction, which is fitted with them by Fisher's scoring. If the environments
differ along other directions, too, linear functions and products of those explain what is left: a
score test.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26(112), 2025. Hristache, Juditsky and Spokoiny, Direct estimation of
the index coefficient in a single-index model, Annals of Statistics 29(3), 2001.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import expit
from scipy.stats import chi2

from crlearn.likelihood.core._moments import quadratic_features
from crlearn.likelihood.core._subsample import part_of_each

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]

_ROWS_TO_SEARCH, _MOST_ROWS = 2_000, 50_000  # of each environment
_RANDOM_STARTS = 5
_MOST_STEPS = 50
_STILL = 1e-4  # nats that a step gains
_MOST_HALVINGS = 10
_RIDGE = 1e-6  # of the information of a row, for what no row tells
_KNOTS, _WIDTH = (-1.5, -0.5, 0.5, 1.5), 0.5  # standard deviations; Gaussian ratios need no knots
_RANK = 1e-9


@dataclass(frozen=True, eq=False)
class OneDirection:
    """The direction along which two environments differ.

    Attributes
    ----------
    row
        Of the encoder, ``(n,)``.
    statistic, freedom, p_value
        Of the test that they differ along no other one.
    overlap
        Number of rows that could be of either environment: the test rests on these.
    """

    row: Vector
    statistic: float
    freedom: int
    p_value: float
    overlap: float


def one_direction(rows: Sequence[Matrix], rng: np.random.Generator) -> OneDirection:
    """Find the direction along which two environments differ, and test that it is the only one.

    Parameters
    ----------
    rows
        Of the two environments; white together.
    rng
        For the starts.
    """
    few, many = (_Ratio.of(part_of_each(rows, n_rows)) for n_rows in (_ROWS_TO_SEARCH, _MOST_ROWS))
    found = max((few.fitted(row) for row in _starts(rows, rng)), key=lambda fit: fit.value)
    return many.tested(many.fitted(found.row))


@dataclass(frozen=True, eq=False)
class _Point:
    row: Vector
    coefficients: Vector
    value: float


@dataclass(frozen=True, eq=False)
class _Ratio:
    """Logistic regressions on smooth functions of one direction.

    Attributes
    ----------
    x
        Rows of both environments.
    is_second
        1 for those of the second.
    """

    x: Matrix
    is_second: Vector

    @classmethod
    def of(cls, rows: Sequence[Matrix]) -> _Ratio:
        return cls(np.concatenate(rows), np.repeat([0.0, 1.0], [len(each) for each in rows]))

    def fitted(self, row: Vector) -> _Point:
        """Climb the likelihood from a direction."""
        unit = row / np.linalg.norm(row)
        at = self._point(unit, np.zeros(3 + len(_KNOTS)))
        for free in (False, True):  # functions first, then the direction as well
            for _ in range(_MOST_STEPS):
                before, at = at, self._stepped(at, free)
                if at.value - before.value < _STILL:
                    break
        return at

    def tested(self, at: _Point) -> OneDirection:
        """Test that other linear functions and products of x tell nothing."""
        tangent, left, weights = self._linearised(at, True)
        others = quadratic_features(self.x)
        others -= (
            tangent
            @ np.linalg.pinv(tangent.T @ (weights[:, None] * tangent))
            @ (tangent.T @ (weights[:, None] * others))
        )
        information = others.T @ (weights[:, None] * others) / len(self.x)
        values, axes = np.linalg.eigh(information)
        kept = values > _RANK * np.trace(information)
        scores = (left @ others @ axes)[kept] / np.sqrt(len(self.x) * values[kept])
        statistic, freedom = float(scores @ scores), int(kept.sum())
        p_value = float(chi2.sf(statistic, max(freedom, 1)))
        return OneDirection(at.row, statistic, freedom, p_value, overlap=4 * float(weights.sum()))

    def _stepped(self, at: _Point, free: bool) -> _Point:
        tangent, left, weights = self._linearised(at, free)
        information = tangent.T @ (weights[:, None] * tangent)
        information[np.diag_indices_from(information)] += _RIDGE * len(self.x)
        step = np.linalg.solve(information, tangent.T @ left)
        k = len(at.coefficients)
        turn = null_space(at.row[None]) @ step[k:] if free else 0 * at.row
        for _ in range(_MOST_HALVINGS):
            row = at.row + turn
            found = self._point(row / np.linalg.norm(row), at.coefficients + step[:k])
            if found.value > at.value:
                return found
            step, turn = step / 2, turn / 2
        return at

    def _linearised(self, at: _Point, free: bool) -> tuple[Matrix, Vector, Vector]:
        """Return what moves the log-ratio, what is left of the labels, and the rows' weights."""
        z = self.x @ at.row
        features, slopes = _features(z)
        chances = expit(features @ at.coefficients)
        if free:
            beyond = self.x @ null_space(at.row[None])
            features = np.hstack([features, (slopes @ at.coefficients)[:, None] * beyond])
        return features, self.is_second - chances, chances * (1 - chances)

    def _point(self, row: Vector, coefficients: Vector) -> _Point:
        ratio = _features(self.x @ row)[0] @ coefficients
        value = float(self.is_second @ ratio - np.logaddexp(0, ratio).sum())
        return _Point(row, coefficients, value)


def _features(z: Vector) -> tuple[Matrix, Matrix]:
    """Return smooth functions of a latent, and their derivatives."""
    off = z[:, None] - np.array(_KNOTS)
    hinges = np.sqrt(off**2 + _WIDTH**2)
    values = np.column_stack([np.ones_like(z), z, z**2, hinges])
    return values, np.column_stack([0 * z, np.ones_like(z), 2 * z, off / hinges])


def _starts(rows: Sequence[Matrix], rng: np.random.Generator) -> Iterator[Vector]:
    """Yield the directions in which precisions differ, that of the means, and random ones."""
    n = rows[0].shape[1]
    precisions = np.linalg.inv([np.cov(each.T, bias=True).reshape(n, n) for each in rows])
    yield from np.linalg.eigh(precisions[1] - precisions[0])[1].T
    yield precisions.mean(axis=0) @ (rows[1].mean(axis=0) - rows[0].mean(axis=0))
    yield from rng.standard_normal((_RANDOM_STARTS, n))
