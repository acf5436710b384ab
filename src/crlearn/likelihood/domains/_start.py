"""Latents behind a linear mixing from the moments of domains with known graph and targets.

An intervention moves its targets and their descendants and nothing else, so that means and
covariances of all other latents are the same in any two domains; a latent that a hard intervention
cuts off its parents is uncorrelated with what it does not cause. Both hold exactly for any
mechanism, any noise of the latents and any isotropic measurement noise. Rows appear through the
mean and covariance of each domain only, so that nothing here depends on their number.

`rotation_by_shifts` and `rotation_by_spreads` are closed forms for orthogonal columns,
`unmixing_by_steps` for others; `Invariance` is the criterion that all of them are judged by, and
that is minimised from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import minimize

from crlearn.graph import topological_order, transitive_closure

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

_TINY = 1e-300
_NO_VARIANCE = 1e-9


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
    """

    means: Matrix
    covariances: NDArray[np.floating]
    sizes: NDArray[np.floating]
    targets: BoolMatrix
    graph: BoolMatrix
    noise_variance: float = 0.0
    hard: bool = True

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
        return cls(means, covariances, sizes, targets, graph, noise_variance, hard)

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.means.shape[1]

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
        weight = domains.sizes[chosen]
        shift = weight @ (domains.means[chosen] - base) if len(chosen) else np.zeros(len(rows))
        spread = np.einsum("e,eii->", weight, domains.covariances[chosen])
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
            shift = (domains.means[e] - base) @ axes
            change = domains.sizes[e] * (np.log(after / before) ** 2 / 4 + shift**2 / before)
            if change.max() > best:
                place = int(np.argmax(change))
                best, axis = change[place], axes[:, place] * (-1.0 if shift[place] < 0 else 1.0)
        rows[j] = _direction(axis, rows[found])
        found.append(j)
    return rows


def unmixing_by_steps(domains: Domains) -> Matrix:
    """Return an unmixing for columns that need not be orthogonal; needs an observational domain.

    Causes before effects: the row of latent k is blind to what domains change that leave k alone,
    and, in the domains that cut k off its parents, uncorrelated with k's causes.
    """
    base, covariance = domains.base
    n = domains.n_latents
    if covariance is None:
        raise ValueError("Columns that are not orthogonal need an observational domain.")
    white = np.linalg.inv(np.linalg.cholesky(covariance))
    rows = np.zeros((n, n))
    for k in domains.order[::-1]:
        blind = np.zeros((n, n))
        for e in np.flatnonzero(~domains.moved[:, k] & domains.targets.any(axis=1)):
            shift = white @ (domains.means[e] - base)
            change = white @ domains.covariances[e] @ white.T - np.eye(n)
            blind += domains.sizes[e] * (np.outer(shift, shift) + change @ change / 2)
        causes = np.flatnonzero(domains.closure[:, k])
        for e in np.flatnonzero(domains.targets[:, k] & (domains.targets.sum(axis=1) == 1)):
            latent = domains.covariances[e] - domains.noise_variance * np.eye(n)
            for cause in causes[causes != k]:
                across = white @ (latent @ rows[cause])
                blind += domains.sizes[e] * np.outer(across, across) / max(across @ across, _TINY)
        rows[k] = np.linalg.eigh(blind)[1][:, 0] @ white
    return with_unit_columns(rows, domains)


def with_unit_columns(unmixing: Matrix, domains: Domains) -> Matrix:
    """Scale the rows so that the mixing has unit columns, and interventions raise their target."""
    scale = np.linalg.norm(np.linalg.inv(unmixing), axis=0)
    return with_signs(unmixing * scale[:, None], domains)


def with_signs(unmixing: Matrix, domains: Domains) -> Matrix:
    """Turn rows around so that interventions raise their target on average."""
    base, _ = domains.base
    rise = (unmixing @ (domains.means - base).T).T
    weight = domains.targets * domains.sizes[:, None]
    return unmixing * np.where((rise * weight).sum(axis=0) < 0, -1.0, 1.0)[:, None]


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


class Invariance:
    """How far an unmixing is from what the graph and the targets say of the domains' moments.

    A sum of squared distances, each in the metric of its covariance under Gaussian moments: between
    means and covariances of any two domains, for latents that neither moves, and of the regression
    of a target on what it does not cause from zero. About chi-square with `freedom` degrees of
    freedom at the truth. Does not depend on the scale of rows.

    Parameters
    ----------
    domains
        Moments and what is known about them.
    zero_base
        Whether latents that a domain does not move have mean zero.
    """

    def __init__(self, domains: Domains, *, zero_base: bool = False) -> None:
        self.domains = domains
        self.zero_base = zero_base
        n_domains = len(domains.sizes)
        self.still = ~domains.moved
        first, second = np.triu_indices(n_domains, k=1)
        kept = (self.still[first] & self.still[second]).any(axis=1)
        first, second = first[kept], second[kept]
        self.first, self.second = first, second
        self.both_still = self.still[first] & self.still[second]
        # Counting each two domains would count each domain many times.
        precision = 1 / (1 / domains.sizes[first] + 1 / domains.sizes[second])
        self.weight = precision * 2 / max(n_domains, 2)
        self.difference = np.zeros((len(first), n_domains))  # of two domains, one row for each two
        self.difference[np.arange(len(first)), first] = 1.0
        self.difference[np.arange(len(first)), second] = -1.0
        # Domains that cut one latent off its parents, that latent, and what it does not cause.
        alone = domains.targets.sum(axis=1) == (1 if domains.hard else -1)
        self.cut = np.flatnonzero(alone)
        self.target = np.argmax(domains.targets[self.cut], axis=1)
        self.uncaused = ~domains.closure[self.target]

    @property
    def freedom(self) -> int:
        """Number of independent conditions beside the parameters of a rotation."""
        times = np.maximum(self.still.sum(axis=0) - 1, 0)
        pairs = (self.still[:, :, None] & self.still[:, None, :]).sum(axis=0)
        count = times.sum() + np.triu(np.maximum(pairs - 1, 0)).sum() + self.uncaused.sum()
        if self.zero_base:
            count += self.still.any(axis=0).sum()
        n = self.domains.n_latents
        return max(int(count) - n * (n - 1) // 2, 1)

    def __call__(self, unmixing: Matrix) -> tuple[float, Matrix]:
        """Return the value, and its gradient in the unmixing."""
        domains, W = self.domains, unmixing
        means = domains.means @ W.T
        half = W @ domains.covariances  # W C_e
        spreads = half @ W.T
        grad_means, grad_spreads = np.zeros_like(means), np.zeros_like(spreads)
        grad_noise = np.zeros_like(W)
        value = self._still(means, spreads, grad_means, grad_spreads)
        value += self._at_base(means, spreads, grad_means, grad_spreads)
        value += self._alone(W, spreads, grad_spreads, grad_noise)
        symmetric = grad_spreads + grad_spreads.transpose(0, 2, 1)
        gradient = grad_means.T @ domains.means + np.einsum("eij,ejk->ik", symmetric, half)
        gradient -= domains.noise_variance * (grad_noise + grad_noise.T) @ W
        return value, gradient

    def _still(
        self, means: Matrix, spreads: Matrix, grad_means: Matrix, grad_spreads: Matrix
    ) -> float:
        """Compare latents that neither of two domains moves."""
        if not len(self.first):
            return 0.0
        e, f, among = self.first, self.second, _among(self.both_still)
        inverse = _inverse_among((spreads[e] + spreads[f]) / 2, self.both_still)
        change = inverse @ np.where(among, spreads[e] - spreads[f], 0.0)
        apart = np.where(self.both_still, means[e] - means[f], 0.0)
        scaled = np.einsum("pij,pj->pi", inverse, apart)
        value = self.weight @ np.einsum("pi,pi->p", apart, scaled)
        value += self.weight @ np.einsum("pij,pji->p", change, change) / 2

        weight = self.weight[:, None, None]
        slope_change = np.where(among, weight * change @ inverse, 0.0)
        slope_mean = -scaled[:, :, None] * scaled[:, None, :] - change @ change @ inverse
        slope_mean = np.where(among, weight * slope_mean, 0.0)
        grad_means += self.difference.T @ (2 * self.weight[:, None] * scaled)
        average = np.abs(self.difference) / 2
        grad_spreads += np.einsum("pe,pij->eij", average, slope_mean, optimize=True)
        grad_spreads += np.einsum("pe,pij->eij", self.difference, slope_change, optimize=True)
        return float(value)

    def _at_base(
        self, means: Matrix, spreads: Matrix, grad_means: Matrix, grad_spreads: Matrix
    ) -> float:
        """Compare means of latents that a domain does not move with zero, if that is assumed."""
        if not self.zero_base:
            return 0.0
        sizes = self.domains.sizes[:, None]
        apart = np.where(self.still, means, 0.0)
        scaled = np.einsum("eij,ej->ei", _inverse_among(spreads, self.still), apart)
        grad_means += 2 * sizes * scaled
        grad_spreads -= sizes[:, :, None] * scaled[:, :, None] * scaled[:, None, :]
        return float((sizes * scaled * apart).sum())

    def _alone(self, W: Matrix, spreads: Matrix, grad_spreads: Matrix, grad_noise: Matrix) -> float:
        """Regress a latent that is cut off its parents on what it does not cause."""
        if not len(self.cut):
            return 0.0
        place, j = np.arange(len(self.cut)), self.target
        spread, sizes = spreads[self.cut], self.domains.sizes[self.cut]
        noise = self.domains.noise_variance * (W @ W.T)
        across = np.where(self.uncaused, spread[place, j] - noise[j], 0.0)
        scaled = np.einsum("eij,ej->ei", _inverse_among(spread, self.uncaused), across)
        weight = sizes / spread[place, j, j]
        explained = weight * (scaled * across).sum(axis=1)

        slope = -weight[:, None, None] * scaled[:, :, None] * scaled[:, None, :]
        slope[place, j] += 2 * weight[:, None] * scaled
        slope[place, j, j] -= explained / spread[place, j, j]
        grad_spreads[self.cut] += slope
        np.add.at(grad_noise, j, 2 * weight[:, None] * scaled)
        return float(explained.sum())

    def best_rotation(self, start: Matrix, n_rounds: int = 3) -> tuple[Matrix, float]:
        """Minimise over unmixings with orthonormal rows; return the best and its value."""
        n = len(start)
        upper = np.triu_indices(n, k=1)
        if n < 2:
            return start, self(start)[0]
        current, value = start, self(start)[0]

        for _ in range(n_rounds):

            def at(angles: NDArray[np.floating], origin: Matrix = current) -> tuple[float, Matrix]:
                turn, back = _cayley(angles, upper, n)
                value, gradient = self(turn @ origin)
                slope = 0.5 * back.T @ gradient @ origin.T @ (np.eye(n) + turn).T
                return value, (slope - slope.T)[upper]

            found = minimize(at, np.zeros(len(upper[0])), jac=True, method="L-BFGS-B")
            current = _orthonormal(_cayley(found.x, upper, n)[0] @ current)
            if value - found.fun < 1e-6 * max(abs(value), 1.0):
                value = float(found.fun)
                break
            value = float(found.fun)
        return current, value

    def best_unmixing(self, start: Matrix) -> tuple[Matrix, float]:
        """Minimise over unmixings with any rows; return the best, in the scale of the start."""
        shape = start.shape

        def at(entries: NDArray[np.floating]) -> tuple[float, NDArray[np.floating]]:
            # In units of the start's rows, so that all parameters are of one size.
            factor = entries.reshape(shape)
            value, gradient = self(factor @ start)
            return value, (gradient @ start.T).ravel()

        found = minimize(
            at, np.eye(len(start)).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500}
        )
        return with_unit_columns(found.x.reshape(shape) @ start, self.domains), float(found.fun)


def _among(chosen: BoolMatrix) -> NDArray[np.bool_]:
    """Return, for each row of a mask, which entries of a matrix lie among the chosen."""
    return chosen[:, :, None] & chosen[:, None, :]


def _inverse_among(matrices: NDArray[np.floating], chosen: BoolMatrix) -> NDArray[np.floating]:
    """Return the inverses of the blocks of the chosen, zero elsewhere."""
    among = _among(chosen)
    filled = np.where(among, matrices, 0.0) + np.eye(matrices.shape[1]) * ~chosen[:, :, None]
    return np.where(among, np.linalg.inv(filled), 0.0)


def _cayley(
    angles: NDArray[np.floating], upper: tuple[NDArray[np.intp], ...], n: int
) -> tuple[Matrix, Matrix]:
    """Return the rotation of a skew matrix, and the inverse that its derivative needs."""
    skew = np.zeros((n, n))
    skew[upper] = angles
    skew -= skew.T
    back = np.linalg.inv(np.eye(n) - skew / 2)
    return back @ (np.eye(n) + skew / 2), back


def _orthonormal(matrix: Matrix) -> Matrix:
    left, _, right = np.linalg.svd(matrix)
    return left @ right
