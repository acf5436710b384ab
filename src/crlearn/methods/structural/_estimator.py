"""Noisy measurements, linear or not, known graph and targets: an explicit prior (CRL g-modelling).

Recovers the latents behind x = g(z) + noise, with Gaussian noise alike in all features, from
environments whose targets are known, as is the causal graph: the setting of causal component
analysis (CauCA), with noise, and of EB-CRL, with any smooth g. Mechanisms, noises, interventions, g
and the noise variance are learned. Where f-modelling (`crlearn.EmpiricalBayesCRL`) never says what
the prior is, here it is a model of its own (paper, section 6):

1. *Measurement*: the span of the leading directions of X, and the noise variance outside of it.
2. *Start*: the linear unmixing of that span which fits the moments of the environments best
   (`crlearn.likelihood.find_unmixing`).
3. *Bound*: prior, mixing, noise and a Gaussian posterior with full covariance, which a network
   makes of x and the environment, by the evidence lower bound (`crlearn.variational`).

The posterior knows the environment of a row. Where that is not known, it is a mixture over all.

Cost: a step is O(batch width (d + width + n^2)), whatever N is; memory O(N d). Steps 1 and 2 are
those of `crlearn.EmpiricalBayesCRL`.

References
----------
Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal representations,
2026, section 6.

Wendong, Kekić, von Kügelgen, Buchholz, Besserve, Gresele and Schölkopf, Causal component analysis,
NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from crlearn.config import device_name, numerics
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Measurement,
    check_environment_sizes,
    measure,
    read_environments,
)
from crlearn.likelihood import Domains, Unmixing, domain_checks, sign_check
from crlearn.methods._alternatives import determination_check
from crlearn.methods._denoising import (
    ExplicitPriorCRL,
    observational_rows,
    offset_of,
    refuse_small_environments,
    what_is_known,
)
from crlearn.methods._flow_checks import restarts_check, training_checks
from crlearn.methods.empirical_bayes._algorithm import rotation_checks
from crlearn.methods.structural._amortised import AmortisedDecoder, AmortisedPosterior
from crlearn.methods.structural._checks import Scored, explanation_check, measured_check
from crlearn.methods.structural._start import Coordinates, held_out_rows, starts_of, unmix
from crlearn.result import Alternative, Check, Guarantee, LinearDecoder, Result
from crlearn.variational import (
    EvidenceBound,
    LinearMixing,
    Parameters,
    PriorName,
    fit_prior,
    noise_variance,
    number_of_components,
)

Matrix = NDArray[np.floating]
MixingName = Literal["orthogonal", "any", "nonlinear"]

# Restarts begin at latents that are turned against each other, with correlations of about .96;
# those of right answers ended at .987 to 1 (development seeds 0 and 1, smooth and tanh mixings).
_SAME_LATENTS = 0.98
_ROWS_TO_CHECK = 500  # of an environment
_SIGNS = "signs are determined"

LINEAR_GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, and up to what "
    "measurement noise hides of it, if the measurement is linear with Gaussian noise alike in all "
    "features, interventions are hard and move their targets, and the given graph and targets are "
    "right; its sign by the shift of its mean, if interventions shift it",
    accounts_for=(_SIGNS,),
)
NONLINEAR_GUARANTEE = Guarantee(
    latents="elementwise",
    graph="none",
    text="each latent up to an invertible function of its own, and up to what measurement noise "
    "hides of it, if the mixing is smooth and one to one with Gaussian noise alike in all "
    "features, one environment is observational, each latent is cut off its causes in at least one "
    "environment that gives it another distribution, and the given graph and targets are right",
)
GAUSSIAN_GUARANTEE = Guarantee(
    latents="none",
    graph="none",
    text="nothing is guaranteed: behind a nonlinear mixing no theory says that this prior tells "
    "the latents apart",
)
NO_GUARANTEE = Guarantee(
    latents="none",
    graph="none",
    text="nothing is guaranteed: no targets were given that could tell the latents apart",
)


def structural_prior_crl(
    X: Matrix,
    environments: Environments,
    known: KnownDomains | None,
    n_latents: int | None = None,
    *,
    prior: PriorName = "structural",
    mixing: MixingName = "orthogonal",
    center: bool = False,
    scale: bool = False,
    n_steps: int = 4000,
    n_restarts: int = 2,
    seed: int = 0,
    checkpoint: str | Path | None = None,
) -> Result:
    """Recover and denoise the latents; see the module's text.

    Parameters
    ----------
    X, environments, known
        Rows, their environments, and what is known of these: graph and targets; None: nothing, and
        every latent has a mean and a variance of its own in every environment.
    n_latents
        Number of latents, where nothing is known; None: the rank of X.
    prior
        Of the latents: the structural one, or one of those of `crlearn.GaussianPriorCRL`.
    mixing, center, scale, n_steps, n_restarts, checkpoint
        See `StructuralPriorCRL`.
    seed
        Of starts, batches and held-out rows.
    """
    linear = mixing != "nonlinear"
    measurement = measure(
        X,
        n_latents if known is None else len(known.graph),
        offset=offset_of(X, environments, known) if center or not linear else None,
        scale=scale,
        codes=environments.codes if linear else None,
    )
    coordinates = Coordinates.of(measurement, environments.codes, linear=linear)
    n = coordinates.span.shape[1]
    unmixed = None
    if known is not None:
        refuse_small_environments(environments, n)
        unmixed = unmix(coordinates, known, seed, orthogonal=mixing == "orthogonal")
    objective = _objective(coordinates, environments, known, mixing, prior)
    fresh = held_out_rows(environments, seed)
    with numerics():
        fit = fit_prior(
            objective,
            starts_of(objective, coordinates, unmixed and unmixed[0].matrix, n_restarts, seed),
            cast(Any, coordinates.among(~fresh)),
            coordinates.among(fresh),
            n_steps=n_steps,
            seed=seed,
            checkpoint=checkpoint,
        )
        encoder = _in_readable_units(
            fit.params, X, environments, known, measurement, coordinates, linear=linear
        )
        variance = float(noise_variance(fit.params)) * coordinates.size**2
    latents = encoder.posterior(X, environments.codes)
    names = _names(known, n)
    explained, losses = explanation_check(
        _scored(encoder, X, environments, ~fresh, seed),
        _scored(encoder, X, environments, fresh, seed),
        environments.labels,
        is_told=prior not in ("normal", "mixture"),
    )
    measured, hidden = measured_check(latents.mean, latents.variance, environments.codes, names)
    return Result(
        encoder=encoder,
        decoder=_decoder(encoder, fit.params, linear=linear),
        guarantee=_guarantee(known, prior, linear=linear),
        **what_is_known(environments, known),
        checks=(
            *measurement.checks,
            check_environment_sizes(environments, n),
            *(measurement.noise_checks() if linear else ()),
            *_target_checks(known, unmixed, latents.mean, environments, linear=linear),
            explained,
            measured,
            restarts_check(fit, _SAME_LATENTS),
            *training_checks(fit),
        ),
        history=fit.history,
        details={
            "noise_variance": variance,
            "hidden_share": hidden,
            "unexplained": losses,
            "labels": tuple(environments.labels.tolist()),
            "held_out_loss": fit.loss,
            "restart_agreement": np.array(fit.agreements),
            "restart_gaps": np.array(fit.gaps),
            "stopped": fit.stopped,
        },
        device=device_name(),
    )


def _objective(
    coordinates: Coordinates,
    environments: Environments,
    known: KnownDomains | None,
    mixing: MixingName,
    prior: PriorName,
) -> EvidenceBound:
    n = coordinates.span.shape[1]
    own = np.ones((len(environments), n), dtype=bool) if known is None else known.targets
    causes = np.zeros((n, n), dtype=bool) if known is None else known.graph
    return EvidenceBound(
        n_features=np.shape(coordinates.rows.x)[1],
        n_rest=coordinates.n_rest,
        own=tuple(map(tuple, own.tolist())),
        causes=tuple(map(tuple, causes.tolist())),
        mixing=mixing,
        prior=prior,
        n_groups=1 if prior != "mixture" else number_of_components(coordinates.in_span),
    )


def _in_readable_units(
    params: Parameters,
    X: Matrix,
    environments: Environments,
    known: KnownDomains | None,
    measurement: Measurement,
    coordinates: Coordinates,
    *,
    linear: bool,
) -> AmortisedPosterior:
    """Give columns of a linear mixing unit norm, or latents mean 0 and sd 1 where nobody acts."""
    n = coordinates.span.shape[1]
    raw = AmortisedPosterior(
        params,
        offset=measurement.offset,
        scale=coordinates.scale,
        basis=coordinates.basis,
        mean=np.zeros(n),
        unit=np.ones(n),
        shares=environments.counts / environments.counts.sum(),
        largest=float(np.linalg.norm(coordinates.rows.x, axis=1).max()),
    )
    if linear:
        # In the units of the scaled features, as in EmpiricalBayesCRL.
        norms = coordinates.size * np.linalg.norm(_mixing(raw, params) / raw.scale[:, None], axis=0)
        return replace(raw, unit=1 / norms)
    free = observational_rows(environments, known)
    z = raw.posterior(X[free], environments.codes[free]).mean
    return replace(raw, mean=z.mean(axis=0), unit=np.maximum(z.std(axis=0), 1e-12))


def _mixing(encoder: AmortisedPosterior, params: Parameters) -> Matrix:
    """Return the matrix of a linear mixing, in the units of X."""
    rows = np.asarray(cast(LinearMixing, params.decoder).rows, dtype=float)
    return encoder.basis @ rows.T * encoder.scale[:, None]


def _decoder(encoder: AmortisedPosterior, params: Parameters, *, linear: bool) -> Any:
    if not linear:
        return AmortisedDecoder(encoder)
    return LinearDecoder(_mixing(encoder, params) * encoder.unit, encoder.offset)


def _scored(
    encoder: AmortisedPosterior,
    X: Matrix,
    environments: Environments,
    chosen: NDArray[np.bool_],
    seed: int,
) -> Scored:
    """Return draws of some rows of each environment among those that are chosen."""
    codes = environments.codes
    rows = [
        np.flatnonzero(chosen & (codes == e))[:_ROWS_TO_CHECK] for e in range(len(environments))
    ]
    some = np.concatenate(rows)
    return encoder.scored(X[some], codes[some], seed)


def _names(known: KnownDomains | None, n: int) -> list[str]:
    named = known is not None and known.names is not None
    return list(known.names) if named else [f"z{j}" for j in range(n)]  # type: ignore[union-attr]


def _guarantee(known: KnownDomains | None, prior: PriorName, *, linear: bool) -> Guarantee:
    if prior != "structural":
        return GAUSSIAN_GUARANTEE
    if known is None:
        return NO_GUARANTEE
    return LINEAR_GUARANTEE if linear else NONLINEAR_GUARANTEE


def _target_checks(
    known: KnownDomains | None,
    unmixed: tuple[Unmixing, Domains] | None,
    latents: Matrix,
    environments: Environments,
    *,
    linear: bool,
) -> tuple[Check, ...]:
    """Check that targets are known, all of them, and that interventions change them."""
    if known is None or unmixed is None:
        detail = "none were given, so that every latent may change everywhere; set graph= and "
        return (Check("targets are known", False, f"{detail}targets="),)
    answer, moments = unmixed
    n = len(known.graph)
    if linear:
        rivals = [Alternative(known.graph, None, r.gap, r.agreement) for r in answer.rivals]
        return (
            *domain_checks(moments, answer.matrix, environments.labels, known.names),
            sign_check(moments, answer.matrix),
            *rotation_checks(answer),
            determination_check(n, rivals, subject="unmixing"),
        )
    found = Domains.of(
        latents, environments.codes, known.targets, known.graph, noise_variance=0.0, hard=True
    )
    observational = Check(
        "one environment is observational",
        bool(len(found.observational)),
        "without any targets: "
        + (", ".join(map(str, environments.labels[found.observational][:8])) or "none"),
    )
    return (*domain_checks(found, np.eye(n), environments.labels, known.names), observational)


class StructuralPriorCRL(ExplicitPriorCRL):
    """Latents behind a noisy measurement, linear or not, by a structural prior (g-modeling, CauCA).

    `y` holds one environment label a row. The causal graph over the latents and the targets of each
    environment are known; an intervention cuts its targets off their causes. Latents are the nodes
    of the graph, in its order. Behind a linear mixing interventions raise their targets on average,
    which sets the signs (if they move means at all), and the columns of the mixing have unit norm,
    which sets the scales; behind another one latents have mean 0 and sd 1 in the environments
    without targets.

    Without `graph` and `targets` every latent has a mean and a variance of its own in every
    environment, as in `IVAE`, with a warning. For a linear mixing with orthogonal columns
    `EmpiricalBayesCRL` is as precise and takes a second.

    Parameters
    ----------
    n_latents
        Number of latents; None: that of the graph (without a graph, the rank of X).
    graph
        ``graph[i, j]`` non-zero if latent i causes latent j, or a ``networkx.DiGraph``, whose
        nodes, if they are texts, name the latents.
    targets
        Mapping from environment labels to the latents that it intervenes on (``[]`` for none), by
        number or by name; or a 0/1 array with one row for each environment in y, in the order of
        the labels, and one column for each latent.
    mixing
        Linear with ``"orthogonal"`` columns or with ``"any"`` columns, or ``"nonlinear"``: any
        smooth map that is one to one.
    center
        Whether to take the mean of the environments without targets off X first (of all rows, if
        there is none). Latents are then relative to it. It is always done for a nonlinear mixing.
    scale
        Whether to divide each feature by its standard deviation first, for features in different
        units. The noise is then taken for alike in the scaled features.
    n_steps
        Steps of the training.
    n_restarts
        Fits from different starts, trained side by side; the best on held-out rows is taken.
    checkpoint
        File in which the state of the training is kept, so that an interrupted fit resumes.
    random_state
        Seed of starts, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import StructuralPriorCRL
    >>> from crlearn.data import make_multi_domain
    >>> world = make_multi_domain(n_latents=3, n_features=20, n_samples=200, random_state=0)
    >>> known = {"graph": world.truth.graph, "targets": world.known_targets}
    >>> model = StructuralPriorCRL(**known, n_steps=20, n_restarts=1, random_state=0)
    >>> model.fit(world.X, world.y).transform(world.X, world.y).shape  # posterior means
    (600, 3)
    >>> low, high = model.posterior(world.X, world.y).interval(0.9)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ExplicitPriorCRL._parameter_constraints,
        "checkpoint": [str, Path, None],
    }

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        graph: Any = None,
        targets: Any = None,
        mixing: str = "orthogonal",
        center: bool = False,
        scale: bool = False,
        n_steps: int = 4000,
        n_restarts: int = 2,
        checkpoint: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.graph = graph
        self.targets = targets
        self.mixing = mixing
        self.center = center
        self.scale = scale
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, fewest=1)
        n_latents, known = self._known(environments)
        return structural_prior_crl(
            X,
            environments,
            known,
            n_latents,
            mixing=cast(Any, self.mixing),
            center=self.center,
            scale=self.scale,
            n_steps=self.n_steps,
            n_restarts=self.n_restarts,
            seed=seed,
            checkpoint=self.checkpoint,
        )
