"""What a structure costs: one prior over graphs, and one price of whatever is fitted.

A structure is scored in nats, larger is better:

    score = log-likelihood (or log evidence) - parameters - log prior odds of the graph.

*Coefficients* of mechanisms and densities are parameters whose estimates sharpen as 1 / sqrt(N).
Laplace's method gives 1/2 log N nats for each (Schwarz, Annals of Statistics, 1978).

*Features of a mechanism* come in sets, and none of them has to be there: an effect may be spread
over all. At that price each, ten features that gain 30 nats together, beyond any doubt, are left
out. So what one parent brings pays as a set: as much as twice its gain, the likelihood ratio, must
be at the level at which a single coefficient pays. That level falls with N, and a set takes in what
is not there as seldom as a coefficient does. Sets of several parents pay one after the other; as
one, a second parent would be nearly free beside a first.

*Hyperparameters*: where coefficients are integrated out, what is fitted are the precisions of their
priors, a fixed number for each edge that does not sharpen with N. The price of one is Akaike's
(1974), one nat; where there is nothing to find, fitting one gains half a nat on average or less.

*Graphs*: every number of edges is as likely as any other up to a constant factor, and all graphs
with the same number are alike. There are about m^k / k! graphs with k of m = n (n - 1) / 2 edges
(one direction each, given an order). An edge costs log m nats, which leaves the k! out and is on
the safe side: the extended criterion of Chen and Chen (Biometrika, 2008). The price of a parameter
alone takes one edge in a thousand where there is none, which is too many for a graph.
"""

from __future__ import annotations

from functools import cache
from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

HYPERPARAMETER = 1.0


@overload
def parameter_price(n_rows: float) -> float: ...
@overload
def parameter_price(n_rows: NDArray[np.floating]) -> NDArray[np.floating]: ...
def parameter_price(n_rows: float | NDArray[np.floating]) -> float | NDArray[np.floating]:
    """Return the nats that a coefficient must gain, by the rows that it is estimated from."""
    return 0.5 * np.log(n_rows)


@cache
def price_together(n_rows: int, sizes: tuple[int, ...]) -> float:
    """Return the nats that sets of coefficients must gain, each after those before it.

    Each pays what its likelihood ratio must be at the level at which a single coefficient pays.
    """
    level = chi2.sf(2 * parameter_price(n_rows), 1)
    return float(sum(chi2.isf(level, size) / 2 for size in sizes if size))


def edge_prior(n_latents: int) -> float:
    """Return the nats that an edge costs by the prior over graphs, whatever its mechanism."""
    return float(np.log(max(1, n_latents * (n_latents - 1) // 2)))


def relevance_edge_price(n_latents: int) -> float:
    """Return the nats that an edge must gain where coefficients are integrated out.

    A parent brings three precisions of its own: of its linear effect, its square and its hinges.
    Those of its products with other parents are not counted.
    """
    return 3 * HYPERPARAMETER + edge_prior(n_latents)
