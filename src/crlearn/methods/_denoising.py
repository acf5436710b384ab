"""What estimators share that take measurement noise off latents, environment by environment.

`DenoisingCRL` is for methods with a score of their own, `ExplicitPriorCRL` for those that write the
prior down. `MeasuredCRL` is for linear ones: latents of an environment are taken for Gaussian, with
the mean and covariance that the fit has for them. Where the environment of a row is not known, they
are those of all environments together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, cast
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from crlearn.base import BaseCRL
from crlearn.exceptions import AssumptionWarning
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Scaling,
    Signal,
    codes_of,
    in_readable_units,
    intervened_rows,
    names_of_nodes,
    read_domains,
    read_graph,
)
from crlearn.likelihood import Fit, Moments, moments_behind
from crlearn.methods.adjusted._estimator import AdjustedCRL
from crlearn.result import LinearEncoder
from crlearn.scores import Denoiser, Posterior
from crlearn.tags import stored

Matrix = NDArray[np.floating]

# Rows this much farther outside the knots than those of the fit, in lengths of their interval, are
# worth a warning.
_FAR = 1.0


class DenoisingCRL(BaseCRL):
    """Base class of estimators with posteriors; the encoder is a `crlearn.scores.Denoiser`.

    Encoders of another kind say with `beyond` and `reach` which rows are far, too, and their class
    says what they are told of rows (`_told`).
    """

    n_latents: int | str | None
    graph: Any
    targets: Any

    _requires_y = True

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Matrix:
        """Return the posterior means of the latents.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        y
            Environment label of each row: one of those in `targets`. None: not known; the rows are
            denoised as a mixture of all environments, less precisely.
        """
        check_is_fitted(self)
        by_label = cast(Any, lambda rows: self._posterior(rows, y).mean)
        means = self._encoded(X, by_label, "transform")
        self._warn_if_far(X)
        return means

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None, **_: Any) -> Matrix:
        """Return what ``fit(X, y).transform(X, y)`` does: `transform` is told the labels."""
        return self.fit(X, y).transform(X, y)

    def posterior(self, X: ArrayLike, y: ArrayLike | None = None) -> Posterior:
        """Return posterior means and variances of the latents; arguments as for `transform`."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        self._warn_if_far(rows)
        return self._posterior(rows, y)

    def _posterior(self, rows: Matrix, y: ArrayLike | None) -> Posterior:
        encoder = cast(Any, self.result_.encoder)
        if y is None:
            return encoder.posterior(rows)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        return encoder.posterior(rows, self._told(labels))

    def _told(self, labels: NDArray[Any]) -> NDArray[Any] | None:
        """Return what the encoder is told of rows with these labels."""
        if self.result_.targets is None:
            return None
        details = self.result_.details
        return intervened_rows(details["target_labels"], details["target_rows"], labels)

    def _known(
        self, environments: Environments, *, doses: bool = False
    ) -> tuple[int | None, KnownDomains | None]:
        """Read the number of latents, and graph and targets; None: they were not given."""
        n_latents = None if isinstance(self.n_latents, str) else self.n_latents
        graph = None if self.graph is None else read_graph(self.graph, n_latents)
        if graph is not None:
            n_latents = len(graph)
        if self.targets is None:
            return n_latents, None
        if graph is None:
            raise ValueError(
                "'targets' number the nodes of a graph, so that 'graph' has to be given too. If no "
                "latent causes another, give a matrix of zeros."
            )
        names = names_of_nodes(self.graph)
        return n_latents, read_domains(graph, self.targets, environments, names, doses=doses)

    def _warn_if_far(self, X: ArrayLike) -> None:
        rows = np.asarray(X, dtype=float)
        encoder = cast(Denoiser, self.result_.encoder)
        far = encoder.beyond(rows) > encoder.reach + _FAR
        if far.any():
            warn(
                f"{type(self).__name__}: {int(far.sum())} of {len(far)} rows have latents far "
                "outside the range of the fit, where nothing is known of their distribution. "
                "Check their units and environments.",
                AssumptionWarning,
                stacklevel=3,
            )


class ExplicitPriorCRL(DenoisingCRL):
    """Base class of estimators whose prior of the latents is written down (g-modelling)."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **DenoisingCRL._parameter_constraints,
        "graph": "no_validation",
        "targets": "no_validation",
        "mixing": [StrOptions({"orthogonal", "any", "nonlinear"})],
        "center": ["boolean"],
        "scale": ["boolean"],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
    }

    def _told(self, labels: NDArray[Any]) -> NDArray[np.integer]:
        """Return the numbers of the environments with these labels."""
        return codes_of(self.result_.details["labels"], labels)


def what_is_known(environments: Environments, known: KnownDomains | None) -> dict[str, Any]:
    """Return the fields of a result that only repeat what was given."""
    told = {"environments": environments.names}
    if known is None:
        return told
    return {**told, "adjacency": known.graph, "targets": known.targets, "names": known.names}


def refuse_small_environments(environments: Environments, n: int) -> None:
    """Refuse environments of which no covariance can be told."""
    small = environments.labels[environments.counts <= n]
    if len(small):
        raise ValueError(
            f"Every environment needs more than {n} rows, one for each latent and one more, for "
            f"its covariance. Too few are in: {', '.join(map(str, small[:8]))}. Leave them out of "
            "the fit; transform takes them."
        )


def offset_of(
    X: Matrix, environments: Environments, known: KnownDomains | None
) -> NDArray[np.floating]:
    """Return the mean of the observational rows, or of all if there are none."""
    return Scaling.of(X[observational_rows(environments, known)]).mean


def observational_rows(
    environments: Environments, known: KnownDomains | None
) -> NDArray[np.bool_] | slice:
    """Choose the rows without intervention, or all if there are none."""
    if known is None or known.targets.any(axis=1).all():
        return slice(None)
    return ~np.asarray(known.targets.any(axis=1))[environments.codes]


@stored("encoder/gaussian-posterior")
@dataclass(frozen=True, eq=False)
class PosteriorEncoder:
    """Posterior means of latents behind a noisy linear measurement.

    Attributes
    ----------
    matrix, offset
        The noisy latents are ``matrix @ (x - offset)``.
    noise
        Covariance of their noise in each environment, ``(E, n, n)``.
    means, covariances
        Of the latents in each environment, ``(E, n)`` and ``(E, n, n)``.
    pooled_mean, pooled_covariance, pooled_noise
        Of all environments together. Without the last `noise` is one matrix, the same in all, as in
        files of older versions.
    """

    matrix: Matrix
    offset: NDArray[np.floating]
    noise: Matrix
    means: Matrix
    covariances: Matrix
    pooled_mean: NDArray[np.floating]
    pooled_covariance: Matrix
    pooled_noise: Matrix | None = None

    def __post_init__(self) -> None:
        if self.pooled_noise is None:
            object.__setattr__(self, "pooled_noise", self.noise)
            object.__setattr__(self, "noise", np.broadcast_to(self.noise, self.covariances.shape))

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return len(self.matrix)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the posterior means of rows whose environments are not known."""
        return self.posterior(X).mean

    def posterior(self, X: Matrix, codes: NDArray[np.intp] | None = None) -> Posterior:
        """Return posterior means and variances; `codes` number the environments of the rows."""
        noisy = (np.asarray(X, dtype=float) - self.offset) @ self.matrix.T
        mean, variance = np.empty_like(noisy), np.empty_like(noisy)
        if codes is None:
            assert self.pooled_noise is not None
            whole = (self.pooled_mean, self.pooled_covariance, self.pooled_noise)
            groups = [(slice(None), *whole)]
        else:
            each = (self.means, self.covariances, self.noise)
            groups = [(codes == e, *(of[e] for of in each)) for e in np.unique(codes)]
        for chosen, centre, covariance, noise in groups:
            share = np.linalg.solve(covariance + noise, covariance).T
            mean[chosen] = centre + (noisy[chosen] - centre) @ share.T
            variance[chosen] = np.diag(covariance - share @ covariance)
        return Posterior(mean, variance)


def encoder_of(
    fit: Fit,
    signal: Signal,
    rows: Sequence[Matrix],
    X: Matrix,
    environments: Environments,
    order: NDArray[np.intp],
) -> LinearEncoder | PosteriorEncoder:
    """Return the encoder of a fit to rows of a signal, environments in `order`."""
    if signal.noise is None:
        return in_readable_units(fit.H @ signal.encoder.matrix, X, environments)
    moments = moments_behind(fit, rows, signal.noise[order])
    return posterior_encoder(fit.H, signal, X, environments, order, moments)


def posterior_encoder(
    H: Matrix,
    signal: Signal,
    X: Matrix,
    environments: Environments,
    order: NDArray[np.intp],
    moments: Moments,
) -> PosteriorEncoder:
    """Return the posterior of the latents of an encoder H of the signal.

    Latents have sd 1 in the reference environment, mean 0 there, and a positive largest
    coefficient. `moments` are those of the signal without noise, environments in `order`.
    """
    assert signal.noise is not None
    scale = np.sqrt(np.einsum("ji,ik,jk->j", H, moments.covariances[0], H))
    noisy = in_readable_units(H @ signal.encoder.matrix, X, environments)
    signs = np.sign(np.einsum("ji,ji->j", noisy.matrix, H @ signal.encoder.matrix))
    to_latents = H * (signs / scale)[:, None]
    matrix = to_latents @ signal.encoder.matrix
    back = np.argsort(order)
    centres = [X[environments.codes == e].mean(axis=0) for e in range(len(environments))]
    means = (np.array(centres) - noisy.offset) @ matrix.T
    covariances = (to_latents @ moments.covariances @ to_latents.T)[back]
    shares = moments.shares[back]
    noise = to_latents @ signal.noise @ to_latents.T
    pooled_mean = shares @ means
    centred = means - pooled_mean
    return PosteriorEncoder(
        matrix,
        noisy.offset,
        noise,
        means,
        covariances,
        pooled_mean,
        np.tensordot(shares, covariances, 1) + (shares * centred.T) @ centred,
        np.tensordot(shares, noise, 1),
    )


class MeasuredCRL(AdjustedCRL):
    """Base class of estimators whose encoder may be a `PosteriorEncoder`."""

    _requires_y = True

    def transform(
        self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None
    ) -> Matrix:
        """Return the latents of each row of `X`, without measurement noise as far as possible.

        Parameters
        ----------
        X
            Rows, as in `fit`.
        y
            Environment label of each row, one of those of `fit`. None: not known; rows with noise
            are denoised as a mixture of all environments, less precisely.
        covariates
            Of each row, if `fit` had some; their effects are taken off.
        """
        check_is_fitted(self)
        encoder = self.result_.encoder
        if y is not None and isinstance(encoder, PosteriorEncoder):
            encoder = cast(Any, lambda rows: self._posterior(rows, y).mean)
        return self._encoded_without_effects(X, covariates, encoder, "transform")

    def posterior(
        self, X: ArrayLike, y: ArrayLike | None = None, *, covariates: Any = None
    ) -> Posterior:
        """Return posterior means and variances of the latents; arguments as for `transform`.

        Without measurement noise variances are zero.
        """
        check_is_fitted(self)
        if isinstance(self.result_.encoder, PosteriorEncoder):
            rows = self._checked(X, reset=False)
            return self._posterior(self._without_effects(rows, covariates), y)
        Z = self._encoded_without_effects(X, covariates, self.result_.encoder, "posterior")
        return Posterior(Z, np.zeros_like(Z))

    def _posterior(self, rows: Matrix, y: ArrayLike | None) -> Posterior:
        encoder = cast(PosteriorEncoder, self.result_.encoder)
        if y is None:
            return encoder.posterior(rows)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        return encoder.posterior(rows, self._codes_of(labels))

    def _codes_of(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        known = {_plain(str(name)): e for e, name in enumerate(self.result_.environments or ())}
        names, places = np.unique(labels.astype(str), return_inverse=True)
        codes = np.array([known.get(_plain(name), -1) for name in names], dtype=np.intp)
        unknown = names[codes < 0].tolist()
        if unknown:
            raise ValueError(
                f"y names environments that fit has not seen: {', '.join(unknown[:8])}. Their "
                "latents may have another distribution: leave y out, and rows are denoised as a "
                "mixture of all environments."
            )
        return codes[places]


def _plain(name: str) -> str:
    """Return the name of a label, that of 1 if it is 1.0."""
    return name.removesuffix(".0")
