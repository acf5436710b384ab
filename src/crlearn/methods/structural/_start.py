"""Before an explicit prior is trained: coordinates of X, the axes of the latents, and starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from crlearn.inputs import Environments, KnownDomains, Measurement
from crlearn.likelihood import Domains, Unmixing, find_unmixing
from crlearn.variational import EvidenceBound, Parameters, Rows, straight_start

Matrix = NDArray[np.floating]

_HELD_OUT = 0.1  # of the rows of each environment
_TURN = 0.2  # sd of the angles by which further restarts are turned


@dataclass(frozen=True, eq=False)
class Coordinates:
    """X as the networks see it, and how to come back.

    Attributes
    ----------
    rows
        Coordinates that depend on the latents, of about unit size; what is left of the squares; and
        the environments.
    n_rest
        Number of coordinates that hold noise only.
    basis
        Columns that features are multiplied with.
    scale, size
        What features are divided by, and the part of it that is alike in all of them.
    span
        Leading directions, in these coordinates.
    noise_variance
        In these units.
    """

    rows: Rows
    n_rest: int
    basis: Matrix
    scale: NDArray[np.floating]
    size: float
    span: Matrix
    noise_variance: float

    @classmethod
    def of(cls, measurement: Measurement, codes: NDArray[np.intp], *, linear: bool) -> Coordinates:
        """Take the coordinates of the span, or all features that vary."""
        span, rows = measurement.span, measurement.rows
        varies = np.asarray(rows.any(axis=0))
        basis = span if linear else np.eye(len(varies))[:, varies]
        unit = float(np.sqrt(((rows @ span) ** 2).mean())) or 1.0
        x = rows @ basis / unit
        rest = np.maximum((rows**2).sum(axis=1) / unit**2 - (x**2).sum(axis=1), 0.0)
        size = measurement.unit * unit
        parts = x.astype(np.float32), rest.astype(np.float32), codes.astype(np.int32)
        return cls(
            Rows(*(cast(Any, part) for part in parts)),
            n_rest=int(varies.sum()) - basis.shape[1],
            basis=basis,
            scale=measurement.scale * size,
            size=size,
            span=basis.T @ span,
            noise_variance=measurement.noise_variance / unit**2,
        )

    @property
    def in_span(self) -> Matrix:
        """Rows along the leading directions."""
        return np.asarray(self.rows.x, dtype=float) @ self.span

    def among(self, chosen: NDArray[np.bool_]) -> Rows | None:
        """Return some rows; None if there are none."""
        if not chosen.any():
            return None
        return Rows(*(cast(Any, np.asarray(part)[chosen]) for part in self.rows))


def unmix(
    coordinates: Coordinates, known: KnownDomains, seed: int, *, orthogonal: bool
) -> tuple[Unmixing, Domains]:
    """Find the axes of the latents in the span, by the moments of the environments."""
    domains = Domains.of(
        coordinates.in_span,
        np.asarray(coordinates.rows.codes),
        known.targets,
        known.graph,
        noise_variance=coordinates.noise_variance,
        hard=True,
    )
    # Without an observational environment moments do not tell columns that are not orthogonal.
    orthogonal = orthogonal or not len(domains.observational)
    return find_unmixing(domains, np.random.default_rng(seed), orthogonal=orthogonal), domains


def starts_of(
    objective: EvidenceBound,
    coordinates: Coordinates,
    unmixing: Matrix | None,
    n_restarts: int,
    seed: int,
) -> list[Parameters]:
    """Return a start for each restart: the unmixing (None: the span) first, the others turned."""
    span = coordinates.span
    inside = coordinates.in_span
    first = np.eye(span.shape[1]) if unmixing is None else unmixing
    # Rotations keep columns orthogonal if these have one length.
    sizes = 1.0 if objective.mixing == "orthogonal" else (inside @ first.T).std(axis=0)
    first = first / np.where(np.asarray(sizes) > 0, sizes, 1.0).reshape(-1, 1)
    starts = []
    for restart, key in enumerate(jax.random.split(jax.random.key(seed), n_restarts)):
        angles = np.random.default_rng((seed, restart)).normal(0.0, _TURN, first.shape)
        turned = expm(angles - angles.T) @ first if restart else first
        maps = turned @ span.T, span @ np.linalg.inv(turned)
        starts.append(
            straight_start(objective, coordinates.rows, *maps, coordinates.noise_variance, key)
        )
    return starts


def held_out_rows(environments: Environments, seed: int) -> NDArray[np.bool_]:
    """Choose a tenth of the rows of each environment."""
    rng, chosen = np.random.default_rng(seed), np.zeros(len(environments.codes), dtype=bool)
    for e, count in enumerate(environments.counts):
        rows = np.flatnonzero(environments.codes == e)
        chosen[rng.permutation(rows)[: int(_HELD_OUT * count)]] = True
    return chosen
