"""Piecewise affine mixing, latents that switch off (potentially degenerate Gaussian mixtures).

Recovers latents from observations of a piecewise affine (or affine) mixing, where every sample has
some latents switched off: they sit at one value. Which are off is not observed. The latents are a
mixture of Gaussians, degenerate in the components in which some are off.

The paper trains an autoencoder, whose code is affine in the latents, and then looks for the affine
map that makes the code sparse, by constrained optimisation (`crlearn.published.PDGMM`). Here:

1. *Reduction*: X is brought to as many numbers as there are latents.
2. *Hyperplanes*: rows in which a latent is off lie in a hyperplane, if the mixing is affine, and
   nearly so if it is bent a little. The n hyperplanes that hold the most rows are looked for. This
   is the paper's second stage; it takes seconds, and with ``mixing="affine"`` it is all.
3. *Flow*: an encoder that is invertible by construction is trained by its exact likelihood from
   there, with a prior in which each latent is off (a spike) or on (a slab). The hyperplanes of its
   outputs are looked for again on the way.
4. *Activity*: which latents are on in each row, from a spike and a slab of each latent; sets of
   latents that are on together are the components; latents that are never off without others are
   blocks.

Cost: see `crlearn.methods.sparse._hyperplanes` for step 2; time of step 3 grows as the number of
steps, whatever the number of rows is, and a step takes O(b (blocks units n^2 + n^3)) for b rows.

References
----------
Xu, Lachapelle and Magliacane, Identifiability of potentially degenerate Gaussian mixture models
with piecewise affine mixing, 2026.
"""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import BaseCRL
from crlearn.config import device_name
from crlearn.flows import white
from crlearn.inputs import components_of
from crlearn.methods._flow_checks import training_checks
from crlearn.methods._image_reduction import reduce_images
from crlearn.methods._reduction import (
    Composed,
    ComposedDecoder,
    FlowInverse,
    FlowMap,
    Reduction,
    ReductionName,
    reduce,
)
from crlearn.methods.sparse._activity import (
    LEAST_WIDTH,
    LEAST_WIDTH_OF_FLOWS,
    Activity,
    Components,
    Units,
    UnitsInverse,
    blocks_of,
)
from crlearn.methods.sparse._checks import MOST_OFF, guarantee_of, latent_checks, number_check
from crlearn.methods.sparse._hyperplanes import Hyperplanes, find_hyperplanes
from crlearn.methods.sparse._stages import FlowStage, Slab, completed, fit_flows
from crlearn.result import LinearDecoder, LinearEncoder, Result

Matrix = NDArray[np.floating]
MixingName = Literal["piecewise_affine", "affine"]


def sparse_mixture_crl(
    X: NDArray[Any],
    n_latents: int | None = None,
    *,
    mixing: MixingName = "piecewise_affine",
    slab: Slab = "auto",
    reduction: ReductionName = "auto",
    n_steps: int = 7500,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover latents and when they are on; see the module's text."""
    asked, n_latents = n_latents, _at_most_the_rank(X, n_latents)
    reduced = _reduced(X, n_latents, mixing, reduction, n_steps, seed, checkpoint)
    to_white, from_white = white(reduced.rows)
    rows = to_white(reduced.rows)
    planes = completed(find_hyperplanes(rows, seed))
    stage = None
    if mixing == "affine":
        last, back = _distances(planes)
    else:
        stage = fit_flows(
            rows, planes, slab=slab, n_steps=n_steps, seed=seed, checkpoint=checkpoint
        )
        last = FlowMap.plain(stage.params.flow)
        back = FlowInverse(last)
    units, Z = _in_units_of_slabs(last(rows), stage)
    components = Components.of(Z, units.activity)
    blocks = blocks_of(components)
    checks = latent_checks(Z, components, blocks, seed)
    return Result(
        encoder=Composed(Composed(Composed(reduced.encoder, to_white), last), units),
        decoder=ComposedDecoder(
            ComposedDecoder(ComposedDecoder(UnitsInverse(units), back), from_white),
            reduced.decoder,
        ),
        guarantee=guarantee_of(mixing, blocks, checks),
        blocks=blocks,
        checks=(
            *reduced.checks,
            number_check(asked, len(planes), Z.shape[1]),
            *checks,
            *(() if stage is None else training_checks(stage.fit)),
        ),
        history={} if stage is None else stage.fit.history,
        details={
            "components": components,
            **({} if stage is None else _of_training(stage)),
        },
        device=device_name(),
    )


def _at_most_the_rank(X: NDArray[Any], n_latents: int | None) -> int | None:
    """Return the number of latents to look for: there are no more than X has dimensions."""
    if n_latents is None or X.ndim > 2:
        return n_latents
    return min(n_latents, components_of(X, None)[0].n_latents)


def _distances(planes: Hyperplanes) -> tuple[LinearEncoder, LinearDecoder]:
    """Return the map to signed distances from hyperplanes, and back."""
    corner = np.linalg.solve(planes.normals, planes.offsets)  # where all latents are off
    return (
        LinearEncoder(planes.normals, corner),
        LinearDecoder(np.linalg.inv(planes.normals), corner),
    )


def _in_units_of_slabs(values: Matrix, stage: FlowStage | None) -> tuple[Units, Matrix]:
    """Put spikes at zero, make slabs as wide as one, and drop latents that are never on."""
    least_width = LEAST_WIDTH if stage is None else LEAST_WIDTH_OF_FLOWS
    spikes = Activity.of(values, np.zeros(values.shape[1]), least_width)
    kept = np.flatnonzero(spikes.shares <= MOST_OFF)
    if not len(kept):  # one value each: all are the same
        kept = np.arange(values.shape[1])
    units = Units.of(spikes, kept)
    return units, units(values)


def _of_training(stage: FlowStage) -> dict[str, Any]:
    is_gaussian = bool(stage.params.prior.one_gaussian)
    return {
        "held_out_loss": stage.fit.loss,
        "slab": "gaussian" if is_gaussian else "mixture",
        "slab_losses": stage.slab_losses,
        "stopped": stage.fit.stopped,
    }


def _reduced(
    X: NDArray[Any],
    n_latents: int | None,
    mixing: MixingName,
    kind: ReductionName,
    n_steps: int,
    seed: int,
    checkpoint: str | Path | None,
) -> Reduction:
    if X.ndim == 2:
        kind = "linear" if mixing == "affine" else kind
        return reduce(X.astype(float, copy=False), n_latents, kind, seed, count_dimensions=False)
    codes = None if checkpoint is None else f"{checkpoint}.codes"
    return reduce_images(X, n_latents, n_steps=2 * n_steps, seed=seed, checkpoint=codes)


class SparseMixtureCRL(BaseCRL):
    """Latents that switch off, behind a piecewise affine mixing (pdGMM).

    The published algorithm is `crlearn.published.PDGMM`.

    `y` is not used. In every row some latents are off: they sit at one value, which is estimated.
    `transform` returns latents that are 0 where they are off, and whose values have a standard
    deviation of one where they are on.

    Parameters
    ----------
    n_latents
        Number of latents at most; None: the rank of X. Those that are never on are left out.
    mixing
        ``"piecewise_affine"``: any that is one to one, smooth ones as well; ``"affine"``: no flow
        is trained, which takes seconds: for features that are affine in the latents already, such
        as activations of a network.
    slab
        Density of a latent where it is on: ``"gaussian"``, a ``"mixture"`` of Gaussians, or
        ``"auto"``: whichever has the better held-out likelihood.
    reduction
        How X with more features than latents is brought to as many numbers as there are latents;
        see `NonlinearInterventionCRL`. Principal components if the mixing is affine.
    n_steps
        Steps of five rounds of training, some of which are done in several ways or repeated while
        they gain; an autoencoder of images takes twice as many.
    checkpoint
        File in which the state of the training is kept (one for each training), so that an
        interrupted fit resumes.
    random_state
        Seed of the search, flows, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import SparseMixtureCRL
    >>> from crlearn.data import make_sparse_mixture
    >>> world = make_sparse_mixture(4, n_samples=2000, n_layers=1, slope=1.0, random_state=0)
    >>> model = SparseMixtureCRL(mixing="affine", random_state=0).fit(world.X)
    >>> model.active(world.X).mean(axis=0).round(1).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """

    _allows_images = True
    _keeps_uint8 = True
    _may_ask_for_too_many = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseCRL._parameter_constraints,
        "mixing": [StrOptions({"piecewise_affine", "affine"})],
        "slab": [StrOptions({"auto", "gaussian", "mixture"})],
        "reduction": [StrOptions({"auto", "linear", "links", "flow", "autoencoder"})],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        mixing: str = "piecewise_affine",
        slab: str = "auto",
        reduction: str = "auto",
        n_steps: int = 7500,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.mixing = mixing
        self.slab = slab
        self.reduction = reduction
        self.n_steps = n_steps
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: NDArray[Any], y: NDArray[Any] | None, seed: int) -> Result:
        return sparse_mixture_crl(
            X,
            self.n_latents,
            mixing=cast(Any, self.mixing),
            slab=cast(Any, self.slab),
            reduction=cast(Any, self.reduction),
            n_steps=self.n_steps,
            seed=seed,
            checkpoint=self.checkpoint,
        )

    def active(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return which latents are on in each row."""
        return self.result_.details["components"].sets[self.component(X)]

    def component(self, X: ArrayLike) -> NDArray[np.intp]:
        """Return the component of each row.

        ``result_.details["components"]`` has their sets of latents and their shares of the rows.
        """
        check_is_fitted(self)
        return self.result_.details["components"](np.asarray(self.transform(X)))
