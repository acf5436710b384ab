"""What speaks against a fit to observational data: linear effects, and noise of a wrong shape.

Linear effects with Gaussian noise make Gaussian data, and no axes of a Gaussian differ from others:
whatever is found there means nothing. Where one effect is linear, a latent may
stand alone: a linear effect is no edge of a fit, but part of the latent itself. Where noises are
taken to be Gaussian, others are taken for effects; where they have densities of their own, Gaussian
ones of a layer cannot be told apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, kurtosis, norm, rankdata, skew

from crlearn.graph import transitive_closure
from crlearn.likelihood import FITS, Fit, gaussian_p_values, is_gaussian
from crlearn.result import Check, Guarantee
from crlearn.scores import Posterior

Matrix = NDArray[np.floating]

_NOT_GAUSSIAN = "data are not Gaussian"
_BENT = "mechanisms are nonlinear along every direction"
_GAUSSIAN_NOISE = "noise is Gaussian"
_TOLD_APART = "noises of a layer can be told apart"
# Mean correlation. The fit errs, too: in 20 worlds with noise of 30% (the mechanisms of the
# study honesty, seeds 0 to 3) as many as 0.07 were lost beside what was expected.
_CLEAR = 0.95
_ONLY_THE_SPAN = (
    "effects may be linear, and then latents and layers cannot be recovered from observational "
    "data; only the span can"
)


def luck_of_a_gaussian(n_latents: int) -> float:
    """Return the gain in nats that Gaussian data may reach, as axes are chosen for them.

    A likelihood gains half a chi-squared by each of the p angles that are chosen; this is its mean
    plus two standard deviations. Edges have paid their price already: white Gaussian rows gained
    at most 4.9 (four latents) and 6.0 nats (six), where 6.5 and 13 are asked for.
    """
    half = n_latents * (n_latents - 1) / 4
    return half + 2 * np.sqrt(half)


def nonlinearity_check(fit: Fit) -> Check:
    """Check that the fit explains more than Gaussian data, whose axes mean nothing, would allow."""
    name, n = _NOT_GAUSSIAN, len(fit.H)
    if n == 1:
        return Check(name, True, "a single latent has no mechanism to show")
    needed = luck_of_a_gaussian(n)
    what = "mechanisms" if is_gaussian(fit) else "mechanisms and densities"
    gained = f"{what} gain {fit.score:.1f} nats over a Gaussian, and {needed:.1f} may be luck"
    if fit.score >= needed:
        return Check(name, True, gained)
    return Check(name, False, f"{gained}: {_ONLY_THE_SPAN}")


def tied_by_bends(fit: Fit) -> NDArray[np.bool_]:
    """Return which latents nonlinear effects tie to others, so that their layers are determined.

    A latent is tied by its mechanism, or by that of a child, if this is seen to be nonlinear along
    every direction of the parents, unless its own is not. Behind measurement noise edges are taken
    to be nonlinear: linear effects make none.
    """
    has_parents = np.asarray(fit.adjacency.any(axis=0))
    bent = has_parents & ~_straight(fit)
    has_bent_child = np.asarray((fit.adjacency & bent).any(axis=1))
    return np.asarray(bent | (has_bent_child & ~has_parents))


def _straight(fit: Fit) -> NDArray[np.bool_]:
    """Return which mechanisms are not seen to be nonlinear along some direction."""
    if fit.straight_p_values is None:
        return np.zeros(len(fit.H), dtype=bool)
    return fit.straight_p_values >= FITS


def directions_check(fit: Fit) -> tuple[Check, ...]:
    """Check each mechanism for directional nonlinearity, which Gaussian noise asks for.

    A latent without any effect says nothing of it: a linear one looks like that, but so do
    proportional effects of the same parents on several latents, as all but one can be taken off.
    """
    if not is_gaussian(fit):  # linear mechanisms are allowed
        return ()
    tied, straight, p_values = tied_by_bends(fit), _straight(fit), fit.straight_p_values
    if straight.any():
        said = f"along some direction no bend is seen in the mechanisms of {_listed(straight)}"
        return (Check(_BENT, False, f"{said}: {_listed(~tied)} may be in any layer"),)
    if not tied.all() and len(tied) > 1:
        said = f"no nonlinear effect on or of {_listed(~tied)}, and linear ones cannot be seen"
        return (Check(_BENT, None, said),)
    if p_values is None:
        return (Check(_BENT, True, "every latent has an edge, and linear effects make none"),)
    largest = f"p = {p_values.max():.2g} at most, each along its worst direction"
    return (Check(_BENT, True, f"no mechanism is straight ({largest})"),)


def of_tied_latents(full: Guarantee, fit: Fit) -> Guarantee:
    """Return what is left of a guarantee by `directions_check`: the latents that it holds for.

    Parameters
    ----------
    full
        The guarantee if it passes.
    fit
        With tests of its mechanisms, or without.
    """
    tied, straight = tied_by_bends(fit), _straight(fit)
    if tied.all() or not tied.any():  # if none is, nothing is left, which failed checks say
        return full
    others, known = _listed(~tied), _listed(tied)
    if straight.any():
        return Guarantee(
            latents="span",
            graph="none",
            text=f"of {known} alone: {full.text}. Each may be mixed with {others}, too, whose "
            "layers are not known: linear effects cannot be told from the mixing",
            accounts_for=(_BENT,),
        )
    return replace(
        full,
        text=f"{full.text}. This is seen of {known}; that {others} is in the last layer holds if "
        "it is no linear effect or cause of the others, which cannot be seen",
        accounts_for=(_BENT,),
    )


def noise_checks(fit: Fit, latents: Matrix, noises: Matrix) -> tuple[Check, Check]:
    """Check the shape of noises, and that they are independent of what is not below them."""
    shape = _gaussian_check(noises) if is_gaussian(fit) else _apart_check(fit)
    return shape, _independence_check(fit, latents, noises)


def visibility_check(noises: Posterior) -> Check:
    """Check that the exogenous noises show behind the measurement noise.

    The correlation of a noise with its posterior mean follows from the posterior variances.
    """
    seen = noises.mean.var(axis=0)
    expected = np.sqrt(seen / (seen + noises.variance.mean(axis=0)))
    j = int(expected.argmin())
    return Check(
        "noises stand out from the measurement noise",
        bool(expected.mean() >= _CLEAR),
        f"posterior means of noises have expected correlations of {expected.mean():.2f} with them, "
        f"the least {expected[j]:.2f} (z{j}); more features or less noise would tell more",
    )


def _listed(latents: NDArray[np.bool_]) -> str:
    return ", ".join(f"z{j}" for j in np.flatnonzero(latents))


def _apart_check(fit: Fit) -> Check:
    """Check that no layer has two noises whose density is a Gaussian's (Comon 1994)."""
    for layer in fit.layers:
        alike = [j for j in layer if fit.parameters[j, 0].density.freedom == 0]
        if len(alike) > 1:
            named = ", ".join(f"z{j}" for j in alike)
            detail = f"noises of {named}, in one layer, look Gaussian: they may be mixed"
            return Check(_TOLD_APART, False, detail)
    return Check(_TOLD_APART, True, "at most one noise of each layer looks Gaussian")


def _gaussian_check(noises: Matrix) -> Check:
    """Test skewness and kurtosis of each noise."""
    p_values = gaussian_p_values(noises)
    j = int(p_values.argmin())
    p_value = float(p_values[j])
    detail = (
        f"skewness {skew(noises)[j]:.2f} and excess kurtosis {kurtosis(noises)[j]:.2f} of the "
        f"noise of z{j}, p = {p_value:.2g}"
    )
    if p_value >= FITS:
        return Check(_GAUSSIAN_NOISE, True, detail)
    return Check(_GAUSSIAN_NOISE, False, f"{detail}: other noise is taken for effects")


def _independence_check(fit: Fit, latents: Matrix, noises: Matrix) -> Check:
    """Regress each noise and its square on latents that are not below it, and their squares.

    Of all, what is regressed are normal scores: independence is as it was, tails are a Gaussian's.
    """
    noises, latents = _normal_scores(noises), _normal_scores(latents)
    name, below = "noise is independent of its causes", transitive_closure(fit.adjacency)
    n_rows, n = noises.shape
    worst = (1.0, "a latent without others above or beside it has nothing to depend on")
    for j in range(n):
        others = latents[:, ~below[j] & (np.arange(n) != j)]
        if not others.shape[1]:
            continue
        basis = np.column_stack([np.ones(n_rows), others, others**2])
        for power, said in ((1, "the noise"), (2, "the square of the noise")):
            target = noises[:, j] ** power
            target = (target - target.mean()) / target.std()
            left = target - basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
            share = float(1 - (left**2).mean())
            p_value = _of_all(float(chi2.sf(n_rows * share, basis.shape[1] - 1)), 2 * n)
            if p_value < worst[0]:
                detail = f"others explain {share:.2g} of {said} of z{j}, p = {p_value:.2g}"
                worst = (p_value, detail)
    return Check(name, worst[0] >= FITS, worst[1])


def _normal_scores(values: Matrix) -> Matrix:
    """Return what has the ranks of the values and a standard Gaussian distribution."""
    return norm.ppf((rankdata(values, axis=0) - 0.5) / len(values))


def _of_all(p_value: float, n_tests: int) -> float:
    """Return the p-value of the smallest of several."""
    return min(n_tests * p_value, 1.0)
