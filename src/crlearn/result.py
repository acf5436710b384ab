"""What one fit returns: `Result`, with its guarantee, checks and encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, Literal, Protocol, runtime_checkable

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from crlearn import __version__
from crlearn.graph import to_networkx
from crlearn.tags import stored

# Nats of log evidence within which a competing structure explains the data about as well.
CLOSE = 5.0
# Latents or noises that agree less than this are another answer.
SAME_ANSWER = 0.9

LatentLevel = Literal[
    "scale",
    "elementwise",
    "surrounding",
    "parents",
    "ancestors",
    "layers",
    "blocks",
    "span",
    "components",
    "none",
]
GraphLevel = Literal["exact", "closure", "cpdag", "layers", "none"]


@runtime_checkable
class Encoder(Protocol):
    """A map from observations to latents that can be stored in a file."""

    @property
    def n_latents(self) -> int:
        """Number of columns that the encoder returns."""
        ...

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the latents of each row of `X`."""
        ...


@stored("encoder/linear")
@dataclass(frozen=True, eq=False)
class LinearEncoder:
    """``z = matrix @ (x - offset)``, row by row."""

    matrix: NDArray[np.floating]
    offset: NDArray[np.floating]

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.matrix.shape[0]

    def __call__(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the latents of each row of `X`."""
        return (np.asarray(X, dtype=float) - self.offset) @ self.matrix.T


class _Affine(Protocol):
    @property
    def offset(self) -> NDArray[np.floating]: ...

    def __call__(self, X: NDArray[np.floating], /) -> NDArray[np.floating]: ...


@stored("decoder/linear")
@dataclass(frozen=True, eq=False)
class LinearDecoder:
    """``x = matrix @ z + offset``, row by row."""

    matrix: NDArray[np.floating]
    offset: NDArray[np.floating]

    @classmethod
    def undoing(cls, encoder: _Affine, X: NDArray[np.floating]) -> LinearDecoder:
        """Return the regression of the observations on their latents.

        The encoder alone does not say where in feature space its latents live: a pseudo-inverse
        leads back into the span of its rows, not into that of `X`.
        """
        # Relative to the encoder's offset, and divided before they are summed: offsets of 1e9 leave
        # their digits to what varies, and sums of 1e307 stay finite.
        share = 1 / len(X)
        Z = encoder(X)
        centre = Z.mean(axis=0)
        centred = Z - centre
        beside = X - encoder.offset
        among = share * centred.T @ centred
        matrix = np.linalg.lstsq(among, share * centred.T @ beside, rcond=None)[0].T
        mean = np.full(len(X), share) @ beside
        return cls(matrix, encoder.offset + (mean - matrix @ centre))

    def __call__(self, Z: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the observations at each row of `Z`."""
        return np.asarray(Z, dtype=float) @ self.matrix.T + self.offset


@stored("result/guarantee")
@dataclass(frozen=True)
class Guarantee:
    """How far the theory says that the latents and the graph are recovered.

    Attributes
    ----------
    latents
        ``"scale"``: each latent up to scale (and order); ``"elementwise"``: each up to an
        invertible function of its own; ``"surrounding"``: mixed with those of its parents that
        are parents of all its children, too; ``"parents"`` / ``"ancestors"``: mixed with its
        parents / ancestors; ``"layers"`` / ``"blocks"``: up to a map inside each layer (with those
        above it) or block; ``"span"``: all latents together up to one invertible linear map;
        ``"components"``: up to one in each component of a mixture; ``"none"``.
    graph
        ``"exact"``, ``"closure"`` (who is an ancestor of whom), ``"cpdag"``, ``"layers"`` (which
        latents lie upstream of which, but no edges) or ``"none"``.
    text
        The same as a sentence, with the conditions.
    intended
        What would be guaranteed if all checks had passed; None if they did.
    accounts_for
        Names of checks whose failure the guarantee has taken into account already.
    """

    latents: LatentLevel
    graph: GraphLevel
    text: str
    intended: Guarantee | None = None
    accounts_for: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def given(self, checks: Sequence[Check]) -> Guarantee:
        """Return what is left of the guarantee after checks of the assumptions it rests on."""
        broken = [
            check for check in checks if not check.passed and check.name not in self.accounts_for
        ]
        if not broken or (self.latents, self.graph) == ("none", "none"):
            return self
        failed = "; ".join(map(str, broken))
        return Guarantee(
            latents="none",
            graph="none",
            text=f"nothing is guaranteed, as not all assumptions were seen to hold. {failed}. If "
            f"they held: {self.text}",
            intended=self,
        )


@stored("result/check")
@dataclass(frozen=True)
class Check:
    """One assumption, and how it came out on this data (`passed` is None: cannot be tested)."""

    name: str
    passed: bool | None
    detail: str

    def __post_init__(self) -> None:
        if self.passed is not None:  # numpy's bool is neither True nor False to `is` and to JSON
            object.__setattr__(self, "passed", bool(self.passed))

    def __str__(self) -> str:
        mark = {True: "holds", False: "fails", None: "untested"}[self.passed]
        return f"{self.name}: {mark} ({self.detail})"


@stored("result/goodness-of-fit")
@dataclass(frozen=True)
class GoodnessOfFit:
    """Likelihood ratio of the fitted model to a saturated one.

    The ratio is calibrated: noise need not be Gaussian for its p-value to hold. `inflation` is how
    much larger than under Gaussian noise it was expected to be.
    """

    ratio: float
    freedom: int
    p_value: float
    inflation: float = 1.0

    def __str__(self) -> str:
        return (
            f"likelihood ratio {self.ratio:.1f}, {self.freedom} degrees of freedom, "
            f"p = {self.p_value:.2g}"
        )


@stored("result/alternative")
@dataclass(frozen=True, eq=False)
class Alternative:
    """A competing structure: another explanation of the same data.

    Attributes
    ----------
    adjacency
        ``adjacency[i, j]`` is True if its latent i causes its latent j.
    layers
        Its layers, childless latents first; None where the method has none.
    gap
        Nats of log evidence by which it is behind the answer.
    agreement
        Of its latents with those of the answer, layer by layer; 1 if the answer is the same.
    is_reversed
        Whether an ancestor of a latent in the answer is a descendant of it here.
    """

    adjacency: NDArray[np.bool_]
    layers: tuple[tuple[int, ...], ...] | None
    gap: float
    agreement: float
    is_reversed: bool = False

    @property
    def is_another_answer(self) -> bool:
        """Whether its latents are not those of the answer, or some cause each other in reverse."""
        return self.is_reversed or self.agreement < SAME_ANSWER

    @property
    def is_close(self) -> bool:
        """Whether the data hardly speak against it: it is within five nats of the answer."""
        return self.gap < CLOSE


def installed_versions() -> dict[str, str]:
    """Versions of what determines the numbers of a fit."""
    packages = ("jax", "numpy", "scipy", "scikit-learn")
    return {"crlearn": __version__, **{name: _installed_version(name) for name in packages}}


@cache
def _installed_version(package: str) -> str:
    """Look a version up once; that takes milliseconds."""
    return version(package)


@stored("result")
@dataclass(frozen=True, eq=False)
class Result:
    """Frozen record of one fit.

    Attributes
    ----------
    encoder
        Map from observations to latents.
    guarantee
        How far the theory says that the latents and the graph are recovered.
    decoder
        Map from latents back to observations, or None.
    adjacency
        ``adjacency[i, j]`` is True if latent i causes latent j; None if no graph is recovered.
    targets
        ``targets[e, j]`` is True if environment e was found to intervene on latent j, or None.
    layers
        Latents of each layer, childless ones first; None if the method states none.
    blocks
        Latents that can only be recovered together; None if the method states none.
    noise_encoder
        Map from observations to exogenous noises, or None.
    mechanisms
        How latents follow from their parents in each environment, or None.
    checks
        Assumptions that were tested on the data.
    goodness_of_fit
        Test of the fitted model against a saturated one, or None.
    edge_p_values
        ``edge_p_values[i, j]`` is that of an edge from i to j, whether there is one or not, 1 where
        it would close a cycle; or None.
    encoder_standard_errors
        Of what each row of the encoder has of the other latents, or None.
    alternatives
        Competing structures, the best first.
    history
        Training curves, one array for each quantity.
    details
        Method-specific numbers, named in the method's documentation.
    device
        What the fit ran on.
    seconds
        How long it took.
    versions
        Versions of the packages that determine the numbers.
    names
        Names of the latents, no two alike; None: z0, z1, ...
    environments
        Labels of the environments as texts, in the order of the rows of `targets`, or None.
    """

    encoder: Encoder
    guarantee: Guarantee
    decoder: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None
    adjacency: NDArray[np.bool_] | None = None
    targets: NDArray[np.bool_] | None = None
    layers: tuple[tuple[int, ...], ...] | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None
    noise_encoder: Encoder | None = None
    mechanisms: Any = None
    checks: tuple[Check, ...] = ()
    goodness_of_fit: GoodnessOfFit | None = None
    edge_p_values: NDArray[np.floating] | None = None
    encoder_standard_errors: NDArray[np.floating] | None = None
    alternatives: tuple[Alternative, ...] = ()
    history: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    names: tuple[str, ...] | None = None
    environments: tuple[str, ...] | None = None

    @property
    def n_latents(self) -> int:
        """Number of recovered latents."""
        return self.encoder.n_latents

    @property
    def latent_names(self) -> list[str]:
        """Names of the latents: columns of ``transform`` and nodes of the graph."""
        return [f"z{i}" for i in range(self.n_latents)] if self.names is None else [*self.names]

    @property
    def interventions(self) -> dict[str, list[str]] | None:
        """The environments that intervene on each latent, by its name; None if there are none."""
        if self.targets is None or self.environments is None:
            return None
        return {
            name: [self.environments[e] for e in np.flatnonzero(own)]
            for name, own in zip(self.latent_names, self.targets.T, strict=True)
        }

    @property
    def graph(self) -> nx.DiGraph | None:
        """The recovered graph over `latent_names`, or None."""
        if self.adjacency is None:
            return None
        return to_networkx(self.adjacency, self.latent_names)

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The assumptions that the data contradict."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def open_checks(self) -> tuple[Check, ...]:
        """The assumptions that were not seen to hold: contradicted first, then untested."""
        untested = (check for check in self.checks if check.passed is None)
        return (*self.failed_checks, *untested)

    @property
    def is_in_doubt(self) -> bool:
        """Whether an assumption was not seen to hold, or nothing is guaranteed anyway."""
        return bool(self.open_checks) or self.guarantee.latents == "none"

    @property
    def claim(self) -> str:
        """The guarantee; where assumptions fail, what it would be if they held."""
        intended = self.guarantee.intended
        return self.guarantee.text if intended is None else f"none; if they held: {intended.text}"

    @property
    def verdict(self) -> str:
        """How far the answer can be trusted: the line that comes first wherever a fit is shown."""
        failed = len(self.failed_checks)
        untested = len(self.open_checks) - failed
        parts = []
        if self.guarantee.latents == "none":
            parts.append("nothing is guaranteed")
        if failed:
            parts.append(
                f"{failed} assumption{' fails' if failed == 1 else 's fail'} on these data"
            )
        if untested:
            parts.append(f"{untested} assumption{'' if untested == 1 else 's'} could not be tested")
        if parts:
            return f"WARNING: {'; '.join(parts)}"
        if not self.checks:
            return "No assumption was checked"
        return f"All {len(self.checks)} checks of assumptions passed"

    @property
    def edge_tests(self) -> dict[tuple[int, int], float]:
        """P-value of each edge that was tested; a closure has edges that were not."""
        if self.adjacency is None or self.edge_p_values is None:
            return {}
        tested = self.adjacency & (self.edge_p_values < 1)
        edges = ((int(i), int(j)) for i, j in np.argwhere(tested))
        return {edge: float(self.edge_p_values[edge]) for edge in edges}

    @property
    def close_alternatives(self) -> tuple[Alternative, ...]:
        """The competing structures within five nats of the answer."""
        return tuple(other for other in self.alternatives if other.is_close)

    @property
    def evidence_gap(self) -> float | None:
        """Nats of log evidence over the best competing structure that is another answer.

        None if no other answer was met.
        """
        gaps = (other.gap for other in self.alternatives if other.is_another_answer)
        return min(gaps, default=None)

    def summary(self) -> dict[str, str]:
        """Return how far the answer can be trusted, and what was found, in a few words each."""
        parts = {"verdict": self.verdict, "guarantee": self.claim}
        if self.adjacency is not None:
            n_edges = int(self.adjacency.sum())
            parts["graph"] = f"{n_edges} edge{'' if n_edges == 1 else 's'}"
            if self.edge_tests:
                parts["graph"] += f", the weakest with p = {max(self.edge_tests.values()):.2g}"
        if self.layers is not None:
            names = self.latent_names
            listed = "; ".join(", ".join(names[i] for i in layer) for layer in self.layers)
            parts["layers"] = f"childless latents first: {listed}"
        if self.goodness_of_fit is not None:
            parts["goodness of fit"] = str(self.goodness_of_fit)
        if self.alternatives:
            parts["alternatives"] = self._alternatives_in_words()
        return parts

    def _alternatives_in_words(self) -> str:
        others = [other for other in self.close_alternatives if other.is_another_answer]
        return (
            f"{len(self.alternatives)} competing structures, {len(self.close_alternatives)} within "
            f"{CLOSE:.0f} nats, {len(others)} of these with another answer"
        )

    def __str__(self) -> str:
        words = self.summary()
        verdict, guarantee = words.pop("verdict"), words.pop("guarantee")
        return "\n".join(
            [
                verdict,
                *(f"  {check}" for check in self.open_checks),
                f"guarantee: {guarantee}",
                f"{self.n_latents} latents in {self.seconds:.1f} s on {self.device}",
                *(f"{name}: {part}" for name, part in words.items()),
                *(f"check: {check}" for check in self.checks if check.passed),
            ]
        )
