"""How many latents X holds.

Without noise that is the rank of X. With noise, features that share k latents have a covariance of
rank k beside noise variances of their own (factor analysis). For k = 0, 1, ... the factor model is
fitted by maximum likelihood to the covariance inside environments (for given noise variances the
loadings are the leading eigenvectors in units of the noise: Joreskog, Psychometrika, 1967), and the
largest variance that is left beside the k factors is compared with what noise alone has: the law of
Tracy and Widom (Johnstone, Annals of Statistics, 2001). The first k beside which nothing but noise
is left is the number of latents (Kritchman and Nadler, IEEE Transactions on Signal Processing,
2009).

Environments show more: noise is the same in all, so that whatever changes between them is a latent.
The likelihoods of k and k + 1 factors with covariances of their own in every environment are
compared from there on. In a direction of noise, its covariances with k latents in E environments
and its E variances deviate at random; the best of d - k directions gains about as much as the
largest eigenvalue of a Wishart matrix with (E - 1) k + E degrees of freedom has, by the same law.

Latents need not be Gaussian, and mechanisms not be linear: what is left beside the factors depends
on the noise alone (Anderson and Amemiya, Annals of Statistics, 1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import ArpackError, eigsh
from scipy.stats import gamma

from crlearn.exceptions import IdentifiabilityError
from crlearn.inputs._components import RANK_TOLERANCE
from crlearn.inputs._factors import (
    MOST_ENTRIES,
    Covariances,
    Factors,
    find_factors,
    in_units,
)
from crlearn.inputs._span import Rank, Scaling, can_tell_noise, components_of, freedom_of_factors
from crlearn.result import Check

Matrix = NDArray[np.floating]
Vector = NDArray[np.floating]
NumberOfLatents = int | str | None  # a text: "auto", counted

_NAME = "number of latents"
_REFUSAL = (
    "The number of latents does not stand out: no number up to {most} and independent noise "
    "explain what {n_features} features of X have in common. There may be more latents, or as many "
    "as features; the mixing may not be linear; or features may share noise (batches, say). Set "
    "n_latents to a number if you know it."
)
_LEVEL = 1e-4  # p-value of noise below which there is another latent
_DOUBT = 1e-2  # p-value of noise below which there may be one
# Mean distances between the logarithms of the strengths of latents. One that is weaker than all
# others by more than that is rare: 3% of 1,800 observational worlds (squares, networks, linear; 3
# to 10 latents, 20 to 200 features, noise of 1 to 30%, seeds 0 to 9) held one that was not seen and
# not reported, and in 3% the warning was needless (both at a level of 1e-3).
_USUAL_GAPS = 2.0
# Degrees of freedom with which a few factors and noise explain what other latents make. Where 4 to
# 10 features were as many latents without noise (300 to 5,000 rows, graphs "er" and "chain", "y"
# for four, mechanisms "norm_squared", seeds 0 to 9), 10 of 450 worlds were explained so: 7 with one
# degree, 3 with two, none with more. Of 330 with seeds 100 to 109 (4, 5, 6, 8 and 10 features):
# 1, 5 and none.
_FEW_DEGREES = 2
# The law of Tracy and Widom as a shifted gamma law (Chiani, Journal of Multivariate Analysis, 2014)
_SHAPE, _SCALE, _SHIFT = 46.446, 0.186054, 9.84801
_SMALLEST_NOISE = RANK_TOLERANCE**2  # beside the variance of a feature
_MOST_FEATURES = 1000  # that are looked at; each step solves an eigenproblem among them
_MOST_LATENTS = 50  # that are counted
_ROWS_PER_FEATURE = 2  # with fewer, factors explain single features and their noise
_ROWS_PER_LATENT = 10  # of an environment; with fewer, likelihood ratios have another law
_SMALL = 100  # features; leading eigenvectors of larger problems are found by Lanczos' method


@dataclass(frozen=True, eq=False)
class Count:
    """The number of latents, and how it was found.

    Attributes
    ----------
    value
        The number.
    check
        Whether it stands out.
    beside
        What is left beside 0, 1, ... latents: the largest variance, as a multiple of the largest
        that noise alone has (or rounding, where there is no noise); nan where it was not looked at.
    changes
        What changes between environments beside them, as a multiple of what noise alone does; nan
        where it was not looked for.
    stands_out
        Whether a number explains X; otherwise the value is the rank of X.
    factors
        So many factors of all features, if they were found on the way.
    """

    value: int
    check: Check
    beside: Vector
    changes: Vector
    stands_out: bool = True
    factors: Factors | None = None

    @property
    def details(self) -> dict[str, Any]:
        """What a result keeps of it."""
        return {"latent_count": {"beside": self.beside, "changes": self.changes}}

    def compared(self, n_latents: int) -> Check:
        """Check that it is a number that came from elsewhere."""
        if n_latents == self.value:
            return self.check
        said = f"{n_latents} are taken, as environments say; X by itself says {self.check.detail}"
        return Check(self.check.name, False, said)


def resolve_n_latents(
    X: Matrix, n_latents: NumberOfLatents, codes: NDArray[np.intp] | None = None
) -> tuple[int | None, tuple[Check, ...], dict[str, Any]]:
    """Return the number of latents, what is to be said of it, and what the result keeps.

    A number that is given stays as it is.
    """
    if n_latents is None or not isinstance(n_latents, str):
        return n_latents, (), {}
    count = count_latents(X, codes)
    return count.value, (count.check,), count.details


def count_latents(
    X: Matrix,
    codes: NDArray[np.intp] | None = None,
    rank: Rank | None = None,
    *,
    features: Covariances | None = None,
    likely: int = 0,
    refuse: bool = True,
) -> Count:
    """Find the number of latents behind the columns of X.

    Parameters
    ----------
    X
        Rows of all environments.
    codes
        Number of each row's environment; None: there is one.
    rank
        Of X, if it is known.
    features
        Covariances of its columns in each environment, if they are known.
    likely
        A number that is likely: the search begins next to it. From 0 it finds the same, unless
        fewer latents leave less than more do.
    refuse
        Whether to refuse to go on if no number stands out, although features are many enough.
    """
    if rank is None:
        rank = components_of(X, None)[1]
    if rank.is_low:
        return _exact(rank)
    if features is None:
        features = _some_features(X, np.zeros(len(X), dtype=np.intp) if codes is None else codes)
    shared = _Shared.of(features)
    most = _most_latents(shared.n_features)
    n, steps = shared.first_noise(likely, most)
    many = 2 * most >= shared.n_features
    explained = n <= most
    if rank.stands_out and not (explained and shared.prefers(n)):
        return _exact(rank)
    if refuse and many and not explained:
        raise IdentifiabilityError(_REFUSAL.format(most=most, n_features=shared.n_features))
    if not explained or (n == 0 and not many):
        return _undetermined(rank, steps, shared.n_features, most)
    if n == 0:
        return _nothing(steps[0])
    changes, factors = shared.changes(n, most)
    n = max(changes, default=n)
    needed = {*range(min(steps), n + 1), *changes, *(() if changes else (0,))}
    steps = {k: steps.get(k) or shared.beside(k) for k in sorted(needed)}
    freedom = freedom_of_factors(shared.n_features, n)
    return _found(steps, changes, freedom, factors if shared.covariances is features else None)


def _exact(rank: Rank) -> Count:
    n = rank.value
    beside = np.maximum(rank.variances[: n + 1], 0.0) / rank.variances[0] / RANK_TOLERANCE**2
    detail = f"{n}: X is an exact mixture of so many, of rank {n} in {rank.n_varying} columns"
    return Count(n, Check(_NAME, True, detail), beside, np.full(n + 1, np.nan))


def _found(steps: _Steps, changes: _Steps, freedom: int, factors: Factors | None) -> Count:
    n = max(steps)
    said = (
        f"{n}: beside them the largest variance is {steps[n].size:.3g} times the noise, where "
        f"noise alone has up to {steps[n].most:.3g} (p = {steps[n].p_value:.2g})"
    )
    if changes:
        said += (
            f", and no more changes between environments than noise (p = {changes[n].p_value:.2g})"
        )
        clear = changes[n].p_value >= _DOUBT
    else:
        strongest, weakest = steps[0].size - 1, steps[n - 1].size - 1
        margin = weakest / (steps[n - 1].most - 1)
        gap = (strongest / weakest) ** (1 / max(n - 1, 1))
        clear = steps[n].p_value >= _DOUBT and bool(margin >= gap**_USUAL_GAPS)
        said += f"; the weakest is {margin:.3g} times as strong as one must be to be seen"
    if not clear:
        said += ": there may be more, too weak to be told from the noise"
    if not changes and freedom <= _FEW_DEGREES:
        clear = False
        said += (
            f"; so few features hardly speak against it ({freedom} degrees of freedom), and as "
            "many latents as features, without noise, may be behind them, too: set n_latents, or "
            "measure more features"
        )
    check = Check(_NAME, clear, said)
    return Count(n, check, _levels(steps, n), _levels(changes, n), factors=factors)


def _nothing(step: _Step) -> Count:
    said = (
        "none stands out: what features have in common is at most "
        f"{step.size:.3g} times the noise, and noise alone has up to {step.most:.3g}; one is taken"
    )
    return Count(1, Check(_NAME, False, said), _levels({0: step}, 0), _levels({}, 0))


def _undetermined(rank: Rank, steps: _Steps, n_features: int, most: int) -> Count:
    """Take the rank: features are too few to tell latents from noise.

    Nothing speaks against it, and where there are as many latents as features nothing ever could.
    """
    said = (
        f"{rank.value}, the rank of X: not more than {max(most, 0)} latents could be told from "
        f"noise in {n_features} features. Set n_latents if there are fewer behind noise"
    )
    check = Check(_NAME, True, said)
    last = max(steps, default=-1)
    return Count(rank.value, check, _levels(steps, last), _levels({}, last), stands_out=False)


def _levels(steps: _Steps, last: int) -> Vector:
    """Return sizes as multiples of what noise has, for 0, 1, ... and `last` latents."""
    sizes = np.full(last + 1, np.nan)
    for k, step in steps.items():
        sizes[k] = step.size / step.most
    return sizes


def _spread(n_features: int, n_rows: int, n_environments: int) -> NDArray[np.intp]:
    """Return the positions of the features that are looked at: some, if they are too many."""
    most = min((n_rows - n_environments) // _ROWS_PER_FEATURE, _MOST_FEATURES)
    n = min(n_features, most, int(np.sqrt(MOST_ENTRIES / n_environments)))
    return np.linspace(0, n_features - 1, n).round().astype(int)


def _some_features(X: Matrix, codes: NDArray[np.intp]) -> Covariances:
    scaling = Scaling.of(X)
    varying = np.flatnonzero(~scaling.constant)
    chosen = varying[_spread(len(varying), len(X), len(np.unique(codes)))]
    columns = slice(None) if len(chosen) == X.shape[1] else chosen
    return Covariances.of_columns(X[:, columns], codes, scaling.of_columns(columns))


def _most_latents(n_features: int) -> int:
    """Return the largest number of latents that can be told from noise."""
    told = [k for k in range(_MOST_LATENTS + 1) if k < n_features and can_tell_noise(n_features, k)]
    return max(told, default=-1)


class _Step(NamedTuple):
    """What is left beside so many factors, most that noise has, and how likely it has as much."""

    size: float
    most: float
    p_value: float

    @property
    def is_noise(self) -> bool:
        return self.p_value >= _LEVEL

    @classmethod
    def of(cls, size: float, n_directions: float, freedom: int) -> _Step:
        """Compare with the largest variance that noise has in so many directions."""
        rows, columns = np.sqrt(freedom - 0.5), np.sqrt(n_directions - 0.5)
        centre = (rows + columns) ** 2 / freedom
        spread = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3) / freedom
        law = gamma(_SHAPE, loc=-_SHIFT, scale=_SCALE)
        most = float(centre + spread * law.isf(_LEVEL))
        return cls(size, most, float(law.sf((size - centre) / spread)))


_Steps = dict[int, _Step]  # by the number of factors


@dataclass(frozen=True, eq=False)
class _Shared:
    """Covariances of features in environments, and their correlations inside all together."""

    covariances: Covariances
    correlations: Matrix

    @classmethod
    def of(cls, covariances: Covariances) -> _Shared:
        """Take informative features; some of them, if they are too many."""
        sizes = covariances.sizes
        chosen = _spread(covariances.n_features, int(sizes.sum()), len(sizes))
        if len(chosen) < covariances.n_features:
            covariances = covariances.of_features(chosen)
        covariances = covariances.of_informative()
        assert covariances.pooled is not None
        return cls(covariances, in_units(covariances.pooled, covariances.variances))

    @property
    def n_features(self) -> int:
        """Number of features that are looked at."""
        return self.correlations.shape[1]

    def first_noise(self, likely: int, most: int) -> tuple[int, _Steps]:
        """Return the first number of factors beside which noise is left, or one more than `most`.

        Whatever is left beside others that were looked at on the way is returned, too.
        """
        steps: _Steps = {}

        def is_noise(k: int) -> bool:
            if k not in steps:
                steps[k] = self.beside(k)
            return steps[k].is_noise

        k = max(min(likely - 1, most), 0)
        while k > 0 and is_noise(k):
            k -= 1
        while k <= most and not is_noise(k):
            k += 1
        return k, steps

    def beside(self, k: int) -> _Step:
        """Return the largest variance beside k factors, in units of the noise."""
        left = np.linalg.eigvalsh(in_units(self.correlations, self._noise_beside(k)))
        sizes = self.covariances.sizes
        freedom = int(sizes.sum()) - len(sizes)
        return _Step.of(float(left[-1 - k]), self.n_features - k, freedom - k)

    def changes(self, k: int, most: int) -> tuple[_Steps, Factors | None]:
        """Return what one factor more explains of the environments, until it is noise.

        Nothing where there is one environment, or one that is too small. The factors of the last
        number that was looked at are returned, too.
        """
        sizes = self.covariances.sizes
        steps: _Steps = {}
        factors = more = find_factors(self.covariances, k) if len(sizes) > 1 else None
        while more is not None and k < most and min(sizes) >= _ROWS_PER_LATENT * (k + 1):
            factors = more
            more = find_factors(self.covariances, k + 1, near=factors)
            freedom = (len(sizes) - 1) * k + len(sizes)
            ratio = 2 * (more.log_likelihood - factors.log_likelihood)
            # A variance is twice as steep in the square of a direction as a covariance.
            n_directions = (self.n_features - k) * (1 + len(sizes) / freedom)
            steps[k] = _Step.of(max(ratio, 0.0) / freedom, n_directions, freedom)
            if steps[k].is_noise:
                break
            k += 1
        return steps, factors

    def prefers(self, k: int) -> bool:
        """Whether so many factors are a better model than any covariance (BIC, Schwarz 1978)."""
        d, sizes = self.n_features, self.covariances.sizes
        left = np.linalg.eigvalsh(in_units(self.correlations, self._noise_beside(k)))[: d - k]
        n_rows, saved = sizes.sum() - len(sizes), freedom_of_factors(d, k)
        return bool(n_rows * (left - np.log(left) - 1).sum() < saved * np.log(n_rows))

    def _noise_beside(self, k: int) -> Vector:
        """Return the most likely variances of the noise if there are k factors."""
        d = self.n_features
        if k == 0:
            return np.ones(d)

        def loss(log_noise: Vector) -> tuple[float, Vector]:
            scale = np.exp(-log_noise / 2)
            values, axes = _leading(scale[:, None] * self.correlations * scale, k)
            values = np.maximum(values, 1.0)
            total = scale**2
            value = total.sum() - (values - np.log(values)).sum() + log_noise.sum()
            return float(value), (axes**2) @ (values - 1) - total + 1

        start = np.log(np.clip((1 - k / (2 * d)) * self._beside_the_others, _SMALLEST_NOISE, 1.0))
        bounds = [(np.log(_SMALLEST_NOISE), 0.0)] * d
        options = {"maxiter": 200, "ftol": 1e-10}
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return np.exp(found.x)

    @property
    def _beside_the_others(self) -> Vector:
        """Variance of each feature given all others: noise is never larger."""
        values, axes = np.linalg.eigh(self.correlations)
        return 1 / ((axes**2) @ (1 / np.maximum(values, _SMALLEST_NOISE)))


def _leading(matrix: Matrix, k: int) -> tuple[Vector, Matrix]:
    """Return the k largest eigenvalues of a symmetric matrix and their vectors."""
    if len(matrix) > max(_SMALL, 4 * k):
        try:
            return cast(Any, eigsh(matrix, k, which="LA", v0=np.ones(len(matrix))))
        except ArpackError:
            pass
    values, axes = np.linalg.eigh(matrix)
    return values[-k:], axes[:, -k:]
