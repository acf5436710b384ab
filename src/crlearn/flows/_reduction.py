"""Checks of a reduction of X: how many numbers X holds, and whether the reduction folds it.

Rows that n numbers determine lie on a surface of n dimensions. Around each row the surface is
nearly flat, so that its nearest rows show how many dimensions it has and in which directions it
runs. Where the reduction folds the surface, two sheets of it come to lie on each other, one of them
turned over: a tangent frame that is carried along the surface arrives there as its mirror image.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from crlearn.inputs import Scaling
from crlearn.result import Check

Matrix = NDArray[np.floating]

_MOST_COMPONENTS = 40  # of X in which neighbours are looked for
_MOST_NUMBERS = 2**22  # from which they are taken
_LEAST_VARIANCE = 1e-10  # of a component that is no rounding error, beside that of the first

_ROWS_FOR_FOLDS = 5000
_FEWEST_ROWS_FOR_FOLDS = 500
_NEIGHBOURHOOD = 50  # rows that show a tangent plane; fewer follow measurement noise
_LINKS = 10  # nearest rows to which a tangent frame is carried
_SWEEPS = 20  # in which rows go with the majority of their neighbours; they end by themselves
# Principal components of worlds of six kinds of mixings with 2 to 8 latents, seeds 0 to 9. Where no
# row was turned over, the share found was at most 0.03 without noise (70 worlds), and with noise at
# most 3.4 times the share of contradictions. Where 10% or more were, it was above 0.03 in 37 of 40.
_FOLDED = 0.03
_PER_CONTRADICTION = 4.0
# Share of the variance outside of n dimensions up to which a surface is flat after a flow: it was
# 0.0003 to 0.0023 behind leaky ReLU layers, where Jacobians of the truth show no folds (development
# seeds 0 to 3), and 0.03 to 0.08 for bands that are bent by more than half a turn.
_FLAT = 0.01

_ROWS_FOR_DIMENSION = 2000
_FEWEST_ROWS_FOR_DIMENSION = 200
_DIMENSION_NEIGHBOURS = 20
_COVERED = 0.95  # share of the variance whose components count alike


class Folds(NamedTuple):
    """How far a reduction folds the surface of X.

    Attributes
    ----------
    share
        Of the rows, that lie on a sheet turned over; at most one half.
    contradictions
        Share of the links between neighbours that no choice of sides satisfies: noise.
    """

    share: float
    contradictions: float


def folds(reduced: Matrix, X: NDArray[np.floating]) -> Folds | None:
    """Measure which share of the rows of `X` the reduction turns over; None: too few rows.

    Parameters
    ----------
    reduced
        The reduced rows.
    X
        The rows before.

    Notes
    -----
    Each row gets a frame of its tangent plane (from the rows that are nearest in X), and a side:
    frames of neighbours have the same orientation, as far as that can be had for all. The sign of
    the determinant of the local regression of `reduced` on the frame then says which way round the
    row arrives. Cost: O(N^2 d) for the neighbours of at most 5,000 rows, O(N d^3) for the frames
    with at most 40 components.
    """
    rows = _some_rows(len(X), _ROWS_FOR_FOLDS)
    if len(rows) < _FEWEST_ROWS_FOR_FOLDS:
        return None
    n = reduced.shape[1]
    surface = _components(X, rows, n)
    if surface.shape[1] <= n:
        return Folds(0.0, 0.0)
    neighbours = _neighbours(surface, _NEIGHBOURHOOD)
    frames, signs = _frames(surface, np.asarray(reduced, dtype=float)[rows], neighbours, n)
    links = neighbours[:, 1 : _LINKS + 1]
    turns = np.linalg.det(np.einsum("idn,ijdm->ijnm", frames, frames[links]))
    side = _sides(links, turns)
    met = side != 0  # rows that no links connect with the others stay out
    contradicts = side[:, None] * side[links] * turns < 0
    share = float((side * signs > 0)[met].mean())
    contradictions = float(np.abs(turns)[contradicts].sum() / np.abs(turns).sum())
    return Folds(min(share, 1 - share), contradictions)


def fold_check(reduced: Matrix, X: NDArray[np.floating], off_plane: float = 1.0) -> Check:
    """Check that the reduction is one to one on the rows of `X`.

    Parameters
    ----------
    reduced
        The reduced rows.
    X
        The rows before.
    off_plane
        Share of the variance outside of a plane after an invertible map, if that is the reduction:
        where it is next to nothing, nothing folds. Neighbours are not asked then, as their tangent
        planes say nothing where kinks bend a surface in many dimensions.
    """
    name = "the reduction does not fold"
    if off_plane <= _FLAT:
        said = f"an invertible map leaves {off_plane:.2g} of the variance outside of a plane"
        return Check(name, True, f"{said}; up to {_FLAT} passes")
    found = folds(reduced, X)
    if found is None:
        return Check(name, None, f"{len(X)} rows are too few to tell")
    share, contradictions = found
    said = f"{share:.1%} of the rows lie on a sheet turned over; up to {_FOLDED:.0%} passes"
    if share <= _FOLDED:
        return Check(name, True, said)
    if share - _PER_CONTRADICTION * contradictions > _FOLDED:
        return Check(name, False, f"{said}: different latents have the same reduced coordinates")
    return Check(name, None, f"{said}, but measurement noise leads to as many as that")


def _frames(
    surface: Matrix, reduced: Matrix, neighbours: NDArray[np.intp], n: int
) -> tuple[Matrix, Matrix]:
    """Return a frame of each tangent plane, and the sign with which the reduction maps it."""
    near = surface[neighbours]
    near = near - near.mean(axis=1, keepdims=True)
    _, directions = np.linalg.eigh(np.einsum("ikd,ike->ide", near, near))
    frames = directions[:, :, -n:]
    inside = np.einsum("ikd,idn->ikn", near, frames)
    return frames, np.sign(np.linalg.det(np.einsum("ikn,ikm->inm", inside, reduced[neighbours])))


def _sides(links: NDArray[np.intp], turns: Matrix) -> Matrix:
    """Give each row a side, 1 or -1, so that neighbours agree; 0 where no links lead.

    Sides are handed on along the tree of the best links, then each row goes with its neighbours.
    """
    n_rows, n_links = links.shape
    starts = np.repeat(np.arange(n_rows), n_links)
    graph = csr_matrix((turns.ravel(), (starts, links.ravel())), shape=(n_rows, n_rows))
    graph = ((graph + graph.T) / 2).tocsr()
    lengths = graph.copy()
    lengths.data = 1 + 1e-6 - np.abs(lengths.data)
    tree = minimum_spanning_tree(lengths)
    order, before = _from_the_largest_part(tree + tree.T, n_rows)
    side = np.zeros(n_rows)
    side[order[0]] = 1.0
    turned = np.sign(np.asarray(graph[order[1:], before[order[1:]]]).ravel())
    for row, turn in zip(order[1:], turned, strict=True):
        side[row] = side[before[row]] * turn
    for _ in range(_SWEEPS):
        following = np.where(side != 0, np.sign(graph @ side + 1e-9 * side), 0.0)
        if (following == side).all():
            break
        side = following
    return side


def _from_the_largest_part(
    tree: csr_matrix, n_rows: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the largest connected part, nearest to its root first, and whence."""
    left = np.ones(n_rows, dtype=bool)
    largest = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    while left.sum() > len(largest[0]):
        order, before = breadth_first_order(tree, int(np.argmax(left)), directed=False)
        left[order] = False
        if len(order) > len(largest[0]):
            largest = order, before
    return largest


def intrinsic_dimension(X: NDArray[np.floating], n_alike: int | None = None) -> float | None:
    """Estimate how many numbers determine a row of `X`; None: too few rows.

    Parameters
    ----------
    X
        Rows.
    n_alike
        Leading principal components that are given the same variance, the last of these and those
        after it the same units; by default as many as hold 95% of the variance.

    Notes
    -----
    From the distances of each row to its 20 nearest among 2,000 (Levina and Bickel, 2004, with the
    mean of MacKay and Ghahramani). So few rows have no neighbours close by, and estimates are too
    small: what is returned is the dimension in which Gaussian rows have the same estimate.
    Cost: O(N^2 d) for at most 2,000 rows.
    """
    rows = _some_rows(len(X), _ROWS_FOR_DIMENSION)
    surface = np.unique(_components(X, rows, n_alike), axis=0)
    if len(surface) < _FEWEST_ROWS_FOR_DIMENSION:
        return None
    estimate = _nearest_neighbour_estimate(surface)
    rng = np.random.default_rng(0)
    before, dimension = 0.0, 1
    while True:
        reference = _nearest_neighbour_estimate(rng.standard_normal((len(surface), dimension)))
        if reference >= estimate or dimension >= surface.shape[1]:
            return dimension - 1 + min((estimate - before) / (reference - before), 1.0)
        before, dimension = reference, dimension + 1


def dimension_check(X: NDArray[np.floating], n_latents: int) -> Check:
    """Check that `n_latents` numbers determine a row of `X`.

    Parameters
    ----------
    X
        Rows.
    n_latents
        Number of latents.
    """
    name = f"X holds {n_latents} number{'' if n_latents == 1 else 's'}"
    estimate = intrinsic_dimension(X, n_latents)
    if estimate is None:
        return Check(name, None, f"{len(X)} rows are too few to tell")
    fewest, most = _dimensions_that_pass(n_latents)
    said = (
        f"nearest neighbours show about {estimate:.1f} dimensions; {fewest:.1f} to {most:.1f} pass"
    )
    if estimate < fewest:
        return Check(name, False, f"{said}: the mixing has lost some latents, or there are fewer")
    if estimate > most:
        return Check(name, False, f"{said}: there are more latents, or measurement noise")
    return Check(name, True, said)


def _dimensions_that_pass(n_latents: int) -> tuple[float, float]:
    """Return the estimates that so many latents may have.

    Latents that depend on each other make neighbourhoods of 20 rows look flat, bent mixings make
    them look thick or, if there are many, thin. Six kinds of mixings without noise, seeds 0 to 9,
    had 1.9 to 2.0 for 2 latents, 2.8 to 3.2 for 3, 3.7 to 5.7 for 5, 5.3 to 10.4 for 8 and 6.1 to
    10.5 for 10. Four latents in the place of five had 2.9 to 3.0 (seeds 0 to 2), six in the place
    of eight 3.7 to 4.0, eight in the place of ten 4.4 to 4.7. Measurement noise adds to this, most
    where there are few latents: 2% of the features' sd made 2 latents look like 2.6 to 3.7.
    """
    return n_latents - 0.5 - 0.55 * max(n_latents - 3, 0), 1.3 * n_latents + 0.3


def _nearest_neighbour_estimate(rows: Matrix) -> float:
    k = _DIMENSION_NEIGHBOURS
    distances = NearestNeighbors(n_neighbors=k + 1).fit(rows).kneighbors(rows)[0][:, 1:]
    return float((k - 2) / np.log(distances[:, -1:] / distances[:, :-1]).sum(axis=1).mean())


def _neighbours(rows: Matrix, n_neighbours: int) -> NDArray[np.intp]:
    """Return the nearest rows of each row, itself the first."""
    search = NearestNeighbors(n_neighbors=n_neighbours + 1).fit(rows)
    return search.kneighbors(rows, return_distance=False)


def _some_rows(n_rows: int, most: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).permutation(n_rows)[:most]


def _components(X: NDArray[np.floating], chosen: NDArray[np.intp], n_alike: int | None) -> Matrix:
    """Return principal components of some rows, the leading ones with the same variance.

    Those after them keep their sizes beside the last of these.
    """
    numbers_per_row = int(np.prod(X.shape[1:]))
    most_rows = max(_MOST_NUMBERS // numbers_per_row, 10 * _MOST_COMPONENTS)
    some = np.asarray(X[_some_rows(len(X), most_rows)], dtype=float).reshape(-1, numbers_per_row)
    scaling = Scaling.of(some)
    variances, directions = _directions(scaling(some))
    kept = min(int((variances > _LEAST_VARIANCE * variances[0]).sum()), _MOST_COMPONENTS)
    if n_alike is None:
        n_alike = 1 + int(np.searchsorted(variances.cumsum() / variances.sum(), _COVERED))
    least = variances[min(n_alike, kept) - 1]
    outward = directions[:kept].T / np.sqrt(np.maximum(variances[:kept], least))
    blocks = np.array_split(chosen, -(-len(chosen) // most_rows))
    return np.concatenate(
        [scaling(np.asarray(X[b], dtype=float).reshape(len(b), -1)) @ outward for b in blocks]
    )


def _directions(standardised: Matrix) -> tuple[Matrix, Matrix]:
    """Return variances and directions of all principal components, or of the leading ones."""
    if standardised.shape[1] > 5 * _MOST_COMPONENTS:
        _, sizes, directions = randomized_svd(standardised, _MOST_COMPONENTS, random_state=0)
    else:
        _, sizes, directions = np.linalg.svd(standardised, full_matrices=False)
    return sizes**2 / len(standardised), directions
