"""Linear mixing, two environments that intervene on the same latent, and no observational one.

Recovers that latent up to scale: identifiability at the level of a node. Nobody needs to know
anything of mechanisms or the graph, and nothing is learned of them: the other latents are the span
that is left. See `likelihood.interventional._pair`. Where one of the environments holds the latent
at a value, its row is exact.

References
----------
Varıcı, Acartürk, Shanmugam, Kumar and Tajer, Score-based causal representation learning: linear and
general transformations, JMLR 26(112), 2025.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from crlearn.base import counted
from crlearn.inputs import (
    Environments,
    Held,
    NoiseName,
    NumberOfLatents,
    by_environment,
    check_environment_sizes,
    in_readable_units,
    names_after,
    read_signal,
    reference_first,
)
from crlearn.likelihood import FITS, Moments, OneDirection, one_direction
from crlearn.methods._interventional import visibility_check
from crlearn.result import Check, Guarantee, LinearDecoder, Result

Matrix = NDArray[np.floating]

_ALONE = "every latent is intervened on"
_ROWS_FOR_A_DEGREE = 10  # of freedom: with fewer a statistic is no chi-square; a rule of thumb
GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="the latent that both environments intervene on up to scale, if the mixing is linear and "
    "both cut it off its parents; the others only together, and no graph",
    accounts_for=(_ALONE,),
)


def is_pair(
    environments: Environments, targets: Mapping[Hashable, Hashable] | None, *, hard: bool
) -> bool:
    """Whether two environments intervene on one latent; no other targets of a reference go."""
    labels = environments.labels[reference_first(environments)].tolist()
    if targets is None or targets.get(labels[0]) is None:
        return False
    alike = all(label in targets and targets[label] == targets[labels[0]] for label in labels)
    if hard and len(labels) == 2 and alike:
        return True
    raise ValueError(
        f"The 'targets' name one for the reference environment, {labels[0]}, which must be "
        "observational: leave it out of 'targets', or name another reference. Without an "
        "observational environment two alone are taken, with hard interventions on the same "
        "latent; EmpiricalBayesCRL takes more of them, where the graph is known."
    )


def node_level_crl(
    X: Matrix,
    environments: Environments,
    target: Hashable,
    n_latents: NumberOfLatents = None,
    *,
    noise: NoiseName = "auto",
    seed: int = 0,
) -> Result:
    """Recover the latent that both environments intervene on; see the module's text."""
    signal = read_signal(X, environments, counted(n_latents), 1, noise)
    if signal.noise is not None:
        raise ValueError(
            "Between two environments that intervene on the same latent, measurement noise cannot "
            "be taken off. X must be an exact mixture of fewer latents than features; give "
            "'n_latents', and noise='none' to leave the noise in."
        )
    n, order = signal.n_latents, np.arange(2)
    rows = by_environment(signal.encoder(X), environments, order)
    held = Held.of(rows, environments.labels)
    held.refuse_several()
    if held.any:
        row, check = held.one_row(), _exact(held)
    else:
        found = one_direction(rows, np.random.default_rng(seed))
        row, check = found.row, _single(found)
    H = np.vstack([row, null_space(row[None]).T])
    encoder = in_readable_units(H @ signal.encoder.matrix, X, environments)
    targets = np.zeros((2, n), dtype=bool)
    targets[:, 0] = True
    names = names_after([[target], *[[]] * (n - 1)])
    others = ", ".join(names[1:] if names else (f"z{j}" for j in range(1, n)))
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=GUARANTEE,
        adjacency=np.zeros((n, n), dtype=bool),
        targets=targets,
        names=names,
        environments=environments.names,
        checks=(
            *signal.checks,
            Check(_ALONE, n == 1, f"latents without an intervention: {others or 'none'}"),
            check_environment_sizes(environments, n),
            visibility_check(
                Moments.of(held.widened(rows, np.random.default_rng(seed))), environments.labels
            ),
            check,
        ),
        details=dict(signal.details),
    )


def _single(found: OneDirection) -> Check:
    name = "environments differ in one latent"
    if found.p_value >= FITS and found.overlap < _ROWS_FOR_A_DEGREE * found.freedom:
        return Check(
            name,
            None,
            f"only {found.overlap:.0f} rows could be of either environment, too few to see whether "
            "other directions tell them apart as well; choose environments that overlap",
        )
    return Check(
        name,
        found.p_value >= FITS,
        "whether other directions tell them apart as well: score statistic "
        f"{found.statistic:.0f} with {found.freedom} degrees of freedom, p = {found.p_value:.2g}",
    )


def _exact(held: Held) -> Check:
    return Check(
        "environments differ in one latent",
        True,
        f"in {held.where()} it is held at a value, which gives its row whatever the other does",
    )
