"""X brought to as many numbers as there are latents, and the maps that a flow makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import numpy as np
from numpy.typing import NDArray

from crlearn.exceptions import IdentifiabilityError
from crlearn.flows import (
    Autoencoder,
    Flattening,
    ImageAutoencoder,
    Links,
    SmoothFlow,
    SurfaceFlow,
    dimension_check,
    fold_check,
    intrinsic_dimension,
    leading_components,
    learn_autoencoder,
    learn_flattening,
    learn_links,
    share_lost,
)
from crlearn.inputs import components_of
from crlearn.nets import apply_in_blocks
from crlearn.result import Check, LinearDecoder, LinearEncoder
from crlearn.tags import stored

Matrix = NDArray[np.floating]

ReductionName = Literal["auto", "linear", "links", "autoencoder", "flow"]

# Share of the variance outside of n dimensions below which these are all that there is, and that
# above which principal components are a poor start for a flow, whether they fold or not.
_NOTHING_LEFT, _LITTLE_LEFT = 1e-3, 0.05
# Links are worth their while if they bring that share down by this factor.
_WORTHWHILE = 0.25
# Dimensions of X up to which, by counts of operations, a step of a flow takes no longer than one of
# an autoencoder. These come first, as they lose less of a smooth surface: 0.00006, not 0.0013.
_MOST_FOR_A_FLOW = 16
_ON_A_SURFACE = "coordinates of a surface that an invertible map makes flat"
_ROWS_FOR_ERROR = 5000


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

    flow: SmoothFlow | SurfaceFlow
    columns: NDArray[np.intp]
    mean: NDArray[np.floating]
    scale: NDArray[np.floating]

    @classmethod
    def plain(cls, flow: SmoothFlow | SurfaceFlow) -> FlowMap:
        """Return the outputs of a flow as they are."""
        n = flow.n_variables if isinstance(flow, SmoothFlow) else flow.n_latents
        return cls(flow, np.arange(n), np.zeros(n), np.ones(n))

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.columns)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the latents of each row."""
        # Blocks of one size, so that a row has the same bits whatever stands beside it.
        z = apply_in_blocks(partial(_done, self.flow), np.asarray(X, dtype=float))
        return (np.asarray(z, dtype=float)[:, self.columns] - self.mean) / self.scale


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
        return np.asarray(apply_in_blocks(partial(_undone, encoder.flow), z), dtype=float)


@eqx.filter_jit
def _done(flow: SmoothFlow | SurfaceFlow, x: Any) -> Any:
    return flow(x)


@eqx.filter_jit
def _undone(flow: SmoothFlow | SurfaceFlow, z: Any) -> Any:
    return flow.inverse(z)


@stored("decoder/links")
@dataclass(frozen=True, eq=False)
class LinksInverse:
    """The inverse of `Links`."""

    links: Links

    def __call__(self, H: Matrix) -> Matrix:
        """Return the features that have these values."""
        return self.links.inverse(H)


@stored("decoder/codes")
@dataclass(frozen=True, eq=False)
class CodesInverse:
    """The decoder of an `Autoencoder`, or the way back of a `Flattening`."""

    codes: Autoencoder | ImageAutoencoder | Flattening

    def __call__(self, Z: Matrix) -> Matrix:
        """Return the features that have these codes."""
        return self.codes.inverse(Z)


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
    """A map to as many numbers as there are latents, of unit size, and its inverse.

    It may leave more numbers, where a flow of all of them is to make a surface flat.

    Attributes
    ----------
    encoder, decoder
        The map, and back.
    rows
        X after the map.
    left_out
        Share of the variance of features (after their links) that is lost.
    how
        What it is, in words.
    checks
        Of X, and of the map.
    """

    encoder: Any
    decoder: Any
    rows: Matrix
    left_out: float
    how: str
    checks: tuple[Check, ...] = ()


def reduce(
    X: Matrix,
    n_latents: int | None,
    kind: ReductionName,
    seed: int,
    *,
    count_dimensions: bool = True,
    flatten: bool = True,
) -> Reduction:
    """Bring X to `n_latents` numbers a row, or to its rank.

    Parameters
    ----------
    X
        Rows.
    n_latents
        How many; None: the rank of X.
    kind
        ``"linear"``: principal components; ``"links"``: those of features after monotone links;
        ``"autoencoder"``: smooth networks to codes and back; ``"flow"``: an invertible map that
        makes the surface flat; ``"auto"``: the first of these that loses next to nothing and does
        not fold, but no flow for X of many dimensions.
    seed
        Of links, flows and autoencoders.
    count_dimensions
        Whether to compare `n_latents` with what distances of nearest rows say. They find too few
        dimensions where latents have variances of very different sizes.
    flatten
        Whether ``"flow"`` makes a surface flat here. If not, all components are left to a flow of
        the caller's, who adds `surface_checks`.
    """
    span, _, checks = components_of(X, n_latents)
    span = _with_signs(span, X)
    if count_dimensions:
        dimensions = dimension_check(X, span.n_latents)
        if dimensions.passed is False:
            _refuse_lost_latents(X, span.n_latents)
        checks = (*checks, dimensions)
    found = _chosen(X, span, kind, seed, flatten=flatten)
    if found.rows.shape[1] > span.n_latents:
        return replace(found, checks=checks)
    note = _note(span.n_latents, found.how, found.left_out)
    if X.shape[1] == span.n_latents:
        return replace(found, checks=(*checks, note))
    off_plane = found.left_out if isinstance(found.encoder, Flattening) else 1.0
    return replace(found, checks=(*checks, note, fold_check(found.rows, X, off_plane)))


def surface_checks(X: Matrix, encoder: Any, decoder: Any) -> tuple[Check, Check]:
    """Say what a flow of all components has lost, and check that it has made the surface flat."""
    some = X[np.random.default_rng(0).permutation(len(X))[:_ROWS_FOR_ERROR]]
    Z = encoder(some)
    left_out = share_lost(some, decoder(Z))
    return _note(Z.shape[1], _ON_A_SURFACE, left_out), fold_check(Z, some, left_out)


def _with_signs(span: LinearEncoder, X: Matrix) -> LinearEncoder:
    """Give components signs that do not hang on rounding: their third moments are positive."""
    signs = np.where((span(X) ** 3).mean(axis=0) < 0, -1.0, 1.0)
    return replace(span, matrix=signs[:, None] * span.matrix)


def _refuse_lost_latents(X: Matrix, n: int) -> None:
    """Refuse X that holds fewer numbers than there are latents: nothing can bring them back."""
    estimate = intrinsic_dimension(X, n)
    if estimate is not None and estimate < n:
        raise IdentifiabilityError(
            f"X holds about {estimate:.1f} numbers a row (by the distances of nearest rows), and "
            f"'n_latents' is {n}: the mixing has lost some latents, or there are fewer. Set "
            f"n_latents={max(round(estimate), 1)}, or measure more features."
        )


def _chosen(
    X: Matrix, span: LinearEncoder, kind: ReductionName, seed: int, *, flatten: bool
) -> Reduction:
    n = span.n_latents
    on_a_surface = partial(_flattened, seed=seed) if flatten else _spanned
    if kind == "linear" or n == X.shape[1]:
        return _linear(X, span)
    if kind == "links":
        return _linked(X, n, seed)
    if kind == "flow":
        return on_a_surface(X, n)
    if kind == "autoencoder":
        return _encoded(X, n, seed)
    plain = _linear(X, span)
    if plain.left_out < _NOTHING_LEFT:
        return plain
    linked = _linked(X, n, seed)
    best = linked if linked.left_out < _WORTHWHILE * plain.left_out else plain
    if best.left_out < _LITTLE_LEFT and fold_check(best.rows, X).passed is not False:
        return best
    encoded = _encoded(X, n, seed)
    folded = fold_check(encoded.rows, X).passed is False
    if folded and components_of(X, None)[0].n_latents <= _MOST_FOR_A_FLOW:
        return on_a_surface(X, n)
    return encoded


def _linear(X: Matrix, span: LinearEncoder) -> Reduction:
    decoder, rows = LinearDecoder.undoing(span, X), span(X)
    left_out = share_lost(X, decoder(rows))
    return Reduction(span, decoder, rows, left_out, "principal components of X")


def _linked(X: Matrix, n: int, seed: int) -> Reduction:
    links = learn_links(X, n, seed)
    values = links(X)
    span, _, _ = components_of(values, n)
    inside = _linear(values, span)
    return Reduction(
        Composed(links, span),
        ComposedDecoder(inside.decoder, LinksInverse(links)),
        inside.rows,
        inside.left_out,
        "principal components of X after monotone links of its features",
    )


def _flattened(X: Matrix, n: int, seed: int) -> Reduction:
    flat = learn_flattening(X, n, seed=seed)
    return Reduction(flat, CodesInverse(flat), flat(X), flat.error, _ON_A_SURFACE)


def _spanned(X: Matrix, n: int) -> Reduction:
    before, after, _ = leading_components(X, n)
    return Reduction(before, after, before(X), 0.0, "all principal components of X")


def _encoded(X: Matrix, n: int, seed: int) -> Reduction:
    codes = learn_autoencoder(X, n, seed=seed)
    return Reduction(codes, CodesInverse(codes), codes(X), codes.error, "codes of an autoencoder")


def _note(n_latents: int, how: str, left_out: float) -> Check:
    return Check("reduction", True, f"{n_latents} {how}; {left_out:.2g} of the variance is lost")
