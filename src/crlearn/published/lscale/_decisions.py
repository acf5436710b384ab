"""What is zero? The decisions of score-based algorithms, by absolute cuts or by tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.scores import ZeroTest, zero_test

Matrix = NDArray[np.floating]

# Mean squares below this share of the largest are rounding.
_ROUNDING = 1e-12
_LARGEST_CONDITION = 1e10


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that the algorithm knows of the data, in n coordinates.

    Attributes
    ----------
    differences
        Score of the reference minus score of each environment at rows of the reference,
        ``(n, N, n)``.
    covariances
        Covariance of the rows of each environment but the reference, ``(n, n, n)``.
    """

    differences: Matrix
    covariances: Matrix

    @cached_property
    def second_moments(self) -> Matrix:
        """``R[m] = E[ds ds']`` for each environment, not centred."""
        moments = self.differences.transpose(0, 2, 1) @ self.differences
        return moments / self.differences.shape[1]

    def principal_axes(self, environments: Sequence[int]) -> tuple[Matrix, Matrix]:
        """Return eigenvalues, the largest last, and eigenvectors of a sum of second moments."""
        eigenvalues, vectors = np.linalg.eigh(self.second_moments[list(environments)].sum(axis=0))
        return eigenvalues, vectors


# A stage of an algorithm: the encoder (n, n) that it finds in some evidence.
Encode = Callable[[Evidence], Matrix]


def decoder_of(encoder: Matrix) -> Matrix:
    """Return the inverse of an encoder in n coordinates."""
    unit = encoder / np.linalg.norm(encoder, axis=1, keepdims=True)
    if np.linalg.cond(unit) > _LARGEST_CONDITION:
        similar = np.abs(unit @ unit.T) - np.eye(len(unit))
        first, second = np.unravel_index(np.argmax(similar), similar.shape)
        raise IdentifiabilityError(
            "The environments must intervene on different latents, and those found do not span "
            f"all directions; environments {first + 1} and {second + 1} are the most similar. "
            "Merge environments with the same target, or ask for fewer latents."
        )
    return np.linalg.inv(encoder)


@dataclass(frozen=True, eq=False)
class Strengths:
    """How strong each edge is; ``[i, m]`` is for i -> m.

    Attributes
    ----------
    strength
        Mean square of the score difference over the least that makes an edge.
    p_values
        Of the tests, or None.
    """

    strength: Matrix
    p_values: Matrix | None = None


class Decisions(Protocol):
    """How an algorithm tells zero from not zero."""

    def edges(self, encode: Encode) -> Strengths:
        """Judge how the intervention on each latent changes the score along all latents."""
        ...

    def rank(self, environments: Sequence[int]) -> int:
        """Return the rank of the sum of the second moments of some environments."""
        ...

    def shared(self, first: int, second: int) -> int:
        """Return the dimension that the column spaces of two second moments share."""
        ...


@dataclass(frozen=True, eq=False)
class AbsoluteCuts:
    """The published decisions: what is below a fixed number is zero.

    Attributes
    ----------
    evidence
        What is judged.
    edge_cut
        Least mean square of a score difference that makes an edge.
    rank_cut
        Least eigenvalue that counts for the rank of a second moment.
    angle_cut
        Largest squared sine of the angle between directions that count as the same.
    """

    evidence: Evidence
    edge_cut: float = 1e-3
    rank_cut: float = 1e-2
    angle_cut: float = 1e-4

    def edges(self, encode: Encode) -> Strengths:
        """Compare mean squares with the cut."""
        decoder = decoder_of(encode(self.evidence))
        moments = self.evidence.second_moments
        return Strengths(np.einsum("ji,mjk,ki->im", decoder, moments, decoder) / self.edge_cut)

    def rank(self, environments: Sequence[int]) -> int:
        """Count eigenvalues above the cut."""
        return self._columns(environments).shape[1]

    def shared(self, first: int, second: int) -> int:
        """Count directions of the one column space that lie in the other."""
        cosines = self._columns([first]).T @ self._columns([second])
        return int((np.linalg.svd(cosines, compute_uv=False) ** 2 >= 1 - self.angle_cut).sum())

    def _columns(self, environments: Sequence[int]) -> Matrix:
        values, vectors = self.evidence.principal_axes(environments)
        return vectors[:, values >= self.rank_cut]


@dataclass(frozen=True, eq=False)
class NoiseTest:
    """Calibrated decisions: what noise alone could give is zero.

    Everything is computed again on random halves of the rows, which shows how noisy it is; see
    `crlearn.scores.zero_test`. The test knows the noise of the scores and not their bias: scores
    that are wrong in the limit give edges that are not there.

    Attributes
    ----------
    evidence
        What is judged.
    halves
        The evidence of random halves, at the same rows.
    level
        Chance of any edge where there is none, over all pairs of latents (Bonferroni).
    """

    evidence: Evidence
    halves: Sequence[Evidence]
    level: float = 0.05

    def edges(self, encode: Encode) -> Strengths:
        """Test each score difference of the recovered latents."""
        whole, *halves = [
            evidence.differences @ decoder_of(encode(evidence))
            for evidence in (self.evidence, *self.halves)
        ]
        n = len(whole)
        strength, p_values = np.zeros((n, n)), np.ones((n, n))
        for m in range(n):
            rounding = _ROUNDING * float(np.mean(whole[m] ** 2))
            for i in range(n):
                test = zero_test(whole[m][:, i], [half[m][:, i] for half in halves], rounding)
                strength[i, m] = self._strength(test)
                p_values[i, m] = test.p_value
        return Strengths(strength, p_values)

    def rank(self, environments: Sequence[int]) -> int:
        """Count directions, from the largest eigenvalue down, until noise could give the next."""
        values, vectors = self.evidence.principal_axes(environments)
        rank = 0
        for direction in vectors.T[::-1]:
            whole, *halves = [
                evidence.differences[list(environments)] @ direction
                for evidence in (self.evidence, *self.halves)
            ]
            if self._strength(zero_test(whole, halves, _ROUNDING * float(values[-1]))) < 1:
                break
            rank += 1
        return rank

    def shared(self, first: int, second: int) -> int:
        """Return what is missing in the rank of the sum."""
        return self.rank([first]) + self.rank([second]) - self.rank([first, second])

    def _strength(self, test: ZeroTest) -> float:
        n = len(self.evidence.differences)
        critical = test.critical_value(self.level / max(1, n * (n - 1)))
        return test.mean_square / critical if critical > 0 else 0.0
