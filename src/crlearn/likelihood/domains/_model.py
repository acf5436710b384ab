"""The unmixing of domains that is most likely, if moments are counted as Gaussian.

What `Invariance` asks for, condition by condition, is a model of the domains' covariances: latents
that a domain does not move have one mean and covariance in all such domains; a target that is cut
off its parents has a variance of its own and is uncorrelated with what it does not cause; what else
moves has any regression on these. Measurement noise is added. Its likelihood weighs all conditions
with their correlations, and covariances of latents stay positive where columns are nearly alike
and the noise is larger than what tells latents apart. Conditions are the same, so that it needs no
Gaussian latents; it is only sharper.

All covariances are products of roots, so that every parameter changes a covariance by p t' + t p'
with two vectors: gradient and Fisher information are products of small matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.core._newton import Expansion, descend
from crlearn.likelihood.domains._start import Domains, with_signs, with_unit_columns

Matrix = NDArray[np.floating]
Indices = NDArray[np.intp]

_MOST_STEPS = 100
_ENOUGH = 1e-4  # nats that a step must still gain
_SMALLEST_SHARE = 0.05  # of a variance, where a start would be negative


@dataclass(frozen=True, eq=False)
class Part:
    """The latents of one domain.

    Attributes
    ----------
    still
        Those with the shared mean and covariance.
    cut
        One that is independent of them, or none.
    rest
        Those with a regression of their own on all these.
    """

    still: Indices
    cut: Indices
    rest: Indices

    @property
    def causes(self) -> Indices:
        """What the rest is regressed on."""
        return np.concatenate([self.still, self.cut])

    @property
    def n_parameters(self) -> int:
        """Number of the domain's own parameters."""
        n_rest = len(self.rest)
        lines = n_rest * (1 + len(self.causes))
        return 2 * len(self.cut) + lines + n_rest * (n_rest + 1) // 2


@dataclass(frozen=True, eq=False)
class Own:
    """Parameters of one domain: mean and root of the cut latent, regression of the rest."""

    mean: Matrix
    root: Matrix
    intercept: Matrix
    slopes: Matrix
    residual_root: Matrix


@dataclass(frozen=True, eq=False)
class State:
    """All parameters: the mixing, the shared mean and lower root, and what each domain has."""

    mixing: Matrix
    mean: Matrix
    root: Matrix
    own: tuple[Own, ...]


class DomainLikelihood:
    """Structured covariances of domains, fitted by Fisher's scoring from an unmixing.

    Parameters
    ----------
    domains
        Moments and what is known about them; one at least is observational.
    orthogonal
        Whether the columns of the mixing stay orthonormal.
    """

    def __init__(self, domains: Domains, *, orthogonal: bool) -> None:
        if not len(domains.observational):
            raise ValueError("The likelihood needs an observational domain.")
        self.domains, self.orthogonal = domains, orthogonal
        self.parts = tuple(self._part(e) for e in range(len(domains.sizes)))
        n = domains.n_latents
        self.lower = np.tril_indices(n)
        self.noise = domains.noise_variance * np.eye(n)
        self.basis = _mixing_basis(n, orthogonal)
        self.n_shared = self.basis.shape[1] + n + len(self.lower[0])

    def _part(self, domain: int) -> Part:
        moved, targets = self.domains.moved[domain], np.flatnonzero(self.domains.targets[domain])
        cut = targets if self.domains.hard and len(targets) == 1 else targets[:0]
        rest = np.flatnonzero(moved)
        return Part(np.flatnonzero(~moved), cut, rest[~np.isin(rest, cut)])

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return self.n_shared + sum(part.n_parameters for part in self.parts)

    def best(self, unmixing: Matrix) -> tuple[Matrix, float]:
        """Return the best unmixing near this one, and its negative log-likelihood."""
        state, value = descend(
            self.start(unmixing),
            self.expand,
            self.value,
            self.moved,
            max_steps=_MOST_STEPS,
            tolerance=_ENOUGH,
        )
        scaled = with_signs if self.orthogonal else with_unit_columns
        return scaled(np.linalg.inv(state.mixing), self.domains), value

    def start(self, unmixing: Matrix) -> State:
        """Return the parameters that go with an unmixing."""
        domains = self.domains
        means = domains.means @ unmixing.T
        spreads = unmixing @ (domains.covariances - self.noise) @ unmixing.T
        base, covariance = domains.base
        assert covariance is not None  # there is an observational domain
        shared = np.linalg.cholesky(_positive(unmixing @ (covariance - self.noise) @ unmixing.T))
        own = tuple(
            _own(part, means[e], _positive(spreads[e])) for e, part in enumerate(self.parts)
        )
        return State(np.linalg.inv(unmixing), unmixing @ base, shared, own)

    def latents(self, state: State, domain: int) -> tuple[Matrix, Matrix]:
        """Return the mean of a domain's latents and a root of their covariance."""
        part, own, n = self.parts[domain], state.own[domain], self.domains.n_latents
        mean = np.zeros(n)
        root = np.zeros((n, n + len(part.cut) + len(part.rest)))
        mean[part.still], root[part.still, :n] = state.mean[part.still], state.root[part.still]
        mean[part.cut] = own.mean
        root[part.cut, n : n + len(part.cut)] = np.diag(own.root)
        mean[part.rest] = own.intercept + own.slopes @ mean[part.causes]
        root[part.rest] = own.slopes @ root[part.causes]
        root[part.rest, n + len(part.cut) :] = own.residual_root
        return mean, root

    def value(self, state: State) -> float:
        """Return the negative log-likelihood, but for a constant."""
        total = 0.0
        for e, size in enumerate(self.domains.sizes):
            mean, root = self.latents(state, e)
            across = state.mixing @ root
            covariance = across @ across.T + self.noise
            sign, log_volume = np.linalg.slogdet(covariance)
            if sign <= 0 or not np.isfinite(log_volume):
                return np.inf
            apart = self.domains.means[e] - state.mixing @ mean
            moment = self.domains.covariances[e] + np.outer(apart, apart)
            total += size / 2 * (log_volume + np.trace(np.linalg.solve(covariance, moment)))
        return total

    def expand(self, state: State) -> Expansion:
        """Expand to second order, with the Fisher information as curvature."""
        gradient = np.zeros(self.n_parameters)
        information = np.zeros((self.n_parameters, self.n_parameters))
        first = self.n_shared
        for e, size in enumerate(self.domains.sizes):
            mean, root = self.latents(state, e)
            across = state.mixing @ root
            white = np.linalg.inv(np.linalg.cholesky(across @ across.T + self.noise))
            apart = white @ (self.domains.means[e] - state.mixing @ mean)
            moment = white @ self.domains.covariances[e] @ white.T + np.outer(apart, apart)
            left, right, shift = (part @ white.T for part in self._changes(state, e, mean, root))
            slope = size * np.einsum("ki,ij,kj->k", left, np.eye(len(white)) - moment, right)
            slope -= size * shift @ apart
            mixed = left @ right.T
            curve = (left @ left.T) * (right @ right.T) + mixed * mixed.T + shift @ shift.T
            # From changes of each entry of the mixing to those that are allowed.
            basis, entries = self.basis, len(self.basis)
            slope = np.concatenate([basis.T @ slope[:entries], slope[entries:]])
            curve = np.vstack([basis.T @ curve[:entries], curve[entries:]])
            curve = np.hstack([curve[:, :entries] @ basis, curve[:, entries:]])
            last = first + self.parts[e].n_parameters
            place = np.concatenate([np.arange(self.n_shared), np.arange(first, last)])
            gradient[place] += slope
            information[np.ix_(place, place)] += size * curve
            first = last
        return Expansion(self.value(state), gradient, information)

    def _changes(
        self, state: State, domain: int, mean: Matrix, root: Matrix
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Return how parameters change a domain: vectors p, t of its covariance, and its mean."""
        part, own, n = self.parts[domain], state.own[domain], self.domains.n_latents
        mixing, across = state.mixing, state.mixing @ root
        nothing = np.zeros(n)
        # What follows from one more unit of each latent: itself, and what is regressed on it.
        reach = np.zeros((n, n))
        reach[part.causes, part.causes] = 1.0
        reach[np.ix_(part.causes, part.rest)] = own.slopes.T
        effect = reach @ mixing.T
        followed = across @ root.T
        left = [mixing[:, a] for a in range(n) for _ in range(n)]
        right = [followed[:, b] for _ in range(n) for b in range(n)]
        shift = [mixing[:, a] * mean[b] for a in range(n) for b in range(n)]

        shared = np.isin(np.arange(n), part.still)[:, None] * effect
        left += [nothing] * n + [shared[a] for a in self.lower[0]]
        right += [nothing] * n + [across[:, b] for b in self.lower[1]]
        shift += [*shared] + [nothing for _ in self.lower[0]]

        for i, j in enumerate(part.cut):
            left += [nothing, effect[j]]
            right += [nothing, across[:, n + i]]
            shift += [effect[j], nothing]
        for r in part.rest:
            left += [nothing, *(mixing[:, r] for _ in part.causes)]
            right += [nothing, *(followed[:, c] for c in part.causes)]
            shift += [mixing[:, r], *(mixing[:, r] * mean[c] for c in part.causes)]
        for i, r in enumerate(part.rest):
            left += [mixing[:, r]] * (i + 1)
            right += [across[:, n + len(part.cut) + k] for k in range(i + 1)]
            shift += [nothing] * (i + 1)
        return np.array(left), np.array(right), np.array(shift)

    def moved(self, state: State, step: Matrix) -> State:
        """Return the parameters after a step."""
        n = self.domains.n_latents
        sizes = [self.basis.shape[1], n, len(self.lower[0])]
        change, in_mean, in_root, rest = np.split(step, np.cumsum(sizes))
        turn = (self.basis @ change).reshape(n, n)
        if self.orthogonal:
            turn = np.linalg.solve(np.eye(n) - turn / 2, np.eye(n) + turn / 2)
        else:
            turn = np.eye(n) + turn
        root = state.root.copy()
        root[self.lower] += in_root
        own = []
        for part, before in zip(self.parts, state.own, strict=True):
            mine, rest = np.split(rest, [part.n_parameters])
            own.append(_own_moved(part, before, mine))
        return State(state.mixing @ turn, state.mean + in_mean, root, tuple(own))


def _mixing_basis(n: int, orthogonal: bool) -> Matrix:
    """Return the changes of a mixing, in its own columns, that are allowed, one a column."""
    entries = np.eye(n * n).reshape(n * n, n, n)
    above, below = np.triu_indices(n, k=1)
    if orthogonal:
        basis = entries[above * n + below] - entries[below * n + above]
    else:  # all but scales, which are a convention
        basis = entries[~np.eye(n, dtype=bool).ravel()]
    return basis.reshape(len(basis), n * n).T


def _own(part: Part, mean: Matrix, covariance: Matrix) -> Own:
    causes, rest = part.causes, part.rest
    slopes = np.linalg.solve(covariance[np.ix_(causes, causes)], covariance[np.ix_(causes, rest)]).T
    residual = covariance[np.ix_(rest, rest)] - slopes @ covariance[np.ix_(causes, rest)]
    return Own(
        mean[part.cut],
        np.sqrt(np.diag(covariance)[part.cut]),
        mean[rest] - slopes @ mean[causes],
        slopes,
        np.linalg.cholesky(_positive(residual)) if len(rest) else residual,
    )


def _own_moved(part: Part, own: Own, step: Matrix) -> Own:
    n_cut, n_rest, n_causes = len(part.cut), len(part.rest), len(part.causes)
    cut, lines, roots = np.split(step, np.cumsum([2 * n_cut, n_rest * (1 + n_causes)]))
    lines = lines.reshape(n_rest, 1 + n_causes)
    residual_root = own.residual_root.copy()
    residual_root[np.tril_indices(n_rest)] += roots
    return replace(
        own,
        mean=own.mean + cut[0::2],
        root=own.root + cut[1::2],
        intercept=own.intercept + lines[:, 0],
        slopes=own.slopes + lines[:, 1:],
        residual_root=residual_root,
    )


def _positive(covariance: Matrix) -> Matrix:
    """Return a covariance without directions of hardly any or a negative variance."""
    sd = np.sqrt(np.maximum(np.abs(np.diag(covariance)), 1e-300))
    values, vectors = np.linalg.eigh(covariance / sd[:, None] / sd)
    values = np.maximum(values, _SMALLEST_SHARE)
    return ((vectors * values) @ vectors.T) * sd[:, None] * sd
