"""What the likelihood is like around an optimum: how well it holds it, and how its value varies.

The curvature of the value, twice a log-ratio, gives the errors of all parameters: their covariance
is twice its inverse. An error that turns latent k into latent j makes a share of the variance of j
that of k.

At the truth the value is a quadratic form in the errors of the moments. Its mean is the number of
its degrees of freedom if rows are Gaussian, and more if tails are heavy. Random halves of the rows
show it: their moments lie at +e and -e of those of all rows, with e distributed as the errors are,
so that the mean of the two values, less that of all rows, is a draw of the form (half samples; the
correction is that of Satorra and Bentler, 1994). Parameters are fitted again by one step of
Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.domains._model import DomainLikelihood, State

Matrix = NDArray[np.floating]

# Draws times degrees of freedom: the factor's standard error is then 7%.
_ENOUGH = 400
_FEWEST = 4
_STEP = 1e-4  # of differences of the gradient
_FLAT = 1e-9  # curvature, relative to the largest, of directions that change nothing
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Optimum:
    """A likelihood around one of its optima.

    Attributes
    ----------
    likelihood, start
        The likelihood, and the state at which steps start.
    curvature
        Second derivatives of the value by the entries of a step.
    """

    likelihood: DomainLikelihood
    start: State
    curvature: Matrix

    @classmethod
    def of(cls, likelihood: DomainLikelihood, unmixing: Matrix) -> Optimum:
        """Take the curvature at an unmixing, by differences of the gradient."""
        start = likelihood.start(unmixing)
        at = likelihood.around(start)
        steps = _STEP * np.eye(likelihood.n_parameters)
        slopes = np.array([at(step)[1] - at(-step)[1] for step in steps]) / (2 * _STEP)
        return cls(likelihood, start, (slopes + slopes.T) / 2)

    def mixed_shares(self) -> Matrix:
        """Return the share of each latent's variance that is expected to be that of others.

        Variances are those inside domains. The share is one at most, where nothing holds a latent.
        """
        domains, free = self.likelihood.domains, self.likelihood.free
        n_turns = len(free[0])
        if not n_turns:
            return np.zeros(domains.n_latents)
        turns, rest = np.split(self.curvature, [n_turns])
        inside, between = np.split(turns, [n_turns], axis=1)
        held = inside - between @ np.linalg.pinv(rest[:, n_turns:], _FLAT, True) @ between.T
        values, vectors = np.linalg.eigh(held)
        variances = (vectors**2 / np.maximum(values, _TINY)).sum(axis=1) * 2
        errors = np.zeros((domains.n_latents,) * 2)
        errors[free] = variances
        if self.likelihood.orthogonal:
            errors += errors.T
        pooled = np.einsum("e,eij->ij", domains.sizes / domains.sizes.sum(), domains.covariances)
        W = self.start.unmixing
        own = np.einsum("ji,ik,jk->j", W, pooled, W)
        return np.minimum(errors @ own / own, 1.0)

    def inflation(self, rng: np.random.Generator) -> float:
        """Return the mean of the value over its degrees of freedom; 1 where rows are not known.

        Never less than one: tails that are lighter than Gaussian make the test no sharper.
        """
        likelihood = self.likelihood
        if likelihood.domains.rows is None:
            return 1.0
        values, vectors = np.linalg.eigh(self.curvature)
        steep = values > _FLAT * values[-1]
        root = vectors[:, steep] / np.sqrt(values[steep])

        def refitted(one: DomainLikelihood) -> float:
            value, gradient = one.around(self.start)(np.zeros(one.n_parameters))
            return value - ((gradient @ root) ** 2).sum() / 2

        whole = refitted(likelihood)
        n_draws = max(_FEWEST, -(-_ENOUGH // likelihood.freedom))
        halves = (likelihood.domains.halves(rng) for _ in range(n_draws))
        draws = [sum(refitted(likelihood.of(half)) for half in pair) / 2 - whole for pair in halves]
        return max(float(np.mean(draws)) / likelihood.freedom, 1.0)
