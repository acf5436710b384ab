"""Linear mixing, observational data only: latents up to layers, from nonlinear effects alone.

Latents follow nonlinear mechanisms with additive noise, and nothing is intervened on. With Gaussian
noise latents are determined up to mixtures with their own layer and the layers upstream, and their
exogenous noises up to mixtures inside their layer; a layer holds the latents with the same longest
path to a childless latent. Inside a layer nothing more can be recovered, and no single edge either.
Noise of another shape tells more: single noises are recovered, and mechanisms may be linear.

The paper reads the layers from the Jacobian of the score (`crlearn.published.ScoreLayers`). That
works with exact scores; with scores that are estimated from samples it is at the level of chance.
This implementation maximises a likelihood of the whole model:

1. X is reduced to the span of the mixing and whitened. Where measurement noise fills more
   dimensions, factor analysis tells its variances, and rows are projected onto the factors.
2. Encoder, mechanisms and order are fitted together, from many starts
   (`crlearn.likelihood.fit_observational`); structures are compared by their log evidence. If
   densities of the noises gain more than they cost, they are fitted, too, and BIC compares.
3. Layers are read from the mechanisms that were found. Competing structures, which explain the data
   nearly as well, are kept with their log evidence.
4. Behind measurement noise structures are fitted to rows that are drawn from their posterior, and
   compared by the likelihood of the measured rows; latents and noises are posterior means.
5. Checks: whether the fit explains more than a Gaussian could by luck, whether each mechanism is
   nonlinear along every direction of the parents, whether noises have the shape that was assumed
   and are independent of their causes, and whether a competing structure with another answer
   explains the data as well. The guarantee names the latents that it holds for.

Cost: one pass to reduce X; `fit_observational` says what the search takes.

References
----------
Welch, Zhang and Uhler, Identifiability guarantees for causal disentanglement from purely
observational data, NeurIPS 2024.
Comon, Independent component analysis, a new concept?, Signal Processing, 1994.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from crlearn.base import COUNTED, counted
from crlearn.inputs import (
    NoiseName,
    NumberOfLatents,
    Scaling,
    Signal,
    check_enough_rows,
    read_environments,
    read_signal,
    unused_label_checks,
)
from crlearn.likelihood import (
    Fit,
    agreement,
    fit_observational,
    is_gaussian,
    mechanisms_of,
    noises_of,
    prior_of,
    some_rows,
)
from crlearn.methods._alternatives import determination_check
from crlearn.methods.adjusted._estimator import AdjustedCRL
from crlearn.methods.observational._checks import (
    directions_check,
    noise_checks,
    nonlinearity_check,
    of_tied_latents,
    visibility_check,
)
from crlearn.methods.observational._posterior import MechanismNoisePosterior, MechanismsPosterior
from crlearn.result import Alternative, Check, Guarantee, LinearDecoder, LinearEncoder, Result
from crlearn.scores import Posterior
from crlearn.tags import stored

Matrix = NDArray[np.floating]

_ROWS_TO_COMPARE = 2500  # noises of competing structures
# Nats over another answer. In 98 fits of an earlier search 6 of 18 were wrong with 5 to 10 nats,
# and 1 of 80 with more: the log evidence is approximate.
_ASKED = 10.0

GUARANTEE = Guarantee(
    latents="layers",
    graph="layers",
    text="each latent up to a mixture with its own layer and the layers upstream, its exogenous "
    "noise up to a mixture inside its layer, and which latents are in which layer, if the mixing "
    "is linear, mechanisms are nonlinear and their noise is additive and Gaussian; inside a layer "
    "nothing more can be recovered",
)
GUARANTEE_OF_SINGLE_NOISES = Guarantee(
    latents="layers",
    graph="layers",
    text="each exogenous noise up to scale, each latent up to a mixture with its own layer and the "
    "layers upstream, and which latents are in which layer, if the mixing is linear, noise is "
    "additive and at most one noise of a layer is Gaussian; linear effects cannot be told from the "
    "mixing and make no layers (proved for linear mechanisms, seen in studies for others)",
)


@stored("noise/of-mechanisms")
@dataclass(frozen=True, eq=False)
class MechanismNoise:
    """Map from observations to exogenous noises: latents minus what their mechanisms predict.

    Attributes
    ----------
    latents
        Map to the latents in the units of the mechanisms, causes first.
    mechanisms
        Predicted part of each latent, from all latents of a row.
    scale
        Units in which the noises come out, with signs.
    """

    latents: LinearEncoder
    mechanisms: Any
    scale: Matrix

    @property
    def n_latents(self) -> int:
        """Number of noises."""
        return self.latents.n_latents

    def __call__(self, X: Matrix) -> Matrix:
        """Return the noises of each row of `X`."""
        Z = self.latents(X)
        return (Z - self.mechanisms(Z)) * self.scale


# The likelihood


def observational_crl(
    X: Matrix,
    n_latents: NumberOfLatents = "auto",
    *,
    noise: NoiseName = "auto",
    init: Matrix | None = None,
    n_starts: int = 6,
    seed: int = 0,
) -> Result:
    """Recover latents and noises up to layers; see the module's text."""
    together = read_environments(np.zeros(len(X), dtype=int), fewest=1)
    signal = read_signal(X, together, n_latents, X.shape[1], noise)
    check_enough_rows(len(X), signal.n_latents)
    starts = {} if init is None else {"starts": [in_whitened_rows(init, signal.encoder, X)]}
    rng = np.random.default_rng(seed)
    y = signal.encoder(X)
    of_rows = None if signal.noise is None else signal.noise[0]
    fit = fit_observational(y, rng=rng, n_starts=n_starts, noise=of_rows, **starts)
    encoder, noise_encoder = _encoders(fit, signal, X)
    fitted = y if fit.completed is None else fit.completed
    alternatives = _alternatives(fit, some_rows(y, _ROWS_TO_COMPARE))
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=_guarantee(fit),
        checks=(
            *signal.checks,
            nonlinearity_check(fit),
            *directions_check(fit),
            *noise_checks(fit, fitted @ fit.H.T, noises_of(fit, fitted)),
            *_measurement_checks(encoder, some_rows(X, _ROWS_TO_COMPARE)),
            determination_check(len(fit.H), alternatives, _ASKED),
        ),
        noise_encoder=noise_encoder,
        layers=fit.layers,
        alternatives=alternatives,
        details={
            **signal.details,
            **({} if signal.noise is None else {"noise_sds": signal.feature_noise}),
            "adjacency": fit.adjacency,
            "gain_over_gaussian": fit.score,
            "noise": "gaussian" if is_gaussian(fit) else "any",
            **(
                {}
                if fit.straight_p_values is None
                else {"straight_p_values": fit.straight_p_values}
            ),
        },
    )


def _guarantee(fit: Fit) -> Guarantee:
    return of_tied_latents(GUARANTEE, fit) if is_gaussian(fit) else GUARANTEE_OF_SINGLE_NOISES


def _encoders(
    fit: Fit, signal: Signal, X: Matrix
) -> tuple[LinearEncoder, MechanismNoise] | tuple[MechanismsPosterior, MechanismNoisePosterior]:
    """Return the maps to latents and to noises, in units in which latents have sd 1."""
    latents = LinearEncoder(fit.H @ signal.encoder.matrix, signal.encoder.offset)
    signs = _signs(latents, X)
    if signal.noise is None:
        y = signal.encoder(X)
        scale = signs / latents(X).std(axis=0)
        encoder = LinearEncoder(latents.matrix * scale[:, None], latents.offset)
        return encoder, MechanismNoise(latents, mechanisms_of(fit, y), scale)
    assert fit.completed is not None
    scale = signs / (fit.completed @ fit.H.T).std(axis=0)
    prior = prior_of(fit, fit.completed)
    posterior = MechanismsPosterior(signal.encoder, signal.noise[0], prior, scale)
    return posterior, MechanismNoisePosterior(posterior)


def _measurement_checks(
    encoder: LinearEncoder | MechanismsPosterior, X: Matrix
) -> tuple[Check, ...]:
    if isinstance(encoder, LinearEncoder):
        return ()
    return (visibility_check(encoder.posterior_of_noises(X)),)


def _alternatives(fit: Fit, y: Matrix) -> tuple[Alternative, ...]:
    """Return the competing structures, the best first."""
    found = [
        Alternative(
            adjacency=other.adjacency,
            layers=other.layers,
            gap=max(fit.score - other.score, 0.0),
            agreement=agreement(fit, other, y),
        )
        for other in fit.alternatives
    ]
    return tuple(sorted(found, key=lambda other: other.gap))


def in_whitened_rows(init: Matrix, whitener: LinearEncoder, X: Matrix) -> Matrix:
    """Return rows of an encoder of X as rows of an encoder of whitened data."""
    wanted = (whitener.n_latents, X.shape[1])
    if init.shape != wanted or not np.isfinite(init).all():
        raise ValueError(
            "The 'init' parameter must be finite, with a row for each latent and a column for each "
            f"feature, {wanted}. Got shape {init.shape}, or missing or infinite values."
        )
    start = init @ LinearDecoder.undoing(whitener, X).matrix
    if np.linalg.matrix_rank(start) < len(start):
        raise ValueError(
            "The rows of the 'init' parameter must be linearly independent on the data: an encoder "
            "that repeats itself is no place to start from."
        )
    return start


def _signs(latents: LinearEncoder, X: Matrix) -> Matrix:
    """Return signs that give each latent a positive largest coefficient.

    Coefficients are compared for standardised features, so that units do not matter.
    """
    standardised = latents.matrix * Scaling.of(X).scale
    largest = np.abs(standardised).argmax(axis=1)
    return np.where(standardised[np.arange(len(standardised)), largest] < 0, -1.0, 1.0)


class ObservationalCRL(AdjustedCRL):
    """Latents and exogenous noises up to layers, from observational data alone.

    Algorithms 1 and 2 of Welch, Zhang and Uhler are `crlearn.published.ScoreLayers`. There are no
    environments: `y` is not used, and labels in it are reported. Latents are numbered causes first.
    ``result_.details["adjacency"]`` holds the edges of the fit, which the data do not determine:
    inside what the guarantee leaves open other edges fit as well.

    Parameters
    ----------
    n_latents
        Number of latents; ``"auto"`` or None: the rank of X, or, if noise fills all dimensions, as
        many as stand out from it.
    noise
        Of the features: ``"gaussian"``, independent, with a variance of its own for each feature
        (alike in all, if features are few); ``"poisson"``: X are counts, whose rates are linear in
        the latents; ``"none"``; or ``"auto"``: the former if X fills more
        dimensions than there are latents.
    init
        Encoder to start from in place of a search, one row for each latent, causes first, and one
        column for each feature.
    n_starts
        How much is searched: the number of starts, and with it that of structures and moves that
        are followed. Time grows about in proportion.
    outliers
        ``"keep"``, or ``"downweight"``: rows that stand far out get the weight
        zero; ``result_.details["weights"]`` has the weights.
    random_state
        Seed of the starts.

    Examples
    --------
    >>> from crlearn import ObservationalCRL
    >>> from crlearn.data import make_observational
    >>> world = make_observational(n_latents=2, n_samples=500, graph="chain", random_state=0)
    >>> model = ObservationalCRL(random_state=0).fit(world.X)
    >>> model.layers_  # childless latents first
    [[1], [0]]
    >>> model.noises(world.X).shape
    (500, 2)
    """

    _tells_noises = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **AdjustedCRL._parameter_constraints,
        "n_latents": COUNTED,
        "noise": [StrOptions({"auto", "gaussian", "poisson", "none"})],
        "init": ["array-like", None],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_latents: int | str | None = "auto",
        *,
        noise: str = "auto",
        init: ArrayLike | None = None,
        n_starts: int = 6,
        outliers: str = "keep",
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.noise = noise
        self.init = init
        self.n_starts = n_starts
        self.outliers = outliers
        self.random_state = random_state

    @property
    def layers_(self) -> list[list[int]]:
        """Latents of each layer, childless ones first, as `crlearn.graph.layers` has them."""
        return [list(layer) for layer in (self._fitted_result().layers or ())]

    def noises(self, X: ArrayLike, *, covariates: Any = None) -> Matrix:
        """Return the exogenous noises of each row of `X`, in the units and order of the latents."""
        check_is_fitted(self)
        assert self.result_.noise_encoder is not None
        return self._encoded_without_effects(X, covariates, self.result_.noise_encoder, "noises")

    def posterior(self, X: ArrayLike, *, covariates: Any = None) -> Posterior:
        """Return posterior means and variances of the latents of each row of `X`.

        Without measurement noise variances are zero.
        """
        check_is_fitted(self)
        encoder = self.result_.encoder
        if isinstance(encoder, MechanismsPosterior):
            rows = self._checked(X, reset=False)
            return encoder.posterior(self._without_effects(rows, covariates))
        Z = self._encoded_without_effects(X, covariates, encoder, "posterior")
        return Posterior(Z, np.zeros_like(Z))

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        init = None if self.init is None else np.asarray(self.init, dtype=float)
        result = observational_crl(
            X,
            counted(self.n_latents),
            noise=self.noise,  # type: ignore[arg-type]
            init=init,
            n_starts=self.n_starts,
            seed=seed,
        )
        return replace(result, checks=(*result.checks, *unused_label_checks(y)))
