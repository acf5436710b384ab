"""What a structure costs: one prior over graphs, and one price of whatever is fitted.

A structure is scored in nats, larger is better:

    score = log-likelihood (or log evidence) - parameters - log prior odds of the graph.

*Coefficients* of mechanisms and densities are parameters whose estimates sharpen as 1 / sqrt(N).
Laplace's method gives 1/2 log N nats for each (Schwarz, Annals of Statistics, 1978).

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

from typing import overload

import numpy as np
from numpy.typing import NDArray

HYPERPARAMETER = 1.0


@overload
def parameter_price(n_rows: float) -> float: ...
@overload
def parameter_price(n_rows: NDArray[np.floating]) -> NDArray[np.floating]: ...
def parameter_price(n_rows: float | NDArray[np.floating]) -> float | NDArray[np.floating]:
    """Return the nats that a coefficient must gain, by the rows that it is estimated from."""
    return 0.5 * np.log(n_rows)


def edge_prior(n_latents: int) -> float:
    """Return the nats that an edge costs by the prior over graphs, whatever its mechanism."""
    return float(np.log(max(1, n_latents * (n_latents - 1) // 2)))


def relevance_edge_price(n_latents: int) -> float:
    """Return the nats that an edge must gain where coefficients are integrated out.

    A parent brings three precisions of its own: of its linear effect, its square and its hinges.
    Those of its products with other parents are not counted.
    """
    return 3 * HYPERPARAMETER + edge_prior(n_latents)
