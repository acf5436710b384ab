"""What a flow fitted to interventions guarantees, and checks of what that rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crlearn.flows import NodeRegressions
from crlearn.methods._interventional import span_in_words
from crlearn.result import Check, Guarantee
from crlearn.train import Training, finite_check

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

# Share of the variance of a latent that others explain where it is cut off, or by which its
# residual changes where it is left alone. Smooth maps, development seeds 0 to 2, not yet fresh
# ones. Others explained at most .027 in nine right answers (five and eight latents, one and two
# interventions, Gaussian and Gumbel noise), .065 to .23 in three of 200 steps. With what chance
# adds (about .05), residuals changed by at most .08 in the right answers, by .56 to .65 in four
# where targets were exchanged or an environment had a second one.
_LARGEST_SHARE = 0.05
_LARGE_GAP = 0.1  # nats a row of held-out likelihood
SAME_LATENTS = 0.9
_COVERAGE = "every latent is intervened on"

_TWO = (
    "each latent up to an invertible function of its own and order, and {graph}, if the mixing is "
    "smooth and one to one, and each environment but the reference cuts one latent off its causes, "
    "two different ones for each latent"
)
_ONE = (
    "each latent up to an invertible function of its own and order, and {graph}, if the mixing is "
    "smooth and one to one, each environment but the reference cuts one latent off its causes, and "
    "mechanisms add noise that is near Gaussian: one intervention for each latent is enough under "
    "such an assumption only"
)
_LINEAR = (
    "each latent up to scale and order, and {graph}, if the mixing is smooth and one to one, "
    "latents are linear and Gaussian, and each environment but the reference cuts one latent off "
    "its causes"
)


def guarantee_of(
    own: BoolMatrix, names: Sequence[str] | None, *, linear: bool, least_effect: float | None
) -> Guarantee:
    """Say what is recovered.

    Parameters
    ----------
    own
        Which environment intervenes on which latent.
    names
        Of the latents.
    linear
        Whether mechanisms are.
    least_effect
        Nats a row that a cause explains beyond the others, if it is to be found; None: the graph
        was known.
    """
    counts = own.sum(axis=0)
    words = _LINEAR if linear else _TWO if counts.min() >= 2 else _ONE
    text = words.format(graph=_graph_in_words(least_effect))
    if counts.all():
        return Guarantee("scale" if linear else "elementwise", "exact", text)
    return Guarantee(
        latents="span",
        graph="none",
        text=f"for the latents that were intervened on: {text}; "
        + span_in_words(counts == 0, names),
        accounts_for=(_COVERAGE,),
    )


def _graph_in_words(least_effect: float | None) -> str:
    if least_effect is None:
        return "the graph as it was given"
    share = 1 - np.exp(-2 * least_effect)
    return (
        f"the exact graph, but for causes that explain less than {share:.0%} of what the others "
        "leave of a latent's variance"
    )


def coverage_check(covered: NDArray[np.bool_], names: Sequence[str] | None) -> Check:
    missing = _listed(~covered, names)
    return Check(
        _COVERAGE, bool(covered.all()), f"latents without an intervention: {missing or 'none'}"
    )


def _listed(which: NDArray[np.bool_], names: Sequence[str] | None) -> str:
    return ", ".join(f"z{j}" if names is None else names[j] for j in np.flatnonzero(which).tolist())


def structure_checks(
    regressions: NodeRegressions,
    own: BoolMatrix,
    before: BoolMatrix,
    labels: NDArray[Any],
    columns: NDArray[np.intp],
    names: Sequence[str] | None,
) -> tuple[Check, ...]:
    """Check that interventions cut latents off, and that mechanisms stay otherwise."""

    def place(values: Matrix) -> tuple[float, str, Any]:
        e, j = np.unravel_index(values.argmax(), values.shape)
        position = int(np.flatnonzero(columns == j)[0])
        return float(values[e, j]), f"z{position}" if names is None else names[position], labels[e]

    cut_off = regressions.dependence(before, own)
    change = regressions.changes(before, own)
    most, latent, label = place(cut_off)
    most_changed, changed, elsewhere = place(change)
    return (
        Check(
            "interventions cut latents off",
            most <= _LARGEST_SHARE,
            f"where {latent} is intervened on ({label}) its predecessors explain {most:.1%} of the "
            f"variance that it has in {labels[0]}; up to {_LARGEST_SHARE:.0%} passes",
        ),
        Check(
            "mechanisms stay where nobody intervenes",
            most_changed <= _LARGEST_SHARE,
            f"the residual of {changed} changes most, in {elsewhere}, by {most_changed:.1%} of the "
            f"variance that the latent has in {labels[0]}; up to {_LARGEST_SHARE:.0%} passes",
        ),
    )


def restarts_check(fit: Training, same: float = SAME_LATENTS) -> Check:
    """Check that another restart has the latents of the answer, to a correlation of `same`."""
    name = "restarts agree"
    if not fit.agreements:
        return Check(name, None, "there was one restart; n_restarts=2 or more would tell")
    if max(fit.agreements) >= same:
        return Check(name, True, f"another one has the same latents ({max(fit.agreements):.3f})")
    detail = (
        f"the next best has other latents (correlation {fit.agreements[0]:.2f}), and its held-out "
        f"likelihood is {fit.gaps[0]:.2g} nats a row lower"
    )
    if fit.gaps[0] < _LARGE_GAP:
        return Check(name, False, f"{detail}: the data do not decide")
    return Check(name, None, f"{detail}: one restart alone came to the answer; more would tell")


def training_checks(fit: Training) -> tuple[Check, ...]:
    """Check that training came to its end, and that nothing in it was infinite."""
    return (
        Check(
            "training came to its end",
            fit.stopped != "interrupted",
            "it was interrupted: targets and order may be those of its start"
            if fit.stopped == "interrupted"
            else f"{len(fit.history['epoch'])} times all restarts were compared",
        ),
        finite_check(fit),
    )
