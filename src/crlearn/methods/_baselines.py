"""PCA and ICA behind crlearn's interface: what every method is compared with.

Neither knows of causes. PCA finds the span of a linear mixing and nothing inside it; ICA finds
latents that are independent and not Gaussian, which causally related latents are not.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, cast
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from crlearn.base import COUNTED, BaseCRL, counted
from crlearn.inputs import NumberOfLatents, components_of, resolve_n_latents
from crlearn.result import Check, Guarantee, LinearDecoder, LinearEncoder, Result

PCA_GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="linear mixing: all latents together up to one invertible linear map; no graph",
)
ICA_GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to scale and order, if the mixing is linear and the latents are "
    "independent with at most one of them Gaussian; no graph",
)


def pca_baseline(X: NDArray[np.floating], n_latents: NumberOfLatents = "auto") -> Result:
    """Return the leading principal components of the standardised columns, with variance one."""
    number, count_checks, count_details = resolve_n_latents(X, n_latents)
    encoder, _, checks = components_of(X, number)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=PCA_GUARANTEE,
        checks=(*count_checks, *checks),
        details=count_details,
    )


def ica_baseline(
    X: NDArray[np.floating],
    n_latents: NumberOfLatents = "auto",
    *,
    contrast: str = "logcosh",
    max_iter: int = 1000,
    seed: int = 0,
) -> Result:
    """Whiten, then rotate to independence by FastICA."""
    number, count_checks, count_details = resolve_n_latents(X, n_latents)
    whitener, _, checks = components_of(X, number)
    with catch_warnings(record=True) as caught:
        simplefilter("always")
        ica = FastICA(whiten=cast(Any, False), fun=contrast, max_iter=max_iter, random_state=seed)
        rotation = ica.fit(whitener(X)).components_
    stalled = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    encoder = LinearEncoder(rotation @ whitener.matrix, whitener.offset)
    converged = Check(
        "the rotation converged",
        not stalled,
        f"FastICA stopped at max_iter={max_iter}; the latents may be Gaussian"
        if stalled
        else "FastICA reached its tolerance",
    )
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=ICA_GUARANTEE,
        checks=(*count_checks, *checks, converged),
        details={**count_details, "n_iter": ica.n_iter_},
    )


class PCABaseline(BaseCRL):
    """Principal components with unit variance.

    Recovers the span of a linear mixing, so that its R2 is as good as any method's; inside the span
    its axes are arbitrary. Cost, with m the smaller of N and d: O(N d m) time, O(N d) memory.

    Parameters
    ----------
    n_latents
        Number of components; ``"auto"`` or None: the rank of X, or, if noise fills all dimensions,
        as many as stand out from it.
    random_state
        Not used; here for a common interface.

    Examples
    --------
    >>> from crlearn import PCABaseline
    >>> PCABaseline(n_latents=1).fit_transform([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).round(3).shape
    (3, 1)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "n_latents": COUNTED,
    }

    def __init__(self, n_latents: int | str | None = "auto", *, random_state: Any = None) -> None:
        self.n_latents = n_latents
        self.random_state = random_state

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        return pca_baseline(X, counted(self.n_latents))


class ICABaseline(BaseCRL):
    """Independent components (FastICA).

    Recovers latents that are mutually independent and not Gaussian from a linear mixing. Cost:
    that of `PCABaseline`, then O(N n^2) an iteration.

    Parameters
    ----------
    n_latents
        Number of components; ``"auto"`` or None: the rank of X, or, if noise fills all dimensions,
        as many as stand out from it.
    contrast
        FastICA's measure of non-Gaussianity.
    max_iter
        Most iterations of the rotation.
    random_state
        Seed of the initial rotation.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "n_latents": COUNTED,
        "contrast": [StrOptions({"logcosh", "exp", "cube"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | str | None = "auto",
        *,
        contrast: str = "logcosh",
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.contrast = contrast
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def n_iter_(self) -> int:
        """Iterations that the rotation took."""
        return self._fitted_result().details["n_iter"]

    def _algorithm(self, X: NDArray[np.floating], y: NDArray[Any] | None, seed: int) -> Result:
        return ica_baseline(
            X,
            counted(self.n_latents),
            contrast=self.contrast,
            max_iter=self.max_iter,
            seed=seed,
        )
