"""How likely the domains' moments are under an unmixing, with moments counted as Gaussian.

Latents that a domain does not move have one mean and covariance in all such domains; a target that
is cut off its parents has a variance of its own and is uncorrelated with what nothing moves, and
with other targets that are cut off theirs; what else moves has any regression on these. A target to
which a dose is added, and which nothing else moves, is as it is elsewhere but for its mean.
Measurement noise is added to all of them. What a domain has to itself is profiled out in closed
form: the unmixing and the shared moments are left. These conditions hold for latents that are not
Gaussian, too: the likelihood only weighs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crlearn.likelihood.domains._start import BoolMatrix, Domains, with_signs, with_unit_columns

Matrix = NDArray[np.floating]

_ENOUGH = 1e-7  # share of the value that a step must still gain
_SMALLEST_SHARE = 0.05  # of a variance, where a start would be negative; not measured


@dataclass(frozen=True, eq=False)
class State:
    """An unmixing, and the mean and lower root of the covariance that latents share.

    `shift` is what a dose of one adds to each latent.
    """

    unmixing: Matrix
    mean: Matrix
    root: Matrix
    shift: Matrix


class DomainLikelihood:
    """Twice the logarithm of the likelihood ratio between free moments and those of an unmixing.

    About chi-square with `freedom` degrees of freedom at the best unmixing, if the graph and the
    targets are right. Does not depend on the scale of rows.

    Parameters
    ----------
    domains
        Moments and what is known about them.
    orthogonal
        Whether the columns of the mixing are orthonormal.
    zero_base
        Whether latents that a domain does not move have mean zero.
    """

    def __init__(
        self, domains: Domains, *, orthogonal: bool = True, zero_base: bool = False
    ) -> None:
        self.domains, self.orthogonal, self.zero_base = domains, orthogonal, zero_base
        self.still = domains.alike
        self.doses = np.where(domains.shifted, domains.strengths, 0.0)
        # Latents that are cut off their parents, and the domain of each. Noises of two targets are
        # independent if columns are orthogonal only.
        n_targets = domains.targets.sum(axis=1, keepdims=True)
        cut = domains.hard & domains.targets & ((n_targets == 1) | orthogonal)
        self.cut, self.target = np.nonzero(cut)
        self.judged = self.still.copy()
        self.judged[self.cut, self.target] = True
        n = domains.n_latents
        self.lower = np.tril_indices(n)
        self.free = np.triu_indices(n, k=1) if orthogonal else np.nonzero(~np.eye(n, dtype=bool))

    def of(self, domains: Domains) -> DomainLikelihood:
        """Return the same for other moments."""
        return DomainLikelihood(domains, orthogonal=self.orthogonal, zero_base=self.zero_base)

    @property
    def freedom(self) -> int:
        """Number of conditions on the moments, less that of parameters of the unmixing."""
        pairs = (self.still[:, :, None] & self.still[:, None, :]).sum(axis=0)
        count = np.triu(np.maximum(pairs - 1, 0)).sum() + self.still[self.cut].sum()
        together = np.bincount(self.cut, minlength=1)
        count += (together * (together - 1) // 2).sum()
        for still, doses in zip(self.still.T, self.doses.T, strict=True):
            count += still.sum() - np.linalg.matrix_rank(self._levels(doses[still]))
        return max(int(count) - len(self.free[0]), 1)

    def best(self, unmixing: Matrix, most_steps: int = 15_000) -> tuple[Matrix, float]:
        """Return the best unmixing near this one, or where so many steps lead, and its value."""
        start = self.start(unmixing)
        found = minimize(
            self.around(start),
            np.zeros(self.n_parameters),
            jac=True,
            method="L-BFGS-B",
            options={"ftol": _ENOUGH, "maxiter": most_steps},
        )
        matrix = self._moved(start, found.x)[0].unmixing
        scaled = with_signs if self.orthogonal else with_unit_columns
        return scaled(matrix, self.domains), float(found.fun)

    @property
    def n_parameters(self) -> int:
        """Length of a step."""
        n = self.domains.n_latents
        return len(self.free[0]) + 2 * n + len(self.lower[0])

    def around(self, start: State) -> Callable[[Matrix], tuple[float, Matrix]]:
        """Return the map from steps away from a state to the value and its derivatives there."""

        def at(step: Matrix) -> tuple[float, Matrix]:
            state, back = self._moved(start, step)
            value, gradient = self(state)
            return value, back(gradient)

        return at

    def start(self, unmixing: Matrix) -> State:
        """Return the shared moments of the domains in which latents are still."""
        domains, W = self.domains, unmixing
        noise = domains.noise_variance * np.eye(len(W))
        weight = self.still * domains.sizes[:, None]
        means = domains.means @ W.T
        mean, shift = self._base_and_shift(means, weight)
        spreads = W @ (domains.covariances - noise) @ W.T
        among = _among(self.still) * domains.sizes[:, None, None]
        shared = (among * spreads).sum(axis=0) / np.maximum(among.sum(axis=0), 1)
        unseen = np.diag(np.where(weight.any(axis=0), 0.0, 1.0))
        root = np.linalg.cholesky(_positive(shared + unseen))
        return State(W, mean, root, shift)

    def __call__(self, state: State) -> tuple[float, State]:
        """Return the value, and its derivatives by all parts of the state."""
        domains, W, still, cut, j = self.domains, state.unmixing, self.still, self.cut, self.target
        sizes, variance = domains.sizes, domains.noise_variance
        half = W @ domains.covariances
        spreads = half @ W.T
        centre = state.mean + self.doses * state.shift
        apart = np.where(still, domains.means @ W.T - centre, 0.0)
        noise = variance * (W @ W.T)
        inverse, log_volume = _inverse_among((state.root @ state.root.T + noise)[None], still)
        scatter = spreads + apart[:, :, None] * apart[:, None, :]
        scaled = _times(inverse, apart)
        empirical, empirical_log_volume = _inverse_among(spreads, self.judged)
        value = sizes @ (log_volume + (inverse * scatter).sum(axis=(1, 2)))
        value -= sizes @ (still.sum(axis=1) + empirical_log_volume)
        of_spreads = sizes[:, None, None] * (inverse - empirical)
        of_shared = sizes[:, None, None] * (inverse - inverse @ scatter @ inverse)

        # A cut target is regressed on what its measurement noise shares with others'.
        place = np.arange(len(cut))
        across = np.where(still[cut], noise[j], 0.0)
        lines = -_times(inverse[cut], across)
        lines[place, j] = 1.0
        with_line = _times(spreads[cut], lines)
        left = (lines * with_line).sum(axis=1)
        value += sizes[cut] @ np.log(left)
        weight = sizes[cut] / left
        bent = -2 * weight[:, None] * _times(inverse[cut], with_line)
        np.add.at(of_spreads, cut, weight[:, None, None] * lines[:, :, None] * lines[:, None, :])
        on_still = np.where(still[cut], lines, 0.0)
        np.add.at(of_shared, cut, bent[:, :, None] * on_still[:, None, :])

        total = of_shared.sum(axis=0)
        total = (total + total.T) / 2
        of_noise = total.copy()
        np.add.at(of_noise, j, bent)
        of_W = 2 * (sizes[:, None] * scaled).T @ domains.means
        of_W += 2 * (of_spreads @ half).sum(axis=0)
        of_W += variance * (of_noise + of_noise.T) @ W
        of_mean = -2 * sizes @ scaled
        of_shift = -2 * sizes @ (scaled * self.doses)
        return float(value), State(of_W, of_mean, 2 * total @ state.root, of_shift)

    def _levels(self, doses: Matrix) -> Matrix:
        """Return what the means of a latent may depend on: a constant, and its doses."""
        constant = np.full(len(doses), float(not self.zero_base))
        return np.stack([constant, doses], axis=1)

    def _base_and_shift(self, means: Matrix, weight: Matrix) -> tuple[Matrix, Matrix]:
        """Return the mean of each latent at dose zero, and what a dose of one adds to it."""
        found = np.zeros((2, means.shape[1]))
        for j, (mean, each) in enumerate(zip(means.T, np.sqrt(weight).T, strict=True)):
            levels = self._levels(self.doses[:, j])
            found[:, j] = np.linalg.lstsq(levels * each[:, None], mean * each, rcond=None)[0]
        return found[0], found[1]

    def _moved(self, start: State, step: Matrix) -> tuple[State, Callable[[State], Matrix]]:
        """Return the state after a step, and how derivatives there become those by the step.

        Steps are relative to the start, so that all their entries are of one size.
        """
        n = len(start.mean)
        turns, in_mean, in_shift, in_root = np.split(step, np.cumsum([len(self.free[0]), n, n]))
        change, root = np.zeros((n, n)), np.eye(n)
        change[self.free] = turns
        root[self.lower] += in_root
        size = np.sqrt((start.root**2).sum(axis=1))
        scale = size * (not self.zero_base)
        reach = size * self.doses.any(axis=0)
        if self.orthogonal:  # Cayley's map
            change -= change.T
            inverse = np.linalg.inv(np.eye(n) - change / 2)
            turn = inverse @ (np.eye(n) + change / 2)
        else:
            inverse, turn = np.eye(n), np.eye(n) + change
        state = State(
            turn @ start.unmixing,
            start.mean + scale * in_mean,
            start.root @ root,
            start.shift + reach * in_shift,
        )

        def back(slope: State) -> Matrix:
            of_turn = slope.unmixing @ start.unmixing.T
            if self.orthogonal:
                of_turn = inverse.T @ of_turn @ (np.eye(n) + turn).T / 2
                of_turn = of_turn - of_turn.T
            of_root = start.root.T @ slope.root
            levels = [scale * slope.mean, reach * slope.shift]
            return np.concatenate([of_turn[self.free], *levels, of_root[self.lower]])

        return state, back


def _among(chosen: BoolMatrix) -> BoolMatrix:
    """Return, for each row of a mask, which entries of a matrix lie among the chosen."""
    return chosen[:, :, None] & chosen[:, None, :]


def _inverse_among(matrices: Matrix, chosen: BoolMatrix) -> tuple[Matrix, Matrix]:
    """Return inverses of the blocks of the chosen, zero elsewhere, and log-determinants."""
    among = _among(chosen)
    filled = np.where(among, matrices, 0.0) + np.eye(matrices.shape[1]) * ~chosen[:, :, None]
    return np.where(among, np.linalg.inv(filled), 0.0), np.linalg.slogdet(filled)[1]


def _times(matrices: Matrix, vectors: Matrix) -> Matrix:
    """Return the product of each matrix with its vector."""
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _positive(covariance: Matrix) -> Matrix:
    """Return a covariance without directions of hardly any or a negative variance."""
    sd = np.sqrt(np.maximum(np.abs(np.diag(covariance)), 1e-300))
    values, vectors = np.linalg.eigh(covariance / sd[:, None] / sd)
    values = np.maximum(values, _SMALLEST_SHARE)
    return ((vectors * values) @ vectors.T) * sd[:, None] * sd
