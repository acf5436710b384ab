"""True and recovered latents, or noises, in an order in which those that belong together meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crlearn.metrics import correlation_matrix

Matrix = NDArray[np.floating]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Matched:
    """Latents with the pairs in front: column k of `Z` and column k of `Z_hat` are pair k.

    Attributes
    ----------
    Z, Z_hat
        True and recovered latents, in this order.
    true, recovered
        Which latents the columns are.
    n_pairs
        Number of pairs; the columns behind them have no partner.
    kind
        What the columns are: ``"latent"`` or ``"noise"``.
    names
        Of all recovered columns, in the order of the model; None: numbered.
    """

    Z: Matrix
    Z_hat: Matrix
    true: Indices
    recovered: Indices
    n_pairs: int
    kind: str = "latent"
    names: Sequence[str] | None = None

    @classmethod
    def of(
        cls,
        Z: Matrix,
        Z_hat: Matrix,
        pairs: Indices,
        kind: str = "latent",
        names: Sequence[str] | None = None,
    ) -> Matched:
        """Put latents in order; `pairs` has one row (true latent, recovered latent) a pair."""
        true, recovered = (
            np.concatenate([paired, np.setdiff1d(np.arange(columns.shape[1]), paired)])
            for columns, paired in zip((Z, Z_hat), pairs.T, strict=True)
        )
        return cls(Z[:, true], Z_hat[:, recovered], true, recovered, len(pairs), kind, names)

    @property
    def true_names(self) -> Sequence[str]:
        """Names of the true latents."""
        return [f"{self._letter}{i}" for i in self.true]

    @property
    def recovered_names(self) -> Sequence[str]:
        """Names of the recovered latents."""
        if self.names is not None:
            return [self.names[int(i)] for i in self.recovered]
        return [f"{self._letter}{i}" for i in self.recovered]

    @property
    def _letter(self) -> str:
        return "z" if self.kind == "latent" else "e"

    @cached_property
    def correlations(self) -> Matrix:
        """Absolute correlations of true (rows) with recovered latents (columns)."""
        return correlation_matrix(self.Z, self.Z_hat)
