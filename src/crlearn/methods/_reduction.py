"""X brought to as many numbers as there are latents, and the maps that a flow makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from numpy.typing import NDArray

from crlearn.config import numerics
from crlearn.flows import Links, SmoothFlow, learn_links
from crlearn.inputs import components_of
from crlearn.nets import evaluate
from crlearn.result import Check, LinearDecoder, LinearEncoder
from crlearn.tags import stored

Matrix = NDArray[np.floating]

ReductionName = Literal["auto", "linear", "links"]

# Share of the variance outside of n dimensions below which these are all that there is.
_NOTHING_LEFT = 1e-3
# Links are worth their while if they bring that share down by this factor.
_WORTHWHILE = 0.25
_ROWS_PER_BLOCK = 8192


@stored("encoder/composed")
@dataclass(frozen=True, eq=False)
class Composed:
    """One map after the other."""

    first: Any
    then: Any

    @property
    def n_latents(self) -> int:
        """Number of columns that the last map returns."""
        return self.then.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the image of each row."""
        return self.then(self.first(X))


@stored("encoder/flow")
@dataclass(frozen=True, eq=False)
class FlowMap:
    """A flow between its users' units: ``(flow(x) - mean) / scale``, some outputs in an order."""

    flow: SmoothFlow
    columns: NDArray[np.intp]
    mean: NDArray[np.floating]
    scale: NDArray[np.floating]

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.columns)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the latents of each row."""
        z = np.asarray(evaluate(self.flow, np.asarray(X, dtype=float)), dtype=float)
        return (z[:, self.columns] - self.mean) / self.scale


@stored("decoder/flow")
@dataclass(frozen=True, eq=False)
class FlowInverse:
    """The inverse of a `FlowMap`."""

    encoder: FlowMap

    def __call__(self, Z: Matrix) -> Matrix:
        """Return what has these latents."""
        encoder = self.encoder
        z = np.empty_like(np.asarray(Z, dtype=float))
        z[:, encoder.columns] = np.asarray(Z) * encoder.scale + encoder.mean
        starts = range(0, max(len(z), 1), _ROWS_PER_BLOCK)
        with numerics():
            undo = jax.jit(encoder.flow.inverse)
            blocks = [np.asarray(undo(z[start : start + _ROWS_PER_BLOCK])) for start in starts]
        return np.concatenate(blocks).astype(float)


@stored("decoder/links")
@dataclass(frozen=True, eq=False)
class LinksInverse:
    """The inverse of `Links`."""

    links: Links

    def __call__(self, H: Matrix) -> Matrix:
        """Return the features that have these values."""
        return self.links.inverse(H)


@stored("decoder/composed")
@dataclass(frozen=True, eq=False)
class ComposedDecoder:
    """One decoder after the other."""

    first: Any
    then: Any

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the image of each row."""
        return self.then(self.first(Z))


@dataclass(frozen=True, eq=False)
class Reduction:
    """A map to as many numbers as there are latents, of unit size, its inverse, and checks."""

    encoder: Any
    decoder: Any
    checks: tuple[Check, ...]
    links: Links | None = None


def reduce(X: Matrix, n_latents: int | None, kind: ReductionName, seed: int) -> Reduction:
    """Bring X to `n_latents` numbers a row, or to its rank.

    Parameters
    ----------
    X
        Rows.
    n_latents
        How many; None: the rank of X.
    kind
        ``"linear"``: principal components; ``"links"``: those of features after monotone links;
        ``"auto"``: links if they bring X closer to so many dimensions.
    seed
        Of the links.
    """
    span, rank, checks = components_of(X, n_latents)
    n = span.n_latents
    plain = Reduction(span, LinearDecoder.undoing(span, X), checks)
    left_out = _left_out(X, plain)
    if kind == "linear" or X.shape[1] == n or (kind == "auto" and left_out < _NOTHING_LEFT):
        return _checked(plain, left_out)
    linked = _linked(X, n, checks, seed)
    left_out_then = _left_out(X, linked)
    if kind == "auto" and left_out_then > _WORTHWHILE * left_out:
        return _checked(plain, left_out)
    return _checked(linked, left_out_then)


def _linked(X: Matrix, n: int, checks: tuple[Check, ...], seed: int) -> Reduction:
    links = learn_links(X, n, seed)
    values = links(X)
    span, _, _ = components_of(values, n)
    decoder = ComposedDecoder(LinearDecoder.undoing(span, values), LinksInverse(links))
    return Reduction(Composed(links, span), decoder, checks, links)


def _left_out(X: Matrix, reduction: Reduction) -> float:
    """Return the share of the variance of (linked) features that n dimensions leave out."""
    values = X if reduction.links is None else reduction.links(X)
    span: LinearEncoder = reduction.encoder if reduction.links is None else reduction.encoder.then
    back = LinearDecoder.undoing(span, values)(span(values))
    varying = values.std(axis=0) > 0
    scale = values[:, varying].std(axis=0)
    return float((((values - back)[:, varying] / scale) ** 2).mean()) if varying.any() else 0.0


def _checked(reduction: Reduction, left_out: float) -> Reduction:
    how = "of X" if reduction.links is None else "of X after monotone links of its features"
    n = reduction.encoder.n_latents
    note = Check(
        "reduction",
        True,
        f"{n} principal components {how}; {left_out:.2g} of the variance lies outside of them",
    )
    return Reduction(
        reduction.encoder, reduction.decoder, (*reduction.checks, note), reduction.links
    )
