"""Any mixing, mechanisms that change with an auxiliary variable (latent additive noise models).

Recovers latents ``z_i = g_i(parents; u) + n_i(u)`` and the graph among them from observations of an
injective mixing, where u is observed: segments (labels), or a vector of numbers. Noises must change
with u in mean and variance, and every mechanism must vanish for some values of u; latents for which
it does not are recovered up to a function of the latents before them.

The paper trains a variational autoencoder (`crlearn.published.LatentANMVAE`). Here the encoder is
invertible by construction, and its exact likelihood takes the place of the bound:

1. *Reduction*: X is brought to as many numbers as there are latents. Where that would fold the
   surface on which the rows lie, all components are kept, and the flow makes the surface flat
   (`crlearn.flows.OnSurface`).
2. *Flow*: a smooth invertible map. At first there are no mechanisms (nonlinear ICA, conditions i
   and ii); then each is a regression in closed form in every segment, and the order of the latents
   is revised from the likelihood (`crlearn.flows.SegmentObjective`). This finds noises and order,
   and each latent up to a function of those before it, which all regressions take along; that
   every mechanism has a price keeps this function small.
3. *Vanishing mechanisms* (condition iii): segments without a mechanism have what is left of this
   function in common. It is found as the point of a mixture of functions, and taken away
   (`crlearn.flows.vanishing`). Where no such segments are seen the latent is not identified, and
   is named.
4. *Graph*: predecessors that explain next to nothing are dropped.

A continuous u is cut into cells, inside of which latents change linearly with it.

Time grows as the number of steps, whatever the number of rows is; a step takes O(b m (blocks units
d^2 + n f^2)) for a flow of d components (n, unless it makes a surface flat), m segments with b rows
in a batch and f features of a mechanism; step 3 takes O(m n f^3).

References
----------
Liu, Zhang, Gong, Gao, Huang, Gong, van den Hengel, Zhang and Shi, Towards identifiable latent
additive noise models, arXiv:2403.15711.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.flows import MechanismKind, OnSurface, SegmentObjective, SegmentParameters, fit_flow
from crlearn.methods._flow_checks import SAME_LATENTS, restarts_check, training_checks
from crlearn.methods._image_reduction import reduce_images
from crlearn.methods._reduction import (
    Composed,
    ComposedDecoder,
    FlowInverse,
    Reduction,
    ReductionName,
    reduce,
    surface_checks,
)
from crlearn.methods.additive._auxiliary import read_auxiliary
from crlearn.methods.additive._checks import (
    guarantee_of,
    natural_parameters,
    shape_checks,
    sizes_check,
    vanishing_check,
    variability,
    variability_check,
)
from crlearn.methods.additive._latents import (
    Latents,
    Segments,
    latents_of,
    mechanisms_of,
    regressions_of,
)
from crlearn.methods.additive._mechanisms import SegmentMechanisms, TriangularInverse
from crlearn.result import Result
from crlearn.train import Training, compared

Matrix = NDArray[np.floating]

# Development worlds, not yet fresh ones. Chains of three latents behind two layers, seeds 0 to 3:
# batches of 50 rows of each segment had an MCC of 0.82 to 0.997, of 100 rows 0.98 to 0.998; six
# features 0.997 and more, twelve 0.98 and more. A random graph with eight edges, seed 2: steps of
# 0.02 came to a loss of -1.58 in 4,000 steps, of 0.04 to -1.66 and to the right order.
BATCH_SIZE = 100
_MOST_FEATURES = 10
LEARNING_RATE = 4e-2
# Nats a row that a parent must explain beyond the others, 10% of the variance. The weakest true
# edges of the chains above had 0.093; others had up to 0.045 in fits with six features, and up to
# 0.12 in some with twelve.
_LEAST_EFFECT = 0.05


def latent_anm(
    X: NDArray[Any],
    y: NDArray[Any],
    n_latents: int | None = None,
    *,
    mechanisms: MechanismKind = "nonlinear",
    reduction: ReductionName = "auto",
    n_steps: int = 3000,
    n_restarts: int = 3,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents, graph and mechanisms; see the module's text."""
    reduced = _reduced(X, n_latents, reduction, n_steps, seed, checkpoint)
    n = n_latents or reduced.encoder.n_latents
    auxiliary = read_auxiliary(y, seed)
    segments = Segments.of(auxiliary, y)
    objective = SegmentObjective(
        n, tuple(map(len, segments.rows)), mechanisms, n_features=min(2 * n, _MOST_FEATURES)
    )
    n_variables = reduced.rows.shape[1]
    fit = fit_flow(
        segments.split(np.concatenate([reduced.rows, segments.covariates], axis=1)),
        objective if n_variables == n else OnSurface(objective, n_variables),
        n_steps=n_steps,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        n_restarts=n_restarts,
        checkpoint=checkpoint,
        description="LatentANM",
        seed=seed,
    )
    latents = latents_of(fit.params, mechanisms, reduced.rows, segments)

    def noises(latents: Latents) -> Matrix:
        everything_before = np.triu(np.ones((n, n), dtype=bool), 1)
        return mechanisms_of(latents, everything_before, segments, auxiliary).noises(latents.Z, y)

    fit = _compared(fit, latents, reduced.rows, segments, noises)
    regressions = regressions_of(latents.Z, segments, mechanisms)
    adjacency = regressions.parents(range(n), _LEAST_EFFECT)
    found = mechanisms_of(latents, adjacency, segments, auxiliary)
    spread = _variability(found, latents, segments, y)
    encoder = Composed(Composed(reduced.encoder, latents.flow), latents.triangular)
    decoder = ComposedDecoder(
        ComposedDecoder(TriangularInverse(latents.triangular), FlowInverse(latents.flow)),
        reduced.decoder,
    )
    return Result(
        encoder=encoder,
        decoder=decoder,
        guarantee=guarantee_of(latents.identified, _LEAST_EFFECT),
        adjacency=adjacency,
        mechanisms=found,
        environments=auxiliary.names,
        checks=(
            *reduced.checks,
            *(surface_checks(X, encoder, decoder) if n_variables > n else ()),
            sizes_check(segments, n),
            variability_check(spread, len(segments), n),
            *shape_checks(latents.Z, segments, mechanisms),
            vanishing_check(latents, len(segments)),
            restarts_check(fit),
            *training_checks(fit),
        ),
        history=fit.history,
        details={
            "held_out_loss": fit.loss,
            "restart_agreement": np.array(fit.agreements),
            "restart_gaps": np.array(fit.gaps),
            "stopped": fit.stopped,
            "vanishing": latents.vanishes(len(segments)),
            "evidence": np.array([v.evidence for v in latents.vanishing]),
            "gap": np.array([v.gap for v in latents.vanishing]),
            "identified": latents.identified,
            "variability": spread,
        },
        device=device_name(),
    )


def _reduced(
    X: NDArray[Any],
    n_latents: int | None,
    kind: ReductionName,
    n_steps: int,
    seed: int,
    checkpoint: str | Path | None,
) -> Reduction:
    if X.ndim == 2:
        return reduce(
            X.astype(float, copy=False),
            n_latents,
            kind,
            seed,
            count_dimensions=False,
            flatten=False,
        )
    codes = None if checkpoint is None else f"{checkpoint}.codes"
    return reduce_images(X, n_latents, n_steps=3 * n_steps, seed=seed, checkpoint=codes)


def _compared(
    fit: Training,
    latents: Latents,
    rows: Matrix,
    segments: Segments,
    noises: Callable[[Latents], Matrix],
) -> Training:
    """Compare the answer with other restarts, until one agrees.

    Latents that are not identified may differ by a function of their predecessors: of these, noises
    are compared.
    """
    kind, own_noises = latents.triangular.basis.kind, noises(latents)

    def agreement(_: SegmentParameters, params: SegmentParameters) -> float:
        other = latents_of(params, kind, rows, segments)
        of_noises = _correlations(own_noises, noises(other))
        pairs = linear_sum_assignment(-of_noises)
        of_latents = _correlations(latents.Z, other.Z)
        return float(np.where(latents.identified, of_latents[pairs], of_noises[pairs]).mean())

    return compared(fit, agreement, enough=SAME_LATENTS)


def _correlations(one: Matrix, other: Matrix) -> Matrix:
    n = one.shape[1]
    return np.abs(np.corrcoef(one.T, other.T)[:n, n:])


def _variability(
    found: SegmentMechanisms, latents: Latents, segments: Segments, y: NDArray[Any]
) -> float:
    """Return how far noises vary over segments, beyond chance; 0 if some have hardly any rows."""
    if min(map(len, segments.rows)) < 4:  # halves without a variance
        return 0.0

    def natural(half: Segments) -> Matrix:
        of_half = mechanisms_of(latents, found.adjacency, half, found.auxiliary)
        return natural_parameters(latents.Z, of_half.noises(latents.Z, y), half)

    return variability(*map(natural, segments.halves))


class LatentANM(BaseCRL):
    """Latents and graph behind any mixing, from mechanisms that change (latent additive noise).

    The published algorithm is `crlearn.published.LatentANMVAE`.

    `y` holds an auxiliary variable on which noises and mechanisms depend: a label for each row
    (segments), or numbers, in one column or several (a matrix), which are cut into cells. Mean and
    variance of each latent's noise must change with it, and its mechanism must vanish for some of
    its values; latents for which no such values are seen are named by a check.

    Parameters
    ----------
    n_latents
        Number of latents; None: the rank of X.
    mechanisms
        ``"nonlinear"``: of any shape; ``"polynomial"``: of degree three; ``"linear"``.
    reduction
        How X with more features than latents is brought to as many numbers as there are latents;
        see `NonlinearInterventionCRL`. With ``"flow"`` it is not: the flow is one of all
        components, and makes the surface flat on which rows lie.
    n_steps
        Steps of the training of each flow; an autoencoder of images takes three times as many.
    n_restarts
        Flows that are trained from different starts; the best by held-out likelihood is taken.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes.
    random_state
        Seed of flows, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import LatentANM
    >>> from crlearn.data import make_latent_anm
    >>> world = make_latent_anm(2, 2, 100, n_segments=10, random_state=0)
    >>> model = LatentANM(n_steps=50, n_restarts=1, random_state=0).fit(world.X, world.y)
    >>> model.transform(world.X).shape == world.truth.Z.shape
    True
    """

    _requires_y = True
    _allows_matrix_y = True
    _allows_images = True
    _keeps_uint8 = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "mechanisms": [StrOptions({"nonlinear", "polynomial", "linear"})],
        "reduction": [StrOptions({"auto", "linear", "links", "flow", "autoencoder"})],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        mechanisms: str = "nonlinear",
        reduction: str = "auto",
        n_steps: int = 3000,
        n_restarts: int = 3,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.mechanisms = mechanisms
        self.reduction = reduction
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[Any], y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        return latent_anm(
            X,
            y,
            self.n_latents,
            mechanisms=cast(Any, self.mechanisms),
            reduction=cast(Any, self.reduction),
            n_steps=self.n_steps,
            n_restarts=self.n_restarts,
            seed=seed,
            checkpoint=self.checkpoint,
        )

    def noises(self, X: ArrayLike, y: ArrayLike) -> Matrix:
        """Return the noise of each latent in each row, up to a shift in each segment."""
        check_is_fitted(self)
        return self.result_.mechanisms.noises(self.transform(X), np.asarray(y))

    def intervene(
        self, X: ArrayLike, y: ArrayLike, values: Mapping[str, ArrayLike]
    ) -> NDArray[np.floating]:
        """Return what rows would have been, had some latents had other values.

        Latents that these cause change with them, by the mechanisms of each row's segment and with
        the noise of the row; the others stay.

        Parameters
        ----------
        X, y
            Rows, and their auxiliary variable.
        values
            For names of latents, one value or one for each row, in units of `transform`.
        """
        check_is_fitted(self)
        names = self.result_.latent_names
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ValueError(
                f"'values' must name latents among {', '.join(names)}. Got {unknown[0]!r}."
            )
        by_number = {names.index(name): np.asarray(value) for name, value in values.items()}
        latents = self.transform(X)
        changed = self.result_.mechanisms.intervened(latents, np.asarray(y), by_number)
        return self.inverse_transform(changed)
