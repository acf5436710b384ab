"""Methods that take tables, on images: behind an autoencoder, as papers run them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from crlearn.base import BaseCRL
from crlearn.bench._plan import find_method
from crlearn.exceptions import AssumptionWarning
from crlearn.methods import Composed, reduce_images
from crlearn.result import Result


class OnImageCodes(BaseCRL):
    """A method on codes of images, as many as there are latents, of a convolutional autoencoder.

    The autoencoder is the one that crlearn's own methods for images have, and learns from pixels
    alone: what stands behind it is then compared with them on the same numbers. Cost: that of the
    autoencoder, O(rows of a batch x pixels) a step, and that of the method on `n_latents` features.

    Parameters
    ----------
    n_latents
        Number of codes, and of latents.
    method
        Name of a method of crlearn, or the dotted path of another class.
    parameters
        Of the method, beside the number of latents and the seed.
    n_steps
        Of the training of the autoencoder; the default is that of `NonlinearInterventionCRL`.
    random_state
        Seed of both.
    """

    _allows_images = True
    _keeps_uint8 = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_latents": [Interval(Integral, 1, None, closed="left")],
        "method": [str],
        "parameters": [dict, None],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        method: str = "PCABaseline",
        parameters: Mapping[str, Any] | None = None,
        n_steps: int = 6000,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.method = method
        self.parameters = parameters
        self.n_steps = n_steps
        self.random_state = random_state

    def _algorithm(self, X: NDArray[Any], y: NDArray[Any] | None, seed: int) -> Result:
        method = find_method(self.method)  # before hours are spent
        codes = reduce_images(X, self.n_latents, n_steps=self.n_steps, seed=seed)
        parameters = {"random_state": seed, **(self.parameters or {})}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)  # said once, by this estimator
            fitted = method(self.n_latents, **parameters).fit(codes.rows, y)
        return replace(
            fitted.result_,
            encoder=Composed(codes.encoder, fitted.result_.encoder),
            decoder=None,
            checks=(*codes.checks, *fitted.result_.checks),
        )
