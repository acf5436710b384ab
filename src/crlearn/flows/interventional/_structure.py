"""Which environments intervene on which latent, and in which order latents cause each other.

Read from latents as they are at some point of the training: the latents are fixed here, so that all
regressions of one latent on some others come from the same moments of features, and the best of all
orders is a sum of such regressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from crlearn.graph import best_order

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]
Rows = NDArray[np.floating]  # rows x environments x latents

_RIDGE = 1e-3
_SOFTENING = 0.01
_CHANCE = 4.0  # standard errors of a variance that are no change of it


@dataclass(frozen=True)
class Assignment:
    """What is known of the targets.

    Attributes
    ----------
    reference
        Number of the environment without interventions; None: each may have some.
    known
        For each environment its targets, or None where they are to be found.
    graph
        For each latent its causes, if they are known; then all targets are.
    """

    reference: int | None
    known: tuple[tuple[int, ...] | None, ...]
    graph: tuple[tuple[int, ...], ...] | None = None

    @property
    def unknown(self) -> NDArray[np.intp]:
        """Numbers of the environments whose target is to be found."""
        return np.array([e for e, targets in enumerate(self.known) if targets is None], dtype=int)

    def matrix(self, n_latents: int) -> BoolMatrix:
        """Return the known targets, ``(environments, latents)``; False where they are not known."""
        targets = np.zeros((len(self.known), n_latents), dtype=bool)
        for e, latents in enumerate(self.known):
            targets[e, list(latents or ())] = True
        return targets


@dataclass(frozen=True, eq=False)
class Structure:
    """Targets, and who comes before whom."""

    own: BoolMatrix
    before: BoolMatrix

    @property
    def is_free(self) -> bool:
        """Whether nothing is known yet: all latents are targets everywhere."""
        return bool(self.own.all())


class NodeRegressions:
    """Regressions of latents on sets of others, from the moments of one set of features.

    Features are functions of one latent (itself, bent, squashed) and of pairs (their sum and their
    difference, bent); a set of predecessors has those that it supports.
    """

    def __init__(self, z: Rows, shares: NDArray[np.floating], *, linear: bool) -> None:
        self.z = (z - z.mean((0, 1))) / z.std((0, 1))
        self.shares = shares
        n = z.shape[2]
        features, self.supports = _features(self.z, linear=linear)
        everything = np.concatenate([np.ones((*z.shape[:2], 1)), features, self.z], axis=2)
        by_environment = np.ascontiguousarray(everything.swapaxes(0, 1))
        self.moments = by_environment.swapaxes(1, 2) @ by_environment / len(z)
        self.n_features, self.n_latents = features.shape[2], n

    def residual_variance(self, latent: int, others: int, own: BoolMatrix) -> float:
        """Return that of a latent given a set of others (as bits), where it is left alone."""
        return self._regression(self._pooled(latent, own), latent, others)[1]

    def costs(self, own: BoolMatrix) -> Matrix:
        """Return what each latent costs after each set of others (`crlearn.graph.best_order`)."""
        n = self.n_latents
        costs = np.zeros((2**n, n))
        left_alone = self.shares @ ~own
        for latent in np.flatnonzero(left_alone).tolist():
            moments = self._pooled(latent, own)
            for others in range(2**n):
                if not others >> latent & 1:
                    variance = self._regression(moments, latent, others)[1]
                    costs[others, latent] = 0.5 * left_alone[latent] * np.log(variance)
        return costs

    def gains(self, before: BoolMatrix, own: BoolMatrix) -> Matrix:
        """Return how much better a mean and a variance of its own explain each latent.

        In nats a row, for each environment; mechanisms are fitted where latents are left alone.
        """
        gains = np.zeros(own.shape)
        for latent, coefficients, variance in self._mechanisms(before, own):
            column = self._column(latent)
            for e, moments in enumerate(self.moments):
                ratio = (coefficients @ moments @ coefficients) / variance
                spread = moments[column, column] - moments[0, column] ** 2
                gains[e, latent] = 0.5 * (ratio - 1 + np.log(variance / max(spread, 1e-12)))
        return gains

    def changes(self, before: BoolMatrix, own: BoolMatrix) -> Matrix:
        """Return how far what a mechanism leaves unexplained changes in each environment.

        Change of its variance, and square of its mean, beyond chance; as a share of the variance of
        the latent in the first environment. 0 where an environment intervenes on the latent.
        """
        changes = np.zeros(own.shape)
        of_the_latent = self._variances()
        for latent, coefficients, variance in self._mechanisms(before, own):
            for e, moments in enumerate(self.moments):
                mean = moments[0] @ coefficients
                change = abs(coefficients @ moments @ coefficients - mean**2 - variance)
                beyond = max(change - _CHANCE * variance * np.sqrt(2 / len(self.z)), 0.0)
                changes[e, latent] = (beyond + mean**2) / of_the_latent[latent]
        return np.where(own, 0.0, changes)

    def dependence(self, before: BoolMatrix, own: BoolMatrix) -> Matrix:
        """Return how much of each latent predecessors explain where an intervention cuts it off.

        Beyond chance, as a share of the variance of the latent in the first environment: what is
        left of other latents in it, whatever the intervention does to its size. 0 where an
        environment leaves the latent alone.
        """
        found = np.zeros(own.shape)
        of_the_latent = self._variances()
        for e, latent in np.argwhere(own):
            alone = np.ones_like(own)
            alone[e, latent] = False
            others = _bits(before[:, latent])
            n_used = int(((self.supports & ~others) == 0).sum())
            left = self.residual_variance(latent, others, alone)
            explained = self.residual_variance(latent, 0, alone) - left
            by_chance = left * n_used / len(self.z)
            found[e, latent] = max(explained - by_chance, 0.0) / of_the_latent[latent]
        return found

    def _mechanisms(
        self, before: BoolMatrix, own: BoolMatrix
    ) -> Iterator[tuple[int, Matrix, float]]:
        """Yield each latent that some environment leaves alone, and its regression there."""
        for latent in np.flatnonzero(~own.all(axis=0)).tolist():
            pooled = self._pooled(latent, own)
            yield latent, *self._regression(pooled, latent, _bits(before[:, latent]))

    def _variances(self) -> Matrix:
        """Return the variances of the latents in the first environment."""
        columns = self._column(0) + np.arange(self.n_latents)
        first = self.moments[0]
        return first.diagonal()[columns] - first[0, columns] ** 2

    def parents(self, before: BoolMatrix, own: BoolMatrix, least: float) -> BoolMatrix:
        """Return the graph: predecessors that explain at least so many nats a row are parents.

        The least of them is left out, one at a time, as long as that costs less.
        """
        graph = before.copy()
        for latent in np.flatnonzero(~own.all(axis=0)).tolist():
            while graph[:, latent].any():
                effects = self.effects(graph, latent, own)
                weakest = min(effects, key=effects.__getitem__)
                if effects[weakest] >= least:
                    break
                graph[weakest, latent] = False
        return graph

    def effects(self, graph: BoolMatrix, latent: int, own: BoolMatrix) -> dict[int, float]:
        """Return what each parent of a latent explains that the others do not, in nats a row."""
        all_of_them = _bits(graph[:, latent])
        least = self.residual_variance(latent, all_of_them, own)
        return {
            int(i): 0.5
            * float(np.log(self.residual_variance(latent, all_of_them & ~(1 << i), own) / least))
            for i in np.flatnonzero(graph[:, latent]).tolist()
        }

    def _column(self, latent: int) -> int:
        return 1 + self.n_features + latent

    def _pooled(self, latent: int, own: BoolMatrix) -> Matrix:
        """Return the moments of the environments that leave a latent alone."""
        shares = np.where(own[:, latent], 0.0, self.shares)
        return np.tensordot(shares / shares.sum(), self.moments, axes=1)

    def _regression(self, moments: Matrix, latent: int, others: int) -> tuple[Matrix, float]:
        """Return the residual as a combination of all columns, and its variance."""
        supported = np.flatnonzero((self.supports & ~others) == 0)
        used = np.concatenate([[0], 1 + supported])
        response = moments[used, self._column(latent)]
        gram = moments[np.ix_(used, used)].copy()
        gram[np.diag_indices(len(used))] += _RIDGE * np.r_[0.0, gram.diagonal()[1:]]
        solution = np.linalg.solve(gram, response)
        residual = np.zeros(len(moments))
        residual[used] = -solution
        residual[self._column(latent)] = 1.0
        return residual, max(float(residual @ moments @ residual), 1e-12)


def _bits(members: NDArray[np.bool_]) -> int:
    return int(members @ (1 << np.arange(len(members))))


def _features(z: Rows, *, linear: bool) -> tuple[Rows, NDArray[np.intp]]:
    """Return features and, as bits, the latents that each is a function of."""
    n = z.shape[2]
    bits = 1 << np.arange(n)
    columns, supports = [z], [bits]
    if not linear:
        columns += [np.sqrt(z**2 + _SOFTENING), np.tanh(2 * z)]
        supports += [bits, bits]
        for i, j in combinations(range(n), 2):
            sums = np.stack([z[..., i] + z[..., j], z[..., i] - z[..., j]], axis=-1) / np.sqrt(2)
            columns.append(np.sqrt(sums**2 + _SOFTENING))
            supports.append(np.full(2, bits[i] | bits[j]))
    return np.concatenate(columns, axis=2), np.concatenate(supports)


def revised(
    z: Rows, before: Structure, shares: Matrix, assignment: Assignment, *, linear: bool
) -> Structure:
    """Return targets and order that suit the latents as they are."""
    if before.is_free:
        gains = marginal_gains(z, assignment.reference)
        if assignment.graph is not None:
            return named(gains, assignment)
        own = assigned(gains, assignment, None)
        regressions = NodeRegressions(z, shares, linear=linear)
    elif assignment.graph is not None:
        return before
    else:
        regressions = NodeRegressions(z, shares, linear=linear)
        own = assigned(regressions.gains(before.before, before.own), assignment, before.own)
    return Structure(own, earlier(best_order(regressions.costs(own))))


def named(gains: Matrix, assignment: Assignment) -> Structure:
    """Match latents to the names that known targets and a known graph have for them."""
    n = gains.shape[1]
    known = assignment.matrix(n)
    name = _name_of_latent(known, gains)
    assert assignment.graph is not None
    graph = np.zeros((n, n), dtype=bool)
    for j, causes in enumerate(assignment.graph):
        graph[list(causes), j] = True
    return Structure(known[:, name], graph[np.ix_(name, name)])


def _name_of_latent(known: BoolMatrix, gains: Matrix) -> NDArray[np.intp]:
    _, latent_of = linear_sum_assignment(-(known.T.astype(float) @ gains))
    return np.argsort(latent_of)


def earlier(order: NDArray[np.intp]) -> BoolMatrix:
    """Return who comes before whom in an order."""
    position = np.argsort(order)
    return position[:, None] < position[None, :]


def marginal_gains(z: Rows, reference: int | None) -> Matrix:
    """Return how much better a mean and a variance of its own explain each latent.

    In nats a row, for each environment, against those of the reference (of all, if there is none).
    """
    means, variances = z.mean(axis=0), z.var(axis=0)
    if reference is None:
        mean, variance = z.mean((0, 1)), z.var((0, 1))
    else:
        mean, variance = means[reference], variances[reference]
    ratio = (variances + (means - mean) ** 2) / variance
    return 0.5 * (ratio - 1 - np.log(variances / variance))


def assigned(gains: Matrix, assignment: Assignment, current: BoolMatrix | None) -> BoolMatrix:
    """Return the targets of greatest gain.

    Known targets have names that the latents have not: at first the latents are matched to them.
    Environments of which nothing is known intervene on one latent each, and are spread evenly over
    those that no known one intervenes on as often.
    """
    n = gains.shape[1]
    known = assignment.matrix(n)
    if current is None:
        targets = known[:, _name_of_latent(known, gains)]
    else:
        is_known = ~np.isin(np.arange(len(known)), assignment.unknown)
        targets = current & is_known[:, None]
    unknown = assignment.unknown
    if len(unknown):
        most = -(-(len(unknown) + int(targets.sum())) // n)
        seats = np.concatenate([np.repeat(j, max(most - targets[:, j].sum(), 0)) for j in range(n)])
        chosen, seat = linear_sum_assignment(-gains[np.ix_(unknown, seats)])
        targets[unknown[chosen], seats[seat]] = True
    return targets
