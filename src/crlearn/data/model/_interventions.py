"""`Intervention`: what an environment does to some of the latents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crlearn.data.model._mechanisms import Scaled, as_mechanism
from crlearn.data.model._node import Node
from crlearn.data.model._noise import Fixed

PerTarget = float | Sequence[float] | None

_VARIANCE = ("variance", "variance_factor", "variance_add")
_OPTIONS = {
    "soft": ("effect", "mechanism", "shift", *_VARIANCE),
    "hard": ("mean", *_VARIANCE),
    "do": ("value",),
    "shift": ("shift",),
}
_REQUIRED = {"do": "value", "shift": "shift"}
_ALL_OPTIONS = ("effect", "mechanism", "mean", "value", "shift", *_VARIANCE)


@dataclass(frozen=True, eq=False)
class Intervention:
    """A change of the mechanisms of some latents, their targets.

    Numbers may be given once, or as a sequence with one entry for each target.

    Parameters
    ----------
    targets
        Index or indices of the latents that are changed.
    kind
        ``"soft"``: the parents keep an influence, changed in strength or form, and the noise may
        change; ``"hard"``: the parents lose their influence, the latent is its own noise, which
        may change; ``"do"``: the latent is set to a value; ``"shift"``: a constant is added to
        the latent.
    effect
        Soft: factor on the mechanism, by default 0.5 (1 if `mechanism` or `shift` is given).
    mechanism
        Soft: what replaces the mechanism; it takes the same parents.
    variance, variance_factor, variance_add
        Soft and hard: new noise variance, or a factor on it, or a term added to it (one of the
        three).
    mean
        Hard: new mean of the latent.
    value
        Do: the value.
    shift
        Shift (and soft): what is added.
    """

    targets: int | Sequence[int]
    kind: Literal["soft", "hard", "do", "shift"] = "soft"
    effect: PerTarget = None
    mechanism: Callable[[Any], Any] | None = None
    variance: PerTarget = None
    variance_factor: PerTarget = None
    variance_add: PerTarget = None
    mean: PerTarget = None
    value: PerTarget = None
    shift: PerTarget = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", _checked_targets(self.targets))
        self._check_kind()
        self._check_options()
        self._check_lengths()
        self._check_variance()

    @property
    def n_targets(self) -> int:
        """Number of latents that are changed."""
        return len(self.target_indices)

    @property
    def target_indices(self) -> tuple[int, ...]:
        """The targets, always as a tuple."""
        assert isinstance(self.targets, tuple)
        return self.targets

    @property
    def cuts_parents(self) -> bool:
        """Whether the targets lose their parents."""
        return self.kind in ("hard", "do")

    def applied_to(self, node: Node, n_parents: int, position: int) -> Node:
        """Return what becomes of the node that is number `position` among the targets."""
        if self.kind == "do":
            return Node(None, Fixed(), offset=self._at("value", position))
        noise = node.noise.with_variance(self._new_variance(node, position))
        if self.kind == "hard":
            mean = self._at("mean", position)
            return (
                Node(None, noise, node.offset)
                if mean is None
                else Node(None, noise.with_mean(mean))
            )
        offset = node.offset + (self._at("shift", position) or 0.0)
        return Node(self._new_mechanism(node, n_parents, position), noise, offset)

    def _new_mechanism(self, node: Node, n_parents: int, position: int) -> Any:
        if node.mechanism is None:
            if self.mechanism is not None:
                raise ValueError(
                    f"Latent {self.target_indices[position]} has no parents, so that an "
                    "intervention cannot give it a 'mechanism'. Change its variance, or use "
                    "kind='shift' or kind='do'."
                )
            return None
        replaced = (
            node.mechanism if self.mechanism is None else as_mechanism(self.mechanism, n_parents)
        )
        effect = self._at("effect", position)
        if effect is None:
            only_scales = self.kind == "soft" and self.mechanism is None and self.shift is None
            effect = 0.5 if only_scales else 1.0
        return replaced if effect == 1 else Scaled(replaced, effect)

    def _new_variance(self, node: Node, position: int) -> float:
        variance = float(node.noise.scale) ** 2
        new = self._at("variance", position)
        if new is not None:
            return new
        factor, term = self._at("variance_factor", position), self._at("variance_add", position)
        new = variance * (1.0 if factor is None else factor) + (0.0 if term is None else term)
        if new <= 0:
            raise ValueError(
                "The 'variance_add' of an intervention must leave a positive variance. Latent "
                f"{self.target_indices[position]} has variance {variance:.3g}, and {term} was "
                "added."
            )
        return new

    def _at(self, option: str, position: int) -> Any:
        given = getattr(self, option)
        return given if given is None or np.ndim(given) == 0 else given[position]

    def _given(self) -> list[str]:
        return [name for name in _ALL_OPTIONS if getattr(self, name) is not None]

    def _check_kind(self) -> None:
        if self.kind not in _OPTIONS:
            allowed = ", ".join(repr(kind) for kind in _OPTIONS)
            raise ValueError(
                f"The 'kind' of an intervention must be one of {allowed}. Got {self.kind!r} "
                "instead."
            )

    def _check_options(self) -> None:
        given, allowed = self._given(), _OPTIONS[self.kind]
        for name in given:
            if name not in allowed:
                raise ValueError(
                    f"The option '{name}' does not apply to an intervention of kind '{self.kind}', "
                    f"which takes: {', '.join(allowed)}. Leave it out or change the kind."
                )
        required = _REQUIRED.get(self.kind)
        if required is not None and required not in given:
            raise ValueError(
                f"An intervention of kind '{self.kind}' needs '{required}'. It was not given."
            )

    def _check_lengths(self) -> None:
        for name in self._given():
            given = getattr(self, name)
            if name != "mechanism" and np.ndim(given) > 0 and len(given) != self.n_targets:
                raise ValueError(
                    f"The option '{name}' of an intervention must be one number, or one for each "
                    f"of the {self.n_targets} targets. Got {len(given)} numbers instead."
                )

    def _check_variance(self) -> None:
        given = [name for name in _VARIANCE if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"An intervention takes only one of {', '.join(_VARIANCE)}. Got "
                f"{' and '.join(given)}."
            )
        for name in ("variance", "variance_factor"):
            changed = getattr(self, name)
            if changed is not None and np.min(changed) <= 0:
                raise ValueError(
                    f"The '{name}' of an intervention must be positive. Got {changed} instead. "
                    "To take the noise away altogether, use kind='do'."
                )


def _checked_targets(targets: int | Sequence[int]) -> tuple[int, ...]:
    indices = np.atleast_1d(np.asarray(targets))
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or indices.size == 0:
        raise ValueError(
            "The 'targets' of an intervention must be the index of a latent or a sequence of "
            f"indices. Got {targets!r} instead."
        )
    if len(np.unique(indices)) < len(indices) or indices.min() < 0:
        raise ValueError(
            "The 'targets' of an intervention must be distinct and not negative. "
            f"Got {targets!r} instead."
        )
    return tuple(int(index) for index in indices)
