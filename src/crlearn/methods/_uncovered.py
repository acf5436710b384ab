"""What is known of latents that no environment intervenes on.

With linear mechanisms and Gaussian noise it is their span. Mechanisms that are nonlinear along
every direction of the parents, with additive Gaussian noise, tell more, as they do in observational
data (Welch et al., 2024). Of any two encoders that explain all environments in that way:

1. Layers are the same, and noises of a layer are mixed by a rotation, in units in which they have
   variance one (theorems 1 and 2 of the paper).
2. An intervention on latent j changes the log-density by a function of latents upstream and of
   noises of its layer, in which z_j alone enters. So noises of latents that are intervened on are
   known up to scale; where they are cut off, a linear function of others in them would show, and
   latents are known up to scale, too.
3. Bends of a mechanism show the span of its parents. So two noises are mixed only if their latents
   have effects on the same latents, or the same groups of latents that are mixed: childless ones
   without interventions are a group, and others are if their children lie in the same groups. Edges
   between groups are known.

A linear effect on a latent without an intervention cannot be told from a mixture, and makes no
layers. A latent that takes part in no nonlinear mechanism may have any linear effects.

References
----------
Welch, Zhang and Uhler, Identifiability guarantees for causal disentanglement from purely
observational data, NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crlearn.likelihood import FITS, Fit
from crlearn.methods._interventional import listed, span_in_words
from crlearn.result import Check, Guarantee

BoolMatrix = NDArray[np.bool_]
Groups = tuple[tuple[int, ...], ...]

COVERAGE = "every latent is intervened on, or in nonlinear mechanisms"


def shows_layers(fit: Fit, covered: NDArray[np.bool_]) -> bool:
    """Whether mechanisms were seen to tell the layers of latents that nothing intervenes on."""
    return not covered.all() and not _obstacle(fit, covered, None)


def layers_of(fit: Fit, covered: NDArray[np.bool_]) -> Groups | None:
    """Return the layers of the fit, if they are known; interventions on all latents need none."""
    return fit.layers if shows_layers(fit, covered) else None


def known_edges(fit: Fit, known: BoolMatrix, covered: NDArray[np.bool_]) -> BoolMatrix:
    """Return the edges that are known where some latents are not intervened on.

    Edges into a group are those into any of its latents. Without layers, edges from and to latents
    that are not intervened on are left out.
    """
    if covered.all() or not shows_layers(fit, covered):
        return known & covered & covered[:, None]
    edges = known.copy()
    for group in groups_of(fit, covered):
        edges[:, group] = edges[:, group].any(axis=1, keepdims=True)
    return edges


def groups_of(fit: Fit, covered: NDArray[np.bool_]) -> Groups:
    """Return the groups of latents whose noises may be mixed; most are a single latent."""
    group_of, found = {}, dict[object, list[int]]()
    for layer in fit.layers:
        for j in layer:
            effects = frozenset(group_of[k] for k in np.flatnonzero(fit.adjacency[j]).tolist())
            key = j if covered[j] else effects
            found.setdefault(key, []).append(j)
            group_of[j] = key
    return tuple(tuple(group) for group in found.values())


def guarantee_of(
    full: Guarantee, fit: Fit, covered: NDArray[np.bool_], names: Sequence[str] | None
) -> Guarantee:
    """Return what is left of a guarantee if some latents are not intervened on.

    Parameters
    ----------
    full
        The guarantee if all were.
    fit
        With tests of its mechanisms, or without.
    covered
        Whether each latent is intervened on.
    names
        Of the latents; None: z0, z1, ...
    """
    if covered.all():
        return full
    is_one = (~covered).sum() == 1
    about_covered = f"for the latents that were intervened on: {full.text}"
    if shows_layers(fit, covered):
        noise = "additive" if fit.any_noise else "additive and Gaussian"
        text = (
            f"{about_covered}; no environment intervenes on "
            f"{listed(np.flatnonzero(~covered), names)}{', which is' if is_one else ': each is'} "
            "recovered up to a mixture with its layer and the layers upstream, and which latents "
            f"are in which layer is known, if noise is {noise} and every mechanism is nonlinear "
            "along every direction of the parents, which those of this answer were seen to be"
        )
        mixed = [group for group in groups_of(fit, covered) if len(group) > 1]
        for group in mixed:
            text += f"; edges to {listed(group, names)} are those to any of them"
        return Guarantee(latents="layers", graph="layers", text=text)
    them = "it" if is_one else "them"
    return Guarantee(
        latents="span",
        graph="none",
        text=f"{about_covered}; {span_in_words(~covered, names)}, edges from and to {them} are not "
        f"known, and an edge between others may pass through {them}",
        accounts_for=(COVERAGE,),
    )


def coverage_check(fit: Fit, covered: NDArray[np.bool_], names: Sequence[str] | None) -> Check:
    """Check that every latent is intervened on, or placed by mechanisms that were seen to bend."""
    if covered.all():
        return Check(COVERAGE, True, "latents without an intervention: none")
    detail = f"latents without an intervention: {listed(np.flatnonzero(~covered), names)}"
    obstacle = _obstacle(fit, covered, names)
    if not obstacle:
        return Check(COVERAGE, True, f"{detail}; every mechanism was seen to be nonlinear")
    return Check(COVERAGE, False, f"{detail}; {obstacle}")


def _obstacle(fit: Fit, covered: NDArray[np.bool_], names: Sequence[str] | None) -> str:
    """Return why layers of latents without an intervention are not known; nothing if they are."""
    if fit.straight_p_values is None:
        return "nonlinear mechanisms, which could show their layers, were not seen"
    straight = np.flatnonzero(fit.straight_p_values >= FITS)
    if len(straight):
        return (
            "along some direction of the parents no nonlinear effect was seen on "
            f"{listed(straight, names)}"
        )
    apart = ~covered & ~fit.adjacency.any(axis=0) & ~fit.adjacency.any(axis=1)
    if apart.any():
        return f"no nonlinear effect was seen of or on {listed(np.flatnonzero(apart), names)}"
    return ""
