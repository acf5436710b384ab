"""What a latent additive noise model guarantees, and checks of what that rests on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import MechanismKind
from crlearn.methods.additive._latents import Latents, Segments, regressions_of
from crlearn.result import Check, Guarantee

Matrix = NDArray[np.floating]

# Development worlds: 0.17 to 0.58 in three chains of three latents with 40 segments, 0.33 in a
# random graph of five, 0.64 for the arm; 0.04 and 0.05 with 14 segments.
_LEAST_VARIABILITY = 0.1
_ROWS_FOR_A_LATENT = 10  # of a segment: regressions have five functions of each latent
# Nats a row that mechanisms of any shape may explain beyond those asked for, 2% of the variance.
# Sums of steps, development seed 0, chain of three: 0.020 beyond polynomials, and in a small world
# 0.034 beyond lines; where mechanisms have the shape, chance alone is left. Not on fresh seeds.
_OTHER_SHAPE = 0.01
VANISHING = "mechanisms vanish in some segments"

_FULL = (
    "each latent up to order, scale and shift (up to an invertible function of its own, if latents "
    "are bent after noise is added), and {graph}, if the mixing is smooth and one to one, noises "
    "are independent in every segment and have one shape, their means and variances change enough "
    "over segments, and in segments where mechanisms were found to be alike they vanish"
)
_PARTIAL = (
    "{found} up to order, scale and shift; {open} only up to a function of the latents before it "
    "that is added, as no segments were found in which its mechanism vanishes; {graph} of those "
    "that are found, if the mixing is smooth and one to one, noises are independent in every "
    "segment and have one shape, their means and variances change enough over segments, and in "
    "segments where mechanisms were found to be alike they vanish"
)


def guarantee_of(identified: NDArray[np.bool_], least_effect: float) -> Guarantee:
    """Say what is recovered, latent by latent."""
    share = 1 - np.exp(-2 * least_effect)
    graph = (
        f"the exact graph, but for causes that explain less than {share:.0%} of what the others "
        "leave of a latent's variance"
    )
    if identified.all():
        return Guarantee("scale", "exact", _FULL.format(graph=graph))
    return Guarantee(
        latents="ancestors",
        graph="none",
        text=_PARTIAL.format(found=_listed(identified), open=_listed(~identified), graph=graph),
        accounts_for=(VANISHING,),
    )


def _listed(which: NDArray[np.bool_]) -> str:
    return ", ".join(f"z{j}" for j in np.flatnonzero(which).tolist())


def vanishing_check(latents: Latents, n_segments: int) -> Check:
    """Check that every latent is without mechanism in some segments (condition iii)."""
    identified = latents.identified
    if identified.all():
        counts = (latents.vanishes(n_segments) > 0.5).sum(axis=0)
        said = ", ".join(f"z{j} in {counts[j]}" for j in range(1, len(counts)))
        return Check(VANISHING, True, f"of {n_segments} segments: {said or 'one latent'}")
    doubts = [
        f"z{j} ({_in_words(v.evidence, v.gap)})"
        for j, v in enumerate(latents.vanishing, start=1)
        if not identified[j]
    ]
    return Check(
        VANISHING,
        False,
        f"no segments are clearly without the mechanism of {', '.join(doubts)}: only up to a "
        "function of earlier latents are these known",
    )


def _in_words(evidence: float, gap: float) -> str:
    if not np.isfinite(evidence):
        return "no three segments are alike"
    if gap < evidence:
        return f"two answers are within {gap:.1f} nats"
    return f"segments that are alike gain {evidence:.1f} nats"


def natural_parameters(Z: Matrix, noises: Matrix, segments: Segments) -> Matrix:
    """Return mean / variance and 1 / variance of each noise in each segment.

    The mean is that of the latent: nothing tells the mean of a noise from a constant that is added
    to its mechanism.
    """
    means = np.array([part.mean(axis=0) for part in segments.split(Z)])
    variances = np.array([part.var(axis=0) for part in segments.split(noises)])
    return np.concatenate([means / variances, 1 / variances], axis=1)


def variability(one: Matrix, other: Matrix) -> float:
    """Return how far the noises vary over segments in every direction (condition ii).

    The smallest singular value of their natural parameters, each of variance 1 over segments. What
    they vary by chance is not the same in two halves of the rows, and does not count. The value is
    0 where there are not enough segments, and 1 at most.

    Parameters
    ----------
    one, other
        Natural parameters in each segment, as two halves of its rows have them.
    """
    n = one.shape[1]
    if len(one) <= n:
        return 0.0
    joint = np.cov(one.T, other.T)
    scale = np.sqrt(0.5 * (joint.diagonal()[:n] + joint.diagonal()[n:]))
    across = 0.5 * (joint[:n, n:] + joint[n:, :n]) / np.outer(scale, scale)
    return float(np.sqrt(max(np.linalg.eigvalsh(across).min(), 0.0)))


def variability_check(value: float, n_segments: int, n_latents: int) -> Check:
    """Check that noises vary enough over segments."""
    needed = 2 * n_latents + 1
    return Check(
        "noises vary enough over segments",
        n_segments >= needed and value >= _LEAST_VARIABILITY,
        f"{n_segments} segments, of which the theory asks for {needed}; the smallest singular "
        f"value of standardised natural parameters, without what they vary by chance, is "
        f"{value:.2f}; from {_LEAST_VARIABILITY} on passes",
    )


def shape_checks(Z: Matrix, segments: Segments, kind: MechanismKind) -> tuple[Check, ...]:
    """Check that mechanisms which are asked to be of some kind are, with latents in their order."""
    if kind == "nonlinear":
        return ()
    asked, any_shape = (regressions_of(Z, segments, k) for k in (kind, "nonlinear"))
    before = [frozenset(range(j)) for j in range(Z.shape[1])]
    gains = [asked.cost(j, others) - any_shape.cost(j, others) for j, others in enumerate(before)]
    most = int(np.argmax(gains))
    return (
        Check(
            f"mechanisms are {kind}",
            gains[most] <= _OTHER_SHAPE,
            f"smooth steps explain {max(gains[most], 0.0):.2g} nats a row of z{most} beyond that; "
            f"up to {_OTHER_SHAPE} passes",
        ),
    )


def sizes_check(segments: Segments, n_latents: int) -> Check:
    """Check that each segment has rows enough for regressions on the other latents."""
    fewest = min(map(len, segments.rows))
    needed = _ROWS_FOR_A_LATENT * n_latents
    return Check(
        "segment sizes",
        fewest >= needed,
        f"the smallest of {len(segments)} segments has {fewest} rows; from {needed} on passes",
    )
