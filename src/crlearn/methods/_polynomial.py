"""Polynomial mixing made linear: PolynomialReduction.

If features are polynomials of degree p of the latents, and span all of them, they are a linear
mixing of monomials. Among all linear functions of X the latents and their affine functions are
those of degree one. A product of two functions is again a linear function of X (and a constant) if,
and only if, their degrees add up to p at most. So functions b and c of X whose product is linear in
X have lower degrees, and all functions whose product with b is linear are one subspace: it holds
what has degree p - deg b and less, and has a dimension that tells which degree this is. What is
left is such a problem of a lower degree, until it is one.

b and c are found by turns: c is the function whose product with b is closest to a linear function
of X, a singular vector. Near a solution b is one function of low degree and a small error, and c
the same one with the opposite error, so that their mean is taken: convergence is quadratic then.

Interventional methods and `ObservationalCRL` find the latents behind the linear mixing that is
left. Ahuja et al. (2023) show that a polynomial decoder determines latents up to an affine map;
they train an autoencoder, where here everything is linear algebra. Welch, Zhang and Uhler (2024)
name such mixings as those to which their theory extends.

Cost: for M monomials, O(N M^4) time and O(N M^2) memory for the products, of at most 2,000 rows
or four times as many as products, and M^5 for each of some tens of steps. Four latents: 0.1 s with
degree 2 (M = 14), 1 s with degree 3 (M = 34).

References
----------
Ahuja, Mahajan, Wang and Bengio, Interventional causal representation learning, ICML 2023.
Zhang, Greenewald, Squires, Srivastava, Shanmugam and Uhler, Identifiability guarantees for causal
disentanglement from soft interventions, NeurIPS 2023.
Welch, Zhang and Uhler, Identifiability guarantees for causal disentanglement from purely
observational data, NeurIPS 2024.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from numbers import Integral
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from crlearn.base import Storable
from crlearn.exceptions import AssumptionWarning, IdentifiabilityError
from crlearn.inputs import Scaling
from crlearn.likelihood import some_rows
from crlearn.result import LinearEncoder

Matrix = NDArray[np.floating]

_LARGEST_DEGREE = 3
_RANK_TOLERANCE = 1e-10  # singular values of standardised features that count as zero
# As a rule the first or second start gets there, in about ten steps; where tails are heavy (cubes
# of squares of squares, 2,000 rows) one of four worlds needed more than twenty.
_STARTS, _STEPS = 100, 60
_EXACT = 1e-9  # products that are this close to linear functions are linear
_ALIKE = 0.5  # cosine from which on two functions are one with opposite errors
_FEWEST_ROWS, _ROWS_PER_PRODUCT = 2000, 4
# Share of the variance of X beside polynomials of what was found. Those of one to five latents
# leave 7e-7 and less (seeds 0 to 2, degree 2 and 3), noise of 0.1% leaves 9e-5 and more, other
# mixings with as many directions 0.03 and more.
_MOST_LEFT = 1e-5


def n_monomials(n: int, degree: int) -> int:
    """Return the number of monomials of n variables, without the constant."""
    return comb(n + degree, degree) - 1


def monomials(Z: Matrix, degree: int) -> Matrix:
    """Return the monomials of each row up to a degree, the constant first."""
    columns = [
        Z[:, list(factors)].prod(axis=1)
        for total in range(degree + 1)
        for factors in combinations_with_replacement(range(Z.shape[1]), total)
    ]
    return np.column_stack(columns)


def matching_degree(rank: int, n_latents: int | None) -> tuple[int, int]:
    """Return number of latents and degree (2 or 3) with as many monomials as X has directions."""
    for degree in range(2, _LARGEST_DEGREE + 1):
        for n in range(1, rank) if n_latents is None else (n_latents,):
            if n_monomials(n, degree) == rank:
                return n, degree
    if n_latents is None:
        few = sorted(n_monomials(n, degree) for n in range(1, 6) for degree in (2, 3))
        wanted = f"{', '.join(map(str, few[:-1]))} and so on"
    else:
        wanted = " or ".join(str(n_monomials(n_latents, degree)) for degree in (2, 3))
    raise IdentifiabilityError(
        "Features of a polynomial mixing of degree 2 or 3 must span as many directions as latents "
        f"have monomials: {wanted}. They span {rank}. A linear mixing needs no reduction; "
        "measurement noise, and rounding to single precision, fill more directions: take noise off "
        "first, and give X in double precision."
    )


def affine_part(rows: Matrix, n: int, degree: int, rng: np.random.Generator) -> Matrix:
    """Return the directions of rows along which they are affine functions of the latents.

    Parameters
    ----------
    rows
        White, with as many columns as there are monomials of `n` latents up to `degree`, and of
        their span.
    """
    basis = np.eye(rows.shape[1])
    while degree > 1:
        within, degree = lower_degrees(rows @ basis, n, degree, rng)
        basis = basis @ within  # orthonormal, so that rows stay white
    return basis


def lower_degrees(
    rows: Matrix, n: int, degree: int, rng: np.random.Generator
) -> tuple[Matrix, int]:
    """Return the directions whose product with one of them is linear, and their largest degree."""
    products = Products.of(rows)
    values, directions = products.by_turns(rng)
    for _ in range(1, _STARTS):
        if values[-1] <= _EXACT * values[0]:
            break
        others = products.by_turns(rng)
        values, directions = min((values, directions), others, key=lambda found: found[0][-1])
    sizes = {q: n_monomials(n, q) for q in range(1, degree)}
    # There is a gap between those whose product is linear, up to rounding, and the others.
    low = max(sizes, key=lambda q: values[-sizes[q] - 1] / max(values[-sizes[q]], _EXACT**2))
    return directions[:, -sizes[low] :], low


@dataclass(frozen=True, eq=False)
class Products:
    """What of products of directions is no linear function of rows.

    Attributes
    ----------
    factor
        Triangular: what is left of each product of two columns, up to a rotation of the rows.
    first, second
        The columns of each product.
    n_directions
        Number of columns.
    """

    factor: Matrix
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    n_directions: int

    @classmethod
    def of(cls, rows: Matrix) -> Products:
        """Return those of some rows."""
        first, second = np.triu_indices(rows.shape[1])
        products = rows[:, first] * rows[:, second]
        linear = np.linalg.qr(np.column_stack([np.ones(len(rows)), rows]))[0]
        for _ in range(2):  # once more for what rounding left
            products -= linear @ (linear.T @ products)
        factor = np.asarray(np.linalg.qr(products, mode="r"))
        return cls(factor, first, second, rows.shape[1])

    def with_direction(self, b: Matrix) -> Matrix:
        """Return the map from a direction to what is left of its product with `b`."""
        each = np.arange(len(self.first))
        coefficients = np.zeros((len(each), self.n_directions))
        coefficients[each, self.second] = b[self.first]
        coefficients[each, self.first] += np.where(self.first == self.second, 0, b[self.second])
        return self.factor @ coefficients

    def by_turns(self, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Find two directions whose product is most nearly linear, from a random first one.

        Returns singular values and vectors of products with the first, the largest first.
        """
        b = _unit(rng.normal(size=self.n_directions))
        values, vectors = self._spectrum(b)
        for _ in range(_STEPS):
            last, c = values[-1], vectors[-1]
            cosine = b @ c
            b = _unit(b + np.sign(cosine) * c) if abs(cosine) > _ALIKE else c
            values, vectors = self._spectrum(b)
            if values[-1] <= _EXACT * values[0] and values[-1] > last / 2:
                break  # nothing but rounding is left
        return values, vectors.T

    def _spectrum(self, b: Matrix) -> tuple[Matrix, Matrix]:
        values, vectors = np.linalg.svd(self.with_direction(b), full_matrices=False)[1:]
        return values, vectors


def _unit(b: Matrix) -> Matrix:
    return b / np.linalg.norm(b)


class PolynomialReduction(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Storable):
    """Affine functions of latents behind a polynomial mixing, as many as there are latents.

    A transformer for a Pipeline that ends in a method for linear mixing. It is linear in X, and
    warns if X is no polynomial of what it found.

    Parameters
    ----------
    n_latents
        Number of latents; None: as many as fit the number of directions of X, of degree 2 if there
        are such.
    random_state
        Seed of the starts.

    Attributes
    ----------
    degree_
        2 or 3, as the number of directions of X says.
    encoder_
        The linear map.
    share_left_
        Share of the variance of standardised features that no polynomial of that degree explains.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from crlearn import LinearInterventionCRL
    >>> from crlearn.data import make_linear_interventional
    >>> from crlearn.methods import PolynomialReduction
    >>> world = make_linear_interventional(3, 12, mixing="quadratic", random_state=0)
    >>> model = make_pipeline(PolynomialReduction(3), LinearInterventionCRL(3))
    >>> model.fit(world.X, world.y).transform(world.X).shape
    (4000, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_latents": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }
    encoder_: LinearEncoder
    degree_: int
    share_left_: float

    def __init__(self, n_latents: int | None = None, *, random_state: Any = None) -> None:
        self.n_latents = n_latents
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the directions of X; `y` is not used."""
        self._validate_params()
        X = cast(Matrix, validate_data(self, cast(Any, X), dtype=np.float64, ensure_min_samples=2))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        scaling = Scaling.of(X)
        standardised = scaling(X)
        sizes = np.linalg.svd(standardised, compute_uv=False)
        rank = int((sizes > _RANK_TOLERANCE * sizes[0]).sum())
        n, self.degree_ = matching_degree(rank, self.n_latents)
        rows, whitener = _whitened(_enough(standardised, rank), rank)
        matrix = affine_part(rows, n, self.degree_, rng).T @ whitener
        matrix = _whitened(standardised @ matrix.T, n)[1] @ matrix
        self.encoder_ = LinearEncoder(matrix / scaling.scale, scaling.mean)
        powers = monomials(self.encoder_(X), self.degree_)
        left = standardised - powers @ np.linalg.lstsq(powers, standardised)[0]
        self.share_left_ = float((left**2).mean() / (standardised**2).mean())
        if self.share_left_ > _MOST_LEFT:
            warnings.warn(
                f"PolynomialReduction: X is no polynomial of degree {self.degree_} of {n} "
                f"functions: a share of {self.share_left_:.2g} of its variance is left, where "
                f"{_MOST_LEFT:g} is tolerated. What it returns is no affine function of latents.",
                AssumptionWarning,
                stacklevel=2,
            )
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """Return affine functions of the latents of each row."""
        check_is_fitted(self)
        rows = validate_data(self, cast(Any, X), dtype=np.float64, reset=False)
        return self.encoder_(cast(Matrix, rows))

    @property
    def _n_features_out(self) -> int:
        return self.encoder_.n_latents


def _whitened(rows: Matrix, n: int) -> tuple[Matrix, Matrix]:
    """Return rows in their `n` largest directions, white, and the map to there."""
    left, sizes, right = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    scale = np.sqrt(len(rows))
    return left[:, :n] * scale, right[:n] * (scale / sizes[:n, None])


def _enough(rows: Matrix, m: int) -> Matrix:
    """Return rows that are enough to tell products from linear functions, or say that they lack."""
    needed = (m + 1) * (m + 2) // 2  # products, linear functions and a constant
    if len(rows) <= needed:
        raise ValueError(
            f"X must have more than {needed} rows to tell products of its {m} directions from "
            f"linear functions of them. Got {len(rows)}."
        )
    return some_rows(rows, max(_FEWEST_ROWS, _ROWS_PER_PRODUCT * needed))
