"""The measurement x = A z + noise: units, the span of A and the noise variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs._factors import MOST_ENTRIES, SLACK
from crlearn.inputs._span import (
    Scaling,
    check_columns,
    choose_n_latents,
    is_wide,
    leading_components,
)
from crlearn.result import Check

Matrix = NDArray[np.floating]

# Latents beyond this many standard deviations of the noise leave nothing of the small ones.
_LARGEST = 1e6
_USUAL = 0.05  # quantile of the rows' sizes that a row which has run away is compared with
_SMALLEST_UNIT, _LARGEST_UNIT = 1e-153, 1e153  # squares stay finite
_MOST_ROUNDS, _STILL = 30, 1e-5


@dataclass(frozen=True, eq=False)
class Measurement:
    """Rows in units in which all numbers are near one, and the span of their mixing.

    Attributes
    ----------
    rows
        ``(x - offset) / scale / unit``; constant columns are zero.
    offset, scale, unit
        What was taken off and divided by.
    span
        Orthonormal columns, the leading directions of the second moment.
    noise_variance
        In these units.
    eigenvalues
        Of the second moment, in descending order; where there are thousands of rows and features,
        not much more than those of the latents.
    checks
        What is to be said about the columns.
    """

    rows: Matrix
    offset: NDArray[np.floating]
    scale: NDArray[np.floating]
    unit: float
    span: Matrix
    noise_variance: float
    eigenvalues: NDArray[np.floating]
    checks: tuple[Check, ...]

    def noise_checks(self) -> tuple[Check, ...]:
        """Say whether the noise is alike in all directions, and the latents stand out from it."""
        n = self.span.shape[1]
        n_noise = len(self.scale) - n
        if self.noise_variance <= 0 or n_noise < 1:
            return (
                Check(
                    "measurement noise",
                    None,
                    "there are as many latents as features, or no noise; give noise_variance="
                    if n_noise < 1
                    else "there is none, and nothing to take off the latents",
                ),
            )
        edge = self.noise_variance * (1 + np.sqrt(n_noise / len(self.rows))) ** 2
        largest = float(self.eigenvalues[n]) if len(self.eigenvalues) > n else 0.0
        return (
            Check(
                "measurement noise",
                bool(largest <= SLACK * edge),
                f"largest variance beside the latents {largest / self.noise_variance:.2f} times the"
                f" noise; noise alike in all features has up to {edge / self.noise_variance:.2f}",
            ),
            Check(
                "latents stand out from the noise",
                bool(self.eigenvalues[n - 1] > SLACK * edge),
                "smallest second moment among the latents "
                f"{self.eigenvalues[n - 1] / self.noise_variance:.1f} times the noise",
            ),
        )

    def range_check(self, latents: Matrix) -> Check:
        """Say whether latents are of a size at which float64 keeps the small ones."""
        sd = max(np.sqrt(max(self.noise_variance, 0.0)), 1e-300)
        largest = float(np.abs(latents).max(initial=0.0)) / sd
        passed = self.noise_variance <= 0 or largest <= _LARGEST
        advice = "" if passed else "; rounding leaves nothing of the smaller latents, do not use"
        return Check(
            "size of the latents",
            bool(passed),
            f"largest latent {largest:.3g} standard deviations of the noise{advice}",
        )


def measure(
    X: Matrix,
    n_latents: int | None,
    *,
    offset: NDArray[np.floating] | None = None,
    scale: bool = False,
    noise_variance: float | None = None,
    mixing: Matrix | None = None,
    codes: NDArray[np.intp] | None = None,
) -> Measurement:
    """Read X as a noisy linear measurement.

    Parameters
    ----------
    X, n_latents
        Rows; number of latents, None for the rank of X.
    offset
        What is taken off each row; None: nothing.
    scale
        Whether to divide each column by its standard deviation.
    noise_variance
        If it is known, in the units of X (of the scaled X, if that is asked for).
    mixing
        If it is known, with columns as A has them.
    codes
        Number of each row's environment, if the span is to be refined by them.
    """
    scaling = Scaling.of(X)
    rank, checks = check_columns(X, scaling, enough=n_latents)
    n = _checked_n_latents(n_latents, rank, X)
    divisor = scaling.scale if scale else np.ones(X.shape[1])
    shift = np.zeros(X.shape[1]) if offset is None else offset
    with np.errstate(under="ignore"):
        rows = (X - shift) / divisor
    rows[:, scaling.constant] = 0.0
    unit = float(np.abs(rows).max(initial=0.0)) or 1.0
    _refuse_extreme(unit)
    rows /= unit
    values, vectors = _leading(rows, n)
    rest = max(float(np.einsum("ij,ij->", rows, rows)) / len(rows) - values[:n].sum(), 0.0)
    n_noise = int((~scaling.constant).sum()) - n
    own = rest / n_noise if n_noise > 0 else 0.0
    own = 0.0 if own < 1e-14 * values[0] else own
    if mixing is not None:
        vectors = np.linalg.qr(mixing / divisor[:, None])[0]
    elif codes is not None and own > 0:
        vectors = common_span(rows, codes, vectors, own)
    known = None if noise_variance is None else noise_variance / unit**2
    return Measurement(
        rows, shift, divisor, unit, vectors, own if known is None else known, values, checks
    )


def _refuse_extreme(unit: float) -> None:
    """Refuse numbers of which neither noise variance nor posterior variances could be told."""
    if not _SMALLEST_UNIT <= unit <= _LARGEST_UNIT:
        raise ValueError(
            "Variances come in the squared units of X, so that its numbers must be between "
            f"{_SMALLEST_UNIT:g} and {_LARGEST_UNIT:g} in size. Got numbers up to {unit:.2g}: give "
            "X in other units, or divided by the standard deviations of its columns."
        )


def _checked_n_latents(n_latents: int | None, rank: int, X: Matrix) -> int:
    try:
        return choose_n_latents(n_latents, rank)
    except IdentifiabilityError:
        sizes = np.abs(X).max(axis=1)
        usual = float(np.quantile(sizes, _USUAL))
        far = int((sizes > _LARGEST * usual).sum())
        if not far:
            raise
        raise IdentifiabilityError(
            f"Latents have run away: X reaches {sizes.max():.1e}, and {far} of its {len(X)} rows "
            f"are more than {_LARGEST:.0e} times as large as its small ones. Beside them rounding "
            f"leaves {rank} of the {n_latents} latents, and any answer for the others would be "
            "made of rounding errors. Check the units of X, or leave the environments of these "
            "rows out of the fit."
        ) from None


def common_span(
    rows: Matrix, codes: NDArray[np.intp], start: Matrix, noise_variance: float
) -> Matrix:
    """Return the span that is most likely if each environment has a second moment of its own in it.

    Principal components weigh all environments alike; the likelihood gives little weight to one in
    which a direction is hardly larger than the noise. A fixed point of its gradient, from the
    principal components.
    """
    n = start.shape[1]
    parts = [rows[codes == e] for e in range(codes.max() + 1)]
    small = len(parts) * rows.shape[1] ** 2 <= MOST_ENTRIES
    moments = [part.T @ part for part in parts] if small else []
    span = start
    for _ in range(_MOST_ROUNDS):
        products = (
            [moment @ span for moment in moments] if small else [p.T @ (p @ span) for p in parts]
        )
        weighted = np.zeros_like(span)
        for product, part in zip(products, parts, strict=True):
            inside = span.T @ product / len(part)
            floor = noise_variance * np.eye(n) * 1e-6
            weighted += product @ (np.eye(n) / noise_variance - np.linalg.inv(inside + floor))
        left, _, right = np.linalg.svd(weighted, full_matrices=False)
        new = left @ right
        moved = np.linalg.norm(new - span @ (span.T @ new))
        span = new
        if moved < _STILL:
            break
    return span


def _leading(rows: Matrix, n: int) -> tuple[NDArray[np.floating], Matrix]:
    """Return the eigenvalues of the second moment and its leading directions.

    Uncentred: the model has no intercept, and shifts of the mean point along the mixing.
    """
    components = None
    if is_wide(rows.shape):
        times = lambda basis: rows.T @ (rows @ basis) / len(rows)  # noqa: E731
        components = leading_components(times, (len(rows), rows.shape[1]), n)
    if components is not None:
        values, vectors = components.variances, components.directions[:, :n]
    elif rows.shape[1] > len(rows):
        values, left = np.linalg.eigh(rows @ rows.T / len(rows))
        values, left = np.maximum(values[::-1], 0.0), left[:, ::-1][:, :n]
        vectors = np.linalg.qr(rows.T @ left)[0]
    else:
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1][:, :n]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
