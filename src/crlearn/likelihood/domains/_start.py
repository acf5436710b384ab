"""Latents behind a linear mixing from the moments of domains with known graph and targets.

An intervention moves its targets and their descendants and nothing else, so that means and
covariances of all other latents are the same in any two domains; a latent that a hard intervention
cuts off its parents is uncorrelated with what it does not cause. Both hold exactly for any
mechanism, any noise of the latents and any isotropic measurement noise. Rows appear through the
mean and covariance of each domain only, so that nothing here depends on their number.

`rotation_by_shifts` and `rotation_by_spreads` are closed forms for orthogonal columns, and starts
for others; `DomainLikelihood` judges them, and is maximised from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from crlearn.graph import topological_order, transitive_closure

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_TINY = 1e-300
_NO_VARIANCE = 1e-9  # of the mean variance


@dataclass(frozen=True, eq=False)
class Domains:
    """Moments of each domain, and what is known about them.

    Attributes
    ----------
    means, covariances, sizes
        Of the rows in the coordinates of the mixing's span.
    targets
        ``targets[e, j]`` is True if domain e intervenes on latent j.
    graph
        ``graph[i, j]`` is True if latent i causes latent j.
    noise_variance
        Of the measurement, in each coordinate.
    hard
        Whether interventions cut latents off their parents.
    doses
        ``doses[e, j]`` times one unknown number for each latent is what domain e adds to latent j,
        beside which nothing changes; None: interventions are of another kind.
    rows, codes
        What the moments are of, and the domain of each row; None: not known.
    """

    means: Matrix
    covariances: NDArray[np.floating]
    sizes: NDArray[np.floating]
    targets: BoolMatrix
    graph: BoolMatrix
    noise_variance: float = 0.0
    hard: bool = True
    doses: Matrix | None = None
    rows: Matrix | None = None
    codes: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls,
        rows: Matrix,
        codes: NDArray[np.intp],
        targets: BoolMatrix,
        graph: BoolMatrix,
        *,
        noise_variance: float = 0.0,
        hard: bool = True,
        doses: Matrix | None = None,
    ) -> Domains:
        """Take the moments of rows, with the number of each row's domain."""
        parts = [rows[codes == e] for e in range(len(targets))]
        means = np.array([part.mean(axis=0) for part in parts])
        covariances = np.array(
            [(part - m).T @ (part - m) / len(part) for part, m in zip(parts, means, strict=True)]
        )
        # A latent that is set to one value, without noise, has no variance to divide by.
        covariances += (
            _NO_VARIANCE
            * np.einsum("eii->", covariances)
            / covariances.size
            * np.eye(rows.shape[1])
        )
        sizes = np.array([len(part) for part in parts], dtype=float)
        known = (targets, graph, noise_variance, hard, doses)
        return cls(means, covariances, sizes, *known, rows, codes)

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.means.shape[1]

    @cached_property
    def strengths(self) -> Matrix:
        """How much each domain raises its targets: their doses, or one."""
        return self.targets.astype(float) if self.doses is None else self.doses

    @cached_property
    def shifted(self) -> BoolMatrix:
        """True at [e, j] if all that domain e does to latent j is to add a dose to it."""
        if self.doses is None:
            return np.zeros_like(self.targets)
        causes = self.closure & ~np.eye(len(self.graph), dtype=bool)
        return self.targets & (self.targets.astype(int) @ causes.astype(int) == 0)

    @cached_property
    def alike(self) -> BoolMatrix:
        """True at [e, j] if latent j is in domain e as without interventions, but for its dose."""
        return ~self.moved | self.shifted

    @cached_property
    def shows_base(self) -> bool:
        """Whether means without interventions can be told: by a domain, or by different doses."""
        if len(self.observational) or self.doses is None:
            return len(self.observational) > 0
        pairs = zip(self.doses.T, self.alike.T, strict=True)
        return all(len(np.unique(doses[alike])) > 1 for doses, alike in pairs)

    def halves(self, rng: np.random.Generator) -> tuple[Domains, Domains]:
        """Return the moments of random halves of each domain's rows, with the sizes of the whole.

        They lie on either side of the moments, as far away as these are from the truth.
        """
        assert self.rows is not None
        assert self.codes is not None
        first = np.zeros(len(self.rows), dtype=bool)
        for e in range(len(self.targets)):
            inside = rng.permutation(np.flatnonzero(self.codes == e))
            first[inside[: len(inside) // 2]] = True
        parts = [
            Domains.of(self.rows[half], self.codes[half], self.targets, self.graph)
            for half in (first, ~first)
        ]
        one, other = (
            replace(self, means=part.means, covariances=part.covariances) for part in parts
        )
        return one, other

    @cached_property
    def closure(self) -> BoolMatrix:
        """True at [i, j] if latent j is latent i or one of its effects."""
        return transitive_closure(self.graph) | np.eye(len(self.graph), dtype=bool)

    @cached_property
    def moved(self) -> BoolMatrix:
        """True at [e, j] if domain e may change latent j."""
        return self.targets.astype(int) @ self.closure.astype(int) > 0

    @cached_property
    def observational(self) -> NDArray[np.intp]:
        """Domains without targets."""
        return np.flatnonzero(~self.targets.any(axis=1))

    @cached_property
    def base(self) -> tuple[Matrix, Matrix | None]:
        """Mean and covariance without interventions; zero and None if no domain shows them."""
        if not len(self.observational):
            return np.zeros(self.n_latents), None
        share = self.sizes[self.observational] / self.sizes[self.observational].sum()
        means = self.means[self.observational]
        mean = share @ means
        apart = means - mean
        within = np.einsum("e,eij->ij", share, self.covariances[self.observational])
        return mean, within + (apart.T * share) @ apart

    @cached_property
    def order(self) -> list[int]:
        """Latents, effects before causes."""
        return topological_order(self.graph)[::-1].tolist()


def rotation_by_shifts(domains: Domains) -> tuple[Matrix, float]:
    """Return the unmixing with orthonormal rows that the domains' means determine.

    Effects before causes: a domain's mean moves along the column of its target and those of the
    target's effects, and the latter are known already. An intervention raises its target. Also
    returns how far the smallest of these moves stands out from chance, in standard errors.
    """
    base, _ = domains.base
    rows = np.zeros((domains.n_latents, domains.n_latents))
    found: list[int] = []
    weakest = np.inf
    for j in domains.order:
        chosen = _domains_of(domains, j, found)
        weight = domains.sizes[chosen] * domains.strengths[chosen, j]
        shift = weight @ (domains.means[chosen] - base) if len(chosen) else np.zeros(len(rows))
        squares = weight * domains.strengths[chosen, j]
        spread = np.einsum("e,eii->", squares, domains.covariances[chosen])
        shift = shift - rows[found].T @ (rows[found] @ shift)
        weakest = min(weakest, float(np.linalg.norm(shift) / np.sqrt(max(spread, _TINY))))
        rows[j] = _direction(shift, rows[found])
        found.append(j)
    return rows, weakest


def rotation_by_spreads(domains: Domains) -> Matrix:
    """Return the unmixing with orthonormal rows that covariances determine.

    As `rotation_by_shifts`, for interventions that change variances: beside known columns, a target
    that is cut off its parents is uncorrelated with all others, so that its column is a principal
    axis, and it is the one along which the domain differs from others.
    """
    base, covariance = domains.base
    if covariance is None:
        others = domains.covariances
        covariance = np.einsum("e,eij->ij", domains.sizes / domains.sizes.sum(), others)
    rows = np.zeros((domains.n_latents, domains.n_latents))
    found: list[int] = []
    for j in domains.order:
        rest = null_space(rows[found]) if found else np.eye(len(rows))
        best, axis = -np.inf, rest[:, 0]
        for e in _domains_of(domains, j, found):
            axes = rest @ np.linalg.eigh(rest.T @ domains.covariances[e] @ rest)[1]
            before = np.maximum(np.einsum("ij,ik,kj->j", axes, covariance, axes), _TINY)
            after = np.maximum(np.einsum("ij,ik,kj->j", axes, domains.covariances[e], axes), _TINY)
            shift = (domains.means[e] - base) @ axes * np.sign(domains.strengths[e, j])
            change = domains.sizes[e] * (np.log(after / before) ** 2 / 4 + shift**2 / before)
            if change.max() > best:
                place = int(np.argmax(change))
                best, axis = change[place], axes[:, place] * (-1.0 if shift[place] < 0 else 1.0)
        rows[j] = _direction(axis, rows[found])
        found.append(j)
    return rows


def with_unit_columns(unmixing: Matrix, domains: Domains) -> Matrix:
    """Scale the rows so that the mixing has unit columns, and interventions raise their target."""
    scale = np.linalg.norm(np.linalg.inv(unmixing), axis=0)
    return with_signs(unmixing * scale[:, None], domains)


def with_signs(unmixing: Matrix, domains: Domains) -> Matrix:
    """Turn rows around so that interventions raise their target on average."""
    return unmixing * np.where(rises(unmixing, domains)[0] < 0, -1.0, 1.0)[:, None]


def rises(unmixing: Matrix, domains: Domains) -> tuple[Matrix, Matrix]:
    """Return how much interventions, or doses, raise each latent, and the variance of that."""
    base, covariance = domains.base
    sizes = domains.sizes[:, None]
    variances = np.einsum("ji,eik,jk->ej", unmixing, domains.covariances, unmixing)
    if domains.doses is not None:
        weight = sizes * domains.alike
        middle = (weight * domains.doses).sum(axis=0) / np.maximum(weight.sum(axis=0), _TINY)
        weight = weight * (domains.doses - middle)
        return (weight * (domains.means @ unmixing.T)).sum(axis=0), (
            weight**2 / sizes * variances
        ).sum(axis=0)
    weight = sizes * domains.targets
    noise = (weight * variances).sum(axis=0)
    if covariance is not None:
        at_rest = np.einsum("ji,ik,jk->j", unmixing, covariance, unmixing)
        noise += weight.sum(axis=0) ** 2 * at_rest / domains.sizes[domains.observational].sum()
    return (weight * ((domains.means - base) @ unmixing.T)).sum(axis=0), noise


def _domains_of(domains: Domains, latent: int, found: list[int]) -> NDArray[np.intp]:
    """Return the domains that move this latent and, beside it, only latents in `found`."""
    known = np.zeros(domains.n_latents, dtype=bool)
    known[[*found, latent]] = True
    return np.flatnonzero(domains.targets[:, latent] & ~domains.moved[:, ~known].any(axis=1))


def _direction(vector: Matrix, found: Matrix) -> Matrix:
    """Return the unit vector orthogonal to `found` along `vector`, or any if that is zero."""
    for candidate in (vector, *np.eye(len(vector))):
        rest = candidate - found.T @ (found @ candidate)
        rest = rest - found.T @ (found @ rest)
        size = np.linalg.norm(rest)
        if size > 1e-8 * max(np.linalg.norm(candidate), _TINY):
            return rest / size
    raise ValueError("There are more latents than dimensions.")
