"""How much more the value of `DomainLikelihood` varies than if moments were Gaussian.

At the truth twice the log-ratio is a quadratic form in the errors of the moments. Its mean is the
number of its degrees of freedom if rows are Gaussian, and more if tails are heavy. Random halves of
the rows show it: their moments lie at +e and -e of those of all rows, with e distributed as the
errors are, so that the mean of the two values, less that of all rows, is a draw of the form (half
samples, as in balanced repeated replication; the correction is that of Satorra and Bentler, 1994).
Parameters are fitted again by one step of Newton's method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood.domains._model import DomainLikelihood

Matrix = NDArray[np.floating]

# Draws times degrees of freedom: the factor's standard error is then 7%.
_ENOUGH = 400
_FEWEST = 4
_STEP = 1e-4  # of differences of the gradient
_FLAT = 1e-6  # curvature, relative to the largest, of directions that change nothing


def inflation(likelihood: DomainLikelihood, unmixing: Matrix, rng: np.random.Generator) -> float:
    """Return the factor on the degrees of freedom; 1 where rows are not known.

    Never less than one: tails that are lighter than Gaussian make the test no sharper.
    """
    if likelihood.domains.rows is None:
        return 1.0
    start = likelihood.start(unmixing)
    at = likelihood.around(start)
    sides = [
        at(sign * _STEP * unit)[1] for unit in np.eye(likelihood.n_parameters) for sign in (1, -1)
    ]
    curvature = (np.array(sides[0::2]) - np.array(sides[1::2])) / (2 * _STEP)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    steep = values > _FLAT * values[-1]
    root = vectors[:, steep] / np.sqrt(values[steep])

    def refitted(one: DomainLikelihood) -> float:
        value, gradient = one.around(start)(np.zeros(one.n_parameters))
        return value - ((gradient @ root) ** 2).sum() / 2

    whole = refitted(likelihood)
    n_draws = max(_FEWEST, -(-_ENOUGH // likelihood.freedom))
    draws = [
        sum(refitted(likelihood.of(half)) for half in likelihood.domains.halves(rng)) / 2 - whole
        for _ in range(n_draws)
    ]
    return max(float(np.mean(draws)) / likelihood.freedom, 1.0)
