"""`Node`: one structural equation, ``z = offset + mechanism(parents) + noise``."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from numpy.typing import NDArray

from crlearn.data.model._mechanisms import Mechanism
from crlearn.data.model._noise import Noise, as_leaf, check_axes
from crlearn.tags import stored


@stored("scm/node")
class Node(eqx.Module):
    """One structural equation, ``z = offset + mechanism(parents) + noise``.

    Which latents the parents are is not part of it, so that equations of the same form share one
    compiled derivative, wherever in a graph they stand.

    Attributes
    ----------
    mechanism
        Effect of the parents; None for a latent without parents.
    noise
        Distribution of the exogenous noise.
    offset
        Constant that is added.
    """

    mechanism: Mechanism | None
    noise: Noise
    offset: NDArray[np.floating] = eqx.field(converter=as_leaf, default=0.0)

    def __check_init__(self) -> None:
        check_axes(self, {"offset": 0})

    def without_noise(self, parents: Any) -> Any:
        """Return what the latent would be without noise: ``(..., k)`` in, ``(...)`` out."""
        return self.offset if self.mechanism is None else self.offset + self.mechanism(parents)

    def log_factor(self, family: Any) -> Any:
        """Return ``log p(z | parents)`` at one vector that holds z and then its parents."""
        return self.noise.log_density(family[0] - self.without_noise(family[1:]))
