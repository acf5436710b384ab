"""`Layer`: one step of a mixing, with its derivative and inverse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from crlearn.tags import stored

Matrix = NDArray[np.floating]

_POWERS = {"square": 2, "cube": 3}
ACTIVATIONS = (
    "identity",
    "tanh",
    "leaky_relu",
    "leaky_tanh",
    "smooth_leaky_relu",
    "sigmoid",
    *_POWERS,
)

_ROWS_PER_BLOCK = 8192
_MOST_NEWTON_STEPS = 100


@stored("mixing/layer")
@dataclass(frozen=True, eq=False)
class Layer:
    """``activation(weight @ values + bias)``.

    Attributes
    ----------
    weight
        Matrix ``(outputs, inputs)``.
    bias
        Vector ``(outputs,)``, or None.
    activation
        ``"identity"``, ``"tanh"``, ``"leaky_relu"``, ``"leaky_tanh"`` (``slope t + tanh t``),
        ``"smooth_leaky_relu"`` (``slope t + (1 - slope) log(1 + exp t)``), ``"sigmoid"``,
        ``"square"`` or ``"cube"``; squares have no inverse.
    slope
        Of the leaky ReLUs (far) below zero, of the leaky tanh far out; positive, so that they can
        be inverted.
    """

    weight: Matrix
    bias: NDArray[np.floating] | None = None
    activation: str = "identity"
    slope: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _finite_array(self.weight, 2, "weight"))
        if self.bias is not None:
            object.__setattr__(self, "bias", _finite_array(self.bias, 1, "bias"))
            self._check_bias()
        if self.activation not in ACTIVATIONS:
            allowed = ", ".join(repr(name) for name in ACTIVATIONS)
            raise ValueError(
                f"The 'activation' of a layer must be one of {allowed}. Got {self.activation!r} "
                "instead."
            )
        if not self.slope > 0:
            raise ValueError(
                f"The 'slope' of a leaky activation must be positive, or it has no inverse. "
                f"Got {self.slope} instead."
            )

    def affine(self, values: Matrix) -> Matrix:
        """Apply weight and bias to each row."""
        result = values @ self.weight.T
        return result if self.bias is None else result + self.bias

    def activate(self, values: Matrix) -> Matrix:
        """Apply the activation."""
        if self.activation == "tanh":
            return np.tanh(values)
        if self.activation == "leaky_tanh":
            return self.slope * values + np.tanh(values)
        if self.activation == "leaky_relu":
            return np.where(values > 0, values, self.slope * values)
        if self.activation == "smooth_leaky_relu":
            return self.slope * values + (1 - self.slope) * np.logaddexp(0, values)
        if self.activation == "sigmoid":
            return expit(values)
        return values ** _POWERS.get(self.activation, 1)

    def derivative(self, values: Matrix) -> Matrix:
        """Slope of the activation at each value."""
        if self.activation == "tanh":
            return 1 - np.tanh(values) ** 2
        if self.activation == "leaky_tanh":
            return self.slope + 1 - np.tanh(values) ** 2
        if self.activation == "leaky_relu":
            return np.where(values > 0, 1.0, self.slope)
        if self.activation == "smooth_leaky_relu":
            return self.slope + (1 - self.slope) * expit(values)
        if self.activation == "sigmoid":
            return expit(values) * expit(-values)
        power = _POWERS.get(self.activation, 1)
        return power * values ** (power - 1)

    def inverse(self, outputs: Matrix) -> Matrix:
        """Undo the layer, row by row; rows off its range are projected (least squares)."""
        self._check_injective()
        if self.activation == "tanh":
            return self._inverse_of_tanh(outputs)
        values = outputs
        if self.activation == "leaky_relu":
            values = self._inverse_of_leaky_relu(outputs)
        if self.activation == "leaky_tanh":
            # From below: the function is concave above zero, and odd.
            values = self._solved_by_newton(outputs, outputs / (1 + self.slope))
        if self.activation == "smooth_leaky_relu":
            # The leaky ReLU lies below a convex function (above a concave one, if the slope is
            # larger than one), so that its inverse lies on the side where Newton does not jump.
            values = self._solved_by_newton(outputs, self._inverse_of_leaky_relu(outputs))
        if self.activation == "sigmoid":
            self._check_range_of_sigmoid(outputs)
            values = logit(outputs)
        if self.activation == "cube":
            values = np.cbrt(outputs)
        return self._without_bias(values) @ np.linalg.pinv(self.weight).T

    def _inverse_of_tanh(self, outputs: Matrix) -> Matrix:
        self._check_range_of_tanh(outputs)
        most = np.nextafter(1.0, 0.0)
        outputs = np.clip(outputs, -most, most)
        values = self._without_bias(np.arctanh(outputs))
        if self._is_square:
            return np.linalg.solve(self.weight, values.T).T
        # A saturated output has lost its digits: weigh each by the slope of tanh where it lies.
        n_blocks = max(1, -(-len(values) // _ROWS_PER_BLOCK))
        blocks = zip(
            np.array_split(1 - outputs**2, n_blocks), np.array_split(values, n_blocks), strict=True
        )
        return np.concatenate([_weighted_least_squares(self.weight, *block) for block in blocks])

    def _inverse_of_leaky_relu(self, outputs: Matrix) -> Matrix:
        return np.where(outputs > 0, outputs, outputs / self.slope)

    def _solved_by_newton(self, outputs: Matrix, values: Matrix) -> Matrix:
        """Undo the activation by Newton's method from the values given."""
        for _ in range(_MOST_NEWTON_STEPS):
            step = (outputs - self.activate(values)) / self.derivative(values)
            values = values + step
            if np.abs(step).max(initial=0.0) <= 4 * np.spacing(np.abs(values).max(initial=1.0)):
                break
        return values

    def _without_bias(self, values: Matrix) -> Matrix:
        return values if self.bias is None else values - self.bias

    @property
    def _is_square(self) -> bool:
        return self.weight.shape[0] == self.weight.shape[1]

    def _check_bias(self) -> None:
        if self.bias is not None and len(self.bias) != len(self.weight):
            raise ValueError(
                f"The 'bias' of a layer must have one entry for each of its {len(self.weight)} "
                f"outputs. Got {len(self.bias)} entries instead."
            )

    def _check_injective(self) -> None:
        if self.activation == "square":
            raise ValueError(
                "This mixing has no inverse by layers: a square has lost its sign. "
                "crlearn.methods.PolynomialReduction undoes polynomials, up to an affine map."
            )
        rank = np.linalg.matrix_rank(self.weight)
        if rank < self.weight.shape[1]:
            raise ValueError(
                f"This mixing has no inverse: a layer maps {self.weight.shape[1]} dimensions on "
                f"{rank}. Use weights of full column rank."
            )

    def _check_range_of_tanh(self, outputs: Matrix) -> None:
        magnitudes = np.abs(outputs)
        n_outside = int(((magnitudes >= 1) if self._is_square else (magnitudes > 1)).sum())
        if n_outside:
            raise ValueError(
                f"This mixing has no inverse at these points: {n_outside} values are not inside "
                "(-1, 1), the range of tanh. Either they do not come from this mixing (measurement "
                "noise?), or the tanh is saturated: make the mixing with a smaller 'gain'."
            )

    def _check_range_of_sigmoid(self, outputs: Matrix) -> None:
        n_outside = int(((outputs <= 0) | (outputs >= 1)).sum())
        if n_outside:
            raise ValueError(
                f"This mixing has no inverse at these points: {n_outside} values are not inside "
                "(0, 1), the range of the sigmoid. Either they do not come from this mixing "
                "(measurement noise?), or rounding errors have grown through its layers, each of "
                "which divides differences by four or more: use fewer layers."
            )


def _weighted_least_squares(weight: Matrix, importance: Matrix, values: Matrix) -> Matrix:
    """Solve ``weight z = value`` for each row, equation i weighed by its importance."""
    q, r = np.linalg.qr(importance[:, :, None] * weight)
    return np.linalg.solve(r, q.transpose(0, 2, 1) @ (importance * values)[:, :, None])[:, :, 0]


def _finite_array(array: ArrayLike, ndim: int, name: str) -> NDArray[np.floating]:
    copy = np.array(array, dtype=float)
    if copy.ndim != ndim or not np.isfinite(copy).all():
        raise ValueError(
            f"The '{name}' of a mixing must be a finite array with {ndim} axes. Got shape "
            f"{copy.shape}{'' if np.isfinite(copy).all() else ' with NaN or infinite entries'}."
        )
    copy.setflags(write=False)
    return copy
