"""What the methods for interventions say of their fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from crlearn.graph import transitive_closure
from crlearn.inputs import Environments, Held, Signal
from crlearn.likelihood import FITS, Dependence, Fit, Moments
from crlearn.result import Check, Guarantee

Matrix = NDArray[np.floating]
Mechanisms = Literal["auto", "linear", "nonlinear"]

_INVISIBLE = 0.01
_REMEDY = "outliers='downweight' leaves rows far out aside"
# Share of a residual's variance that others may explain, if that is no chance. Quadratic worlds,
# seeds 0 and 1: nothing beyond chance in right ones, 0.5 and more in ones with a broken assumption.
_TOLERATED = 0.05
# P-value of a missing edge, times the pairs without one, that leaves it in doubt. In 230 worlds of
# seeds 0 to 9 (soft and hard, clear and weak) 12 of 22 errors that nothing else tells of are said,
# and 2 of 191 right answers more are doubted; half the level says 9 and doubts 1.
_DOUBT = 0.1
_APART = float(np.sqrt(2) * norm.isf(0.025))  # standard errors between two different effects


def known_relations(fit: Fit, *, hard: bool) -> NDArray[np.bool_]:
    """Return the edges that are the answer: those into a latent, or all its ancestors.

    Where interventions are soft, edges are told from longer paths by mechanisms that are seen to be
    nonlinear along every direction of the parents.
    """
    if hard:
        return fit.adjacency
    return np.where(_tells_parents_apart(fit), fit.adjacency, transitive_closure(fit.adjacency))


def _tells_parents_apart(fit: Fit) -> NDArray[np.bool_]:
    if fit.straight_p_values is None:
        return np.zeros(len(fit.graph), dtype=bool)
    return fit.straight_p_values < FITS


def soft_guarantee(linear: Guarantee, fit: Fit, names: Sequence[str] | None) -> Guarantee:
    """Return what soft interventions guarantee: more than with linear mechanisms, where these bend.

    Parameters
    ----------
    linear
        The guarantee with linear mechanisms.
    fit
        With tests of its mechanisms, or without.
    names
        Of the latents; None: z0, z1, ...
    """
    told = _tells_parents_apart(fit)
    if not told.any() or not fit.adjacency.any():  # without parents there is nothing to tell
        return linear
    if told.all():
        return Guarantee(
            latents="surrounding",
            graph="exact",
            text="each latent up to scale, order and a mixture with those of its parents that are "
            "parents of all its children, too, and the exact graph, if the mixing is linear, "
            "environments change mechanisms as said, and mechanisms are nonlinear along every "
            "direction of the parents, which those of this answer were seen to be",
        )
    doubtful = np.flatnonzero(~told)
    whose, own = listed(doubtful, names), "their" if len(doubtful) > 1 else "its"
    return Guarantee(
        latents=linear.latents,
        graph=linear.graph,
        text=f"{linear.text}; edges to {whose} stand for ancestors, as along some direction of "
        f"{own} parents no nonlinear effect was seen; edges to other latents are exact",
    )


def listed(which: Sequence[int] | NDArray[np.intp], names: Sequence[str] | None) -> str:
    """Return the names of some latents, as a text."""
    return ", ".join(f"z{j}" if names is None else names[j] for j in which)


def span_in_words(hidden: NDArray[np.bool_], names: Sequence[str] | None) -> str:
    """Return what is recovered of latents that no environment intervenes on, as a text."""
    which = np.flatnonzero(hidden)
    said = f"no environment intervenes on {listed(which, names)}, which"
    if len(which) == 1:
        return f"{said} is recovered only mixed with its ancestors"
    return f"{said} are recovered only together, mixed with each other and their ancestors"


def blamed(mechanisms: Mechanisms, signal: Signal) -> Mechanisms:
    """Return which mechanisms to fit: nonlinear ones are no remedy for what X has beside latents.

    Noise that is taken off is none to blame.
    """
    is_exact = all(check.passed is not False for check in signal.checks)
    return mechanisms if is_exact or mechanisms != "auto" else "linear"


def held_latents(rows: Sequence[Matrix], labels: NDArray[Any], *, hard: bool) -> Held:
    """Find what environments hold at a value; no soft intervention does that."""
    held = Held.of(rows, labels)
    held.refuse_flat_reference()
    if not hard and held.any:
        raise ValueError(
            f"In {held.where()} latents are held at values, which is a hard intervention: they "
            "are cut off their parents. Leave out these environments, or, if all interventions are "
            "hard, give interventions='hard'."
        )
    return held


def visibility_check(moments: Moments, labels: NDArray[Any]) -> Check:
    """Check that every environment differs from the first, the reference, in mean or covariance."""
    p_values = np.array([_p_value_of_equality(moments, e) for e in range(1, len(moments.sizes))])
    hidden = labels[1:][p_values > _INVISIBLE]
    return Check(
        "interventions are visible",
        len(hidden) == 0,
        "environments that cannot be told from the reference: "
        + (", ".join(map(str, hidden[:8])) or "none"),
    )


def _p_value_of_equality(moments: Moments, e: int) -> float:
    """Return the p-value of the hypothesis that environment e is like the reference."""
    n = moments.n_variables
    weights = np.zeros(len(moments.sizes))
    weights[[0, e]] = moments.sizes[[0, e]]
    apart = moments.sizes[[0, e]] @ np.linalg.slogdet(moments.covariances[[0, e]])[1]
    together = weights.sum() * np.linalg.slogdet(moments.pooled(weights))[1]
    return float(chi2.sf(together - apart, n + n * (n + 1) // 2))


def fit_checks(
    name: str, fit: Fit, environments: Environments, order: NDArray[np.intp]
) -> tuple[Check, ...]:
    """Check that the fitted model explains every environment, and say whose means are free."""
    test, worst = fit.goodness_of_fit, fit.dependence
    assert test is not None
    ratio = f"likelihood ratio {test.ratio:.0f} with {test.freedom} degrees of freedom"
    detail = f"{ratio}, p = {test.p_value:.2g}"
    if worst is None:
        checks = [Check(name, fit.fits, detail)]
    else:
        fits = worst.p_value >= FITS or worst.share < _TOLERATED
        left = _residuals_in_words(worst, environments.labels[order])
        if not fits and environments.numbers is None:
            left += f"; {_REMEDY}, if that is why"
        said = f"linear mechanisms: {detail}; nonlinear ones were fitted, and {left}"
        checks = [Check(name, fits, said)]
    if fit.free_means:
        means = "each environment has its own, as shared ones are rejected (batches, say)"
        checks.append(Check("means of environments", True, means))
    return tuple(checks)


def _residuals_in_words(worst: Dependence, labels: NDArray[Any]) -> str:
    if worst.p_value >= FITS:
        return (
            "no residual is seen to depend on other latents or the environment "
            f"(p = {worst.p_value:.2g}, all tests together)"
        )
    return (
        f"other latents or the environment explain {worst.share:.2g} of the variance of a residual "
        f"(that of z{worst.latent} in environment {labels[worst.environment]}, "
        f"p = {worst.p_value:.2g})"
    )


def far_rows_check(
    fit: Fit, environments: Environments, order: NDArray[np.intp]
) -> tuple[Check, ...]:
    """Check that linear mechanisms have the same answer without rows that stand far out."""
    if fit.dependence is not None:
        return ()
    name, far = "answer does not hang on few rows", fit.far_rows
    if far is None:
        return (Check(name, True, "no row stands far out of its environment"),)
    rows = np.concatenate(
        [
            np.flatnonzero(environments.codes == e)[places]
            for e, places in zip(order, far.places, strict=True)
        ]
    )
    if environments.numbers is not None:
        rows = environments.numbers[rows]
    rows.sort()
    listed = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
    said = f"{len(rows)} of {len(environments.codes)} fitted rows stand far out ({listed})"
    without = "another one" if far.matter else "the same"
    if far.matter and environments.numbers is None:
        without += f"; {_REMEDY}"
    return (Check(name, not far.matter, f"{said}; without them the answer is {without}"),)


def doubt_check(
    fit: Fit, known: NDArray[np.bool_], names: Sequence[str] | None
) -> tuple[Check, ...]:
    """Check that no edge is missing for want of rows alone.

    Of all pairs that the answer leaves unrelated the one is looked at that chance explains least.
    It is in doubt if chance hardly explains it, and if it cannot be told from the weakest edge that
    was found. Where interventions show every edge clearly, nothing that small is one.

    Parameters
    ----------
    fit
        With p-values of edges, there or not; without them there is no check.
    known
        The relations that are the answer, and those that are not looked at.
    names
        Of the latents; None: z0, z1, ...
    """
    if fit.edge_p_values is None:
        return ()
    name = "no missing edge is in doubt"
    p_values = np.where(known | known.T | np.eye(len(known), dtype=bool), np.inf, fit.edge_p_values)
    n_pairs = int(np.isfinite(p_values).sum()) // 2
    if not n_pairs:
        return (Check(name, True, "every pair of latents is related"),)
    i, j = (int(k) for k in np.unravel_index(p_values.argmin(), p_values.shape))
    estimate = np.sqrt(chi2.isf(p_values[i, j], 1))
    weakest = np.sqrt(chi2.isf(fit.edge_p_values[fit.adjacency].max(initial=0.0), 1))
    alike = not fit.n_edges or weakest - estimate < _APART
    cause, effect = (f"z{k}" if names is None else names[k] for k in (i, j))
    detail = (
        f"of {n_pairs} pairs without a relation {cause} -> {effect} is the most likely one "
        f"(p = {p_values[i, j]:.2g}), {estimate:.1f} standard errors from none"
    )
    if fit.n_edges:
        detail += f"; the weakest edge is {weakest:.1f}"
    return (Check(name, not (alike and p_values[i, j] * n_pairs < _DOUBT), detail),)


def fit_details(fit: Fit, signal: Signal) -> dict[str, Any]:
    """Return what the record of a fit says of its model, and of the noise of the features."""
    return {
        **signal.details,
        **({} if signal.noise is None else {"noise_sds": signal.feature_noise}),
        "mechanisms": fit.mechanisms,
        "noise": "any" if fit.any_noise else "gaussian",
        "score": fit.score,
        **({} if fit.straight_p_values is None else {"straight_p_values": fit.straight_p_values}),
    }
