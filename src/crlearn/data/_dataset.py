"""`Dataset`: observations, side information and, for simulated worlds, the truth behind them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crlearn.data._random import RandomState
from crlearn.tags import stored

if TYPE_CHECKING:
    from crlearn.data.model._mixing import Mixing
    from crlearn.data.model._scm import SCM

_ROWS_PER_BLOCK = 8192


@stored("data/truth")
@dataclass(frozen=True, eq=False)
class Truth:
    """What a simulated world knows about itself. No estimator ever sees it.

    Environments are counted in the order of ``Dataset.environments``.

    Attributes
    ----------
    Z
        Latent causal variables, one row a sample.
    noise
        Exogenous noise of each latent, one row a sample; None if it is not known.
    graph
        Observational causal graph; ``graph[i, j]`` is True if latent i causes latent j. None if it
        is not known: the latents are real data.
    targets
        ``targets[e, j]`` is True if environment e intervenes on latent j.
    mixing
        The map from latents to (noise-free) observations.
    scms
        One structural causal model for each environment; None if they were not kept (a file holds
        no user's callables) or if no model has the latents' density.
    measurement_noise
        Standard deviation of the noise that was added to each feature (root of the mean square,
        where features differ or are counts).
    active
        ``active[i, j]`` is False if latent j is switched off in sample i; None if none ever is.
    latent_names
        What the latents are, one name for each; None if they are anonymous.
    blocks
        Columns of `Z` that are always switched on and off together, one tuple for each block; None
        if each latent goes its own way.
    """

    Z: NDArray[np.floating]
    noise: NDArray[np.floating] | None
    graph: NDArray[np.bool_] | None
    targets: NDArray[np.bool_]
    mixing: Mixing
    scms: tuple[SCM, ...] | None = None
    measurement_noise: float = 0.0
    active: NDArray[np.bool_] | None = None
    latent_names: tuple[str, ...] | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name, dtype in (("Z", float), ("noise", float), ("graph", bool), ("targets", bool)):
            object.__setattr__(self, name, _read_only(getattr(self, name), dtype))
        object.__setattr__(self, "active", _read_only(self.active, bool))
        if self.scms is not None:
            object.__setattr__(self, "scms", tuple(self.scms))
        if self.blocks is not None:
            blocks = tuple(tuple(map(int, block)) for block in self.blocks)
            object.__setattr__(self, "blocks", blocks)

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.Z.shape[1]

    def log_density(self, Z: ArrayLike, environment: int = 0) -> NDArray[np.floating]:
        """Exact log-density of the latents in an environment, ``(N,)``."""
        return self._scm(environment).log_density(Z)

    def score(self, Z: ArrayLike, environment: int = 0) -> NDArray[np.floating]:
        """Exact gradient of the log-density of the latents, ``(N, n_latents)``."""
        return self._scm(environment).score(Z)

    def score_jacobian(self, Z: ArrayLike, environment: int = 0) -> NDArray[np.floating]:
        """Exact Jacobian of the score of the latents, ``(N, n_latents, n_latents)``."""
        return self._scm(environment).score_jacobian(Z)

    def score_difference(
        self, Z: ArrayLike, environment: int, reference: int = 0
    ) -> NDArray[np.floating]:
        """Score in the reference minus score in the environment, ``(N, n_latents)``."""
        for place in (reference, environment):
            if not self._scm(place).has_density:
                raise ValueError(
                    f"Environment {place} sets latents to values (a do-intervention): its latents "
                    "have no density together, and no scores that others could be compared with."
                )
        return self.score(Z, reference) - self.score(Z, environment)

    def observed_score_difference(
        self, Z: ArrayLike, environment: int, reference: int = 0
    ) -> NDArray[np.floating]:
        """Score difference of the noise-free observations at ``mixing(Z)``, ``(N, n_features)``.

        The change of volume cancels in a difference, so that only the Jacobian J of the mixing is
        needed: the latent score difference times the pseudo-inverse of J.
        """
        Z = np.asarray(Z, dtype=float)
        latent = self.score_difference(Z, environment, reference)
        if self.mixing.matrix is not None:
            return latent @ np.linalg.pinv(self.mixing.matrix)
        starts = range(_ROWS_PER_BLOCK, len(Z), _ROWS_PER_BLOCK)
        blocks = zip(np.split(Z, starts), np.split(latent, starts), strict=True)
        return np.concatenate(
            [_times_pseudo_inverse(difference, self.mixing.jacobian(z)) for z, difference in blocks]
        )

    def subset(self, rows: Any) -> Truth:
        """Return the truth about some of the samples."""
        noise = None if self.noise is None else self.noise[rows]
        active = None if self.active is None else self.active[rows]
        return replace(self, Z=self.Z[rows], noise=noise, active=active)

    def _scm(self, environment: int) -> SCM:
        if self.scms is None:
            raise ValueError(
                "Densities and scores need the structural causal models of this world, and they "
                "are not here: a file does not hold mechanisms that are a user's own functions, "
                "and latents that switch off, are cut off or bent, follow a continuous auxiliary "
                "vector or are real data have none. In the first case, make the world again with "
                "the same random_state."
            )
        if not 0 <= environment < len(self.scms):
            raise ValueError(
                f"'environment' must be the position of one of the {len(self.scms)} "
                f"environments, from 0 to {len(self.scms) - 1}. Got {environment} instead."
            )
        return self.scms[environment]


@stored("data/dataset")
@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations from one or several environments.

    Arrays are copied and read-only. An estimator is given ``X``, ``y`` and ``covariates``, nothing
    else.

    Parameters
    ----------
    X
        Observations, one row a sample, one column a feature; finite numbers.
    y
        Environment label of each sample (integers or strings), or an auxiliary variable (real
        numbers), or an auxiliary vector: a matrix of real numbers, one row a sample.
    names
        Names of the features, by default ``x0, x1, ...``.
    environments
        The labels in order, by default sorted. Labels that no sample has are allowed. Empty if
        `y` holds no labels.
    known_targets
        Side information that may be handed to an estimator's constructor: ``known_targets[e, j]``
        is True if environment e intervenes on latent j, or the dose of it, where these are known.
        None if it is hidden.
    truth
        For simulated worlds.
    covariates
        What else differs between rows, such as batches: columns of labels or numbers, by name.
    """

    X: NDArray[np.floating]
    y: NDArray[Any] | None
    names: tuple[str, ...]
    environments: tuple[Hashable, ...]
    known_targets: NDArray[np.bool_] | NDArray[np.floating] | None
    truth: Truth | None
    covariates: Mapping[str, NDArray[Any]] | None

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        environments: Sequence[Hashable] | None = None,
        known_targets: ArrayLike | None = None,
        truth: Truth | None = None,
        covariates: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        X = _checked_observations(X)
        names = _checked_names(names, X.shape[1])
        _check_finite(X, names)
        y = None if y is None else _checked_side_information(y, len(X))
        fields = {
            "X": X,
            "y": y,
            "names": names,
            "environments": _checked_environments(environments, y),
            "known_targets": _read_only(known_targets, _kind_of_targets(known_targets)),
            "truth": truth,
            "covariates": _checked_covariates(covariates, len(X)),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_targets()
        self._check_truth()

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.X.shape[1]

    @property
    def n_environments(self) -> int:
        """Number of environments; 1 if there are no labels."""
        return max(1, len(self.environments))

    def subset(self, rows: Any) -> Dataset:
        """Return some of the rows: indices, a mask or a slice. The list of environments stays."""
        return replace(
            self,
            X=self.X[rows],
            y=None if self.y is None else self.y[rows],
            truth=None if self.truth is None else self.truth.subset(rows),
            covariates=None
            if self.covariates is None
            else {name: values[rows] for name, values in self.covariates.items()},
        )

    def environment(self, label: Hashable) -> Dataset:
        """Return the rows of one environment."""
        if label not in self.environments:
            raise ValueError(
                f"'label' must be one of the environments {listed(self.environments)}. Got "
                f"{label!r} instead."
            )
        return self.subset(self.y == label)

    def split(
        self, fraction: float = 0.8, random_state: RandomState = None
    ) -> tuple[Dataset, Dataset]:
        """Split the rows at random in two parts, in the same proportion in every environment.

        Parameters
        ----------
        fraction
            Share of the rows in the first part.
        random_state
            Seed or generator.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"'fraction' must lie between 0 and 1. Got {fraction} instead.")
        rng = np.random.default_rng(random_state)
        first = np.zeros(self.n_samples, dtype=bool)
        for rows in self._rows_by_environment():
            first[rng.permutation(rows)[: round(fraction * len(rows))]] = True
        if first.all() or not first.any():
            raise ValueError(
                f"{self.n_samples} samples are too few to put a fraction of {fraction} of them "
                "aside."
            )
        return self.subset(first), self.subset(~first)

    def __repr__(self) -> str:
        parts = [f"{self.n_samples} samples x {self.n_features} features"]
        if self.environments:
            parts.append(f"{self.n_environments} environments")
        elif self.y is not None and self.y.ndim == 2:
            parts.append(f"an auxiliary vector of {self.y.shape[1]}")
        if self.truth is not None:
            parts.append(f"{self.truth.n_latents} known latents")
        return f"Dataset({', '.join(parts)})"

    def _rows_by_environment(self) -> list[NDArray[np.intp]]:
        if self.y is None or not self.environments:
            return [np.arange(self.n_samples)]
        return [np.flatnonzero(self.y == label) for label in self.environments]

    def _check_targets(self) -> None:
        targets = self.known_targets
        if targets is not None and (targets.ndim != 2 or len(targets) != self.n_environments):
            raise ValueError(
                f"'known_targets' must have one row for each of the {self.n_environments} "
                f"environments and one column for each latent. Got shape {targets.shape} instead."
            )

    def _check_truth(self) -> None:
        if self.truth is not None and len(self.truth.Z) != self.n_samples:
            raise ValueError(
                f"'truth' must hold one row of latents for each of the {self.n_samples} samples. "
                f"Got {len(self.truth.Z)} rows instead."
            )


def _kind_of_targets(targets: ArrayLike | None) -> type:
    """Return float for doses, and bool for targets without."""
    return bool if targets is None or np.isin(targets, (0, 1)).all() else float


def _checked_covariates(
    covariates: Mapping[str, ArrayLike] | None, n_samples: int
) -> Mapping[str, NDArray[Any]] | None:
    if not covariates:
        return None
    columns = {str(name): np.array(values) for name, values in covariates.items()}
    for name, values in columns.items():
        if values.shape != (n_samples,):
            raise ValueError(
                f"The covariate {name!r} must have one entry for each of the {n_samples} rows of "
                f"X. Got shape {values.shape} instead."
            )
        if values.dtype.kind == "O" and all(isinstance(entry, str) for entry in values):
            columns[name] = values = values.astype(str)
        missing = values.dtype.kind == "f" and not np.isfinite(values).all()
        if missing or values.dtype.kind not in "biufU" or (values == "").any():
            raise ValueError(
                f"The covariate {name!r} must hold labels or finite numbers, all of one kind and "
                "none missing. Drop rows without one, or give them a label of their own."
            )
        values.setflags(write=False)
    return columns


def _read_only(array: ArrayLike | None, dtype: Any = None) -> Any:
    if array is None:
        return None
    copy = np.array(array, dtype=dtype)
    copy.setflags(write=False)
    return copy


def _times_pseudo_inverse(
    rows: NDArray[np.floating], jacobian: NDArray[np.floating]
) -> NDArray[np.floating]:
    # J = QR gives pinv(J)' = Q R^-T, without squaring the condition number as J'J would.
    q, r = np.linalg.qr(jacobian)
    return (q @ np.linalg.solve(r.transpose(0, 2, 1), rows[:, :, None]))[:, :, 0]


def _checked_observations(X: ArrayLike) -> NDArray[np.floating]:
    given = getattr(X, "dtype", None)
    is_small = given in (np.float32, np.uint8)  # images: half or an eighth of the memory
    try:
        copy = _read_only(X, given if is_small else float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"'X' must hold numbers only: {error}. Tables with other columns are read by "
            "crlearn.data.from_pandas and its relatives."
        ) from error
    if copy.ndim != 2 or 0 in copy.shape:
        raise ValueError(
            "'X' must have two axes, (n_samples, n_features), with at least one row and one "
            f"column. Got shape {copy.shape} instead."
        )
    return copy


def _check_finite(X: NDArray[np.floating], names: tuple[str, ...]) -> None:
    bad = [names[i] for i in np.flatnonzero(~np.isfinite(X).all(axis=0))]
    if bad:
        raise ValueError(
            "'X' must be finite, but there are missing or infinite values in the features "
            f"{listed(bad)}. Drop these rows or columns, or impute them first."
        )


def _checked_names(names: Sequence[str] | None, n_features: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"x{i}" for i in range(n_features))
    names = tuple(str(name) for name in names)
    if len(names) != n_features or len(set(names)) != n_features:
        raise ValueError(
            f"'names' must hold one distinct name for each of the {n_features} features. "
            f"Got {len(names)} names, {len(set(names))} of them distinct."
        )
    return names


# From here on floats skip integers: two labels could become one.
_FIRST_INEXACT = 2**53


def _checked_side_information(y: ArrayLike, n_samples: int) -> NDArray[Any]:
    given = np.array(y)
    is_matrix = _holds_vectors(given)
    if len(np.atleast_1d(given)) != n_samples or not (is_matrix or given.ndim == 1):
        is_column = given.shape == (n_samples, 1)
        raise ValueError(
            f"'y' must hold one entry for each of the {n_samples} rows of X, or be a matrix of "
            f"real numbers with one row for each. Got shape {given.shape} instead"
            f"{'; y.ravel() makes labels of a column' if is_column else ''}."
        )
    checked = _checked_vectors(given) if is_matrix else _checked_labels(given)
    checked.setflags(write=False)
    return checked


def _holds_vectors(y: NDArray[Any]) -> bool:
    """Whether y is a matrix; a single column of integers or text is misshapen labels."""
    return y.ndim == 2 and y.size > 0 and (y.shape[1] > 1 or y.dtype.kind == "f")


def _checked_vectors(y: NDArray[Any]) -> NDArray[np.floating]:
    if y.dtype.kind not in "biuf":
        raise ValueError(
            "'y' as a matrix is an auxiliary vector for each row of X and must hold real numbers. "
            f"Got entries of type {y.dtype}; environment labels are one entry a row, not several."
        )
    _check_finite_labels(y)
    return y.astype(float)


def _checked_labels(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        labels = labels.astype(str)
    if labels.dtype.kind not in "biufUT":
        raise ValueError(
            "'y' must hold integers, strings or real numbers, all of one kind. Got entries such as "
            f"{listed(list(dict.fromkeys(map(repr, labels.tolist()))))}."
        )
    if labels.dtype.kind == "f":
        _check_finite_labels(labels)
        if (labels == np.round(labels)).all() and np.abs(labels).max() < _FIRST_INEXACT:
            labels = labels.astype(int)
    return labels


def _check_finite_labels(y: NDArray[Any]) -> None:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("'y' must be finite. Got missing or infinite entries; drop these rows.")


def _checked_environments(
    environments: Sequence[Hashable] | None, y: NDArray[Any] | None
) -> tuple[Hashable, ...]:
    if y is None or y.dtype.kind == "f":
        if environments:
            raise ValueError("'environments' need labels in 'y'. It is missing or continuous.")
        return ()
    present = np.unique(y).tolist()
    if environments is None:
        return tuple(present)
    labels = tuple(np.asarray(environments).tolist())
    missing = [label for label in present if label not in labels]
    if missing or len(set(labels)) != len(labels):
        raise ValueError(
            f"'environments' must list every label of 'y' once. Got {listed(labels)}; "
            f"missing: {listed(missing) or 'none, but some are listed twice'}."
        )
    return labels


def listed(items: Sequence[Any], at_most: int = 8) -> str:
    """Join the first items for a message, and say how many there are."""
    shown = ", ".join(str(item) for item in items[:at_most])
    return shown if len(items) <= at_most else f"{shown}, ... ({len(items)} in all)"
