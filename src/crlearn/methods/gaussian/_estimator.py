"""Noisy measurements by an explicit Gaussian prior on the latents (CRL g-modelling).

Recovers the latents behind x = g(z) + noise, with Gaussian noise alike in all features, by a prior
p(z | environment) that is written down and fitted by maximum likelihood: the priors which section 6
of Wu et al. lists beside the structural one (`crlearn.StructuralPriorCRL`).

=================  ============================================  ==================================
prior              latents                                       behind a linear map, a network
=================  ============================================  ==================================
``"normal"``       one Gaussian for all rows                     probabilistic PCA, VAE
``"mixture"``      a mixture of Gaussians, without labels        mixture of Gaussians, as in VaDE
``"conditional"``  a Gaussian for each environment               conditional VAE
``"shift"``        linear mechanisms, which environments shift   additive shifts
=================  ============================================  ==================================

1. *Measurement*: the span of the leading directions of X, and the noise variance outside of it.
2. *Axes*: with a graph and targets the unmixing of that span which fits the moments of the
   environments best (`crlearn.likelihood.find_unmixing`), else principal components.
3. *Prior*: behind a linear mixing by expectation and maximisation, with the exact likelihood
   (`crlearn.variational.fit_exactly`); behind another by the bound of `StructuralPriorCRL`.

In a linear mixing the first three priors are alike in all axes: only what is known of graph and
targets tells latents apart. There posteriors are exact: a mixture of Gaussians for each row.

Cost: O(N d^2) for step 1, nothing in N for step 2, and O(E n^3) a round of step 3 for E
environments, O(N K n^2) for a mixture of K components. Behind a network as in `StructuralPriorCRL`.

References
----------
Wu, von Kügelgen and Blei, Multi-domain empirical Bayes for linearly-mixed causal representations,
2026, section 6.

Tipping and Bishop, Probabilistic principal component analysis, JRSS B 1999.

Bereket and Karaletsos, Modelling cellular perturbations with the sparse additive mechanism shift
variational autoencoder, NeurIPS 2023.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from crlearn.base import COUNTED, counted
from crlearn.inputs import (
    Environments,
    KnownDomains,
    Measurement,
    NumberOfLatents,
    check_environment_sizes,
    measure,
    read_environments,
    resolve_n_latents,
)
from crlearn.likelihood import domain_checks
from crlearn.methods._denoising import (
    ExplicitPriorCRL,
    offset_of,
    refuse_small_environments,
    what_is_known,
)
from crlearn.methods.empirical_bayes._algorithm import Found, decoder_of, domains_of, rotate
from crlearn.methods.gaussian._checks import explained_check, gaussian_check
from crlearn.methods.gaussian._posterior import ComponentsPosterior
from crlearn.methods.structural._estimator import structural_prior_crl
from crlearn.result import Check, Guarantee, Result
from crlearn.variational import (
    Components,
    ExactPrior,
    GaussianPrior,
    ShiftPrior,
    fit_exactly,
    number_of_components,
)

Matrix = NDArray[np.floating]
GaussianName = Literal["normal", "mixture", "conditional", "shift"]

# Of the latents: exact posteriors need some noise, and with less of it nothing is taken off.
_LEAST_NOISE = 1e-10
# They are about the prior, and so about posteriors: the axes do not rest on it.
_PRIOR = ("each environment is explained", "latents are Gaussian")

GUARANTEE = Guarantee(
    latents="scale",
    graph="none",
    text="each latent up to its scale, which is set by unit columns of the mixing, and up to what "
    "measurement noise hides of it, if the measurement is linear with noise alike in all features, "
    "interventions are hard (with the shift prior: shift their targets), and the given graph and "
    "targets are right; its sign by the shift of its mean, if interventions shift it",
    accounts_for=("signs are determined", *_PRIOR),
)
SPAN_GUARANTEE = Guarantee(
    latents="span",
    graph="none",
    text="all latents together up to one invertible linear map, and up to what measurement noise "
    "hides of them, if the measurement is linear with noise alike in all features: no targets were "
    "given that could tell them apart",
    accounts_for=_PRIOR,
)


def gaussian_prior_crl(
    X: Matrix,
    environments: Environments,
    known: KnownDomains | None,
    n_latents: NumberOfLatents = None,
    *,
    prior: GaussianName = "conditional",
    orthogonal: bool = True,
    center: bool = False,
    scale: bool = False,
    seed: int = 0,
) -> Result:
    """Recover and denoise the latents behind a linear mixing; see the module's text.

    Parameters
    ----------
    X, environments, known
        Rows, their environments, and what is known of these: graph and targets; None: nothing.
    n_latents
        Number of latents, where nothing is known.
    prior, center, scale
        See `GaussianPriorCRL`.
    orthogonal
        Whether the columns of the mixing are.
    seed
        Of starts at random.
    """
    number: Any
    number, count_checks, count_details = resolve_n_latents(
        X, n_latents if known is None else len(known.graph), environments.codes
    )
    measurement = measure(
        X,
        number,
        offset=offset_of(X, environments, known) if center else None,
        scale=scale,
        codes=None if prior in ("normal", "mixture") else environments.codes,
    )
    n = measurement.span.shape[1]
    if known is not None:
        refuse_small_environments(environments, n)
    found, checks = _axes(measurement, environments, known, seed, prior, orthogonal=orthogonal)
    noisy, codes = found.noisy(measurement), environments.codes
    least = _LEAST_NOISE * max(float((noisy**2).mean()), np.finfo(float).tiny)
    noise = found.noise + least * np.eye(n)
    fit = fit_exactly(_prior(prior, environments, known, noisy), noisy, noise, codes)
    components = fit.prior.components()
    explained, losses = explained_check(components, noisy, noise, codes, environments.labels)
    return Result(
        encoder=_encoder(measurement, found, environments, components, noise, noisy),
        decoder=decoder_of(measurement, found),
        guarantee=SPAN_GUARANTEE if known is None else GUARANTEE,
        **what_is_known(environments, known),
        checks=(
            *count_checks,
            *measurement.checks,
            check_environment_sizes(environments, n),
            *measurement.noise_checks(),
            measurement.range_check(noisy),
            *checks,
            *(() if prior == "conditional" else (explained,)),
            *(() if prior == "mixture" else (gaussian_check(noisy, codes, environments.labels),)),
        ),
        alternatives=found.alternatives,
        history={"log_likelihood": fit.log_likelihood},
        details={
            **count_details,
            **found.details,
            "noise_variance": found.noise_variance * measurement.unit**2,
            "unexplained": losses,
            "settled": fit.settled,
            "n_components": components.means.shape[0],
            "labels": tuple(environments.labels.tolist()),
            **_shifts(fit.prior, measurement.unit),
        },
    )


def _axes(
    measurement: Measurement,
    environments: Environments,
    known: KnownDomains | None,
    seed: int,
    prior: GaussianName,
    *,
    orthogonal: bool,
) -> tuple[Found, tuple[Check, ...]]:
    """Find the axes of the latents, as far as graph and targets are known."""
    if known is None:
        n = measurement.span.shape[1]
        return Found(np.eye(n), measurement.noise_variance, measurement.span), ()
    domains = domains_of(measurement, environments, known, hard=prior != "shift")
    found = rotate(measurement, domains, np.random.default_rng(seed), orthogonal=orthogonal)
    visible = domain_checks(domains, found.unmixing, environments.labels, known.names)
    return found, (*visible, *found.checks)


def _prior(
    name: GaussianName, environments: Environments, known: KnownDomains | None, noisy: Matrix
) -> ExactPrior:
    """Return the prior before it has seen the latents."""
    n_environments, n = len(environments), noisy.shape[1]
    if name == "mixture":
        count = number_of_components(noisy)
        return GaussianPrior.standard("mixture", n_environments, n, count)
    if name != "shift":
        return GaussianPrior.standard(name, n_environments, n)
    if known is None:  # any covariance, the same in all environments, and any means
        every = np.ones((n_environments, n), dtype=bool)
        return ShiftPrior.without_effects(every, np.triu(np.ones((n, n), dtype=bool), 1))
    return ShiftPrior.without_effects(known.targets, known.graph)


def _encoder(
    measurement: Measurement,
    found: Found,
    environments: Environments,
    components: Components,
    noise: Matrix,
    noisy: Matrix,
) -> ComponentsPosterior:
    """Return posteriors in the units of X."""
    unit = measurement.unit
    return ComponentsPosterior(
        found.unmixing @ found.span.T / measurement.scale,
        measurement.offset,
        noise * unit**2,
        Components(
            components.log_weights, components.means * unit, components.covariances * unit**2
        ),
        environments.counts / environments.counts.sum(),
        largest=float(np.linalg.norm(noisy, axis=1).max()) * unit or 1.0,
    )


def _shifts(prior: Any, unit: float) -> dict[str, Any]:
    """Return what the environments add to latents, and the effects of latents on each other."""
    if not isinstance(prior, ShiftPrior):
        return {}
    return {"shifts": np.asarray(prior.shifts) * unit, "effects": np.asarray(prior.slopes)}


class GaussianPriorCRL(ExplicitPriorCRL):
    """Latents behind a noisy measurement by a Gaussian prior (pPCA, mixture, conditional, shift).

    g-modeling with the priors that `StructuralPriorCRL` is compared with. `y` holds one environment
    label a row. With a causal graph and the targets of each environment, latents are its nodes, and
    their axes, signs and scales are as in `EmpiricalBayesCRL`; without, they are principal
    components, of which only the span is determined. Behind a linear mixing all is exact, and takes
    a second; behind a network nothing is guaranteed.

    Parameters
    ----------
    n_latents
        Number of latents; ``"auto"`` or None: that of the graph; without a graph the rank of X, or,
        if noise fills all dimensions, as many as stand out from it.
    prior
        ``"normal"``: one Gaussian for all rows, which makes probabilistic principal components;
        ``"mixture"``: a mixture of Gaussians, as many as the Bayesian information criterion asks
        for; ``"conditional"``: a Gaussian for each environment; ``"shift"``: linear mechanisms of
        the graph with Gaussian noises, to whose targets each environment adds a number (without
        graph and targets: one covariance, and a mean for each environment).
    graph, targets
        Which latent causes which, and which latents each environment intervenes on, in the forms
        that `StructuralPriorCRL` takes; None: not known.
    mixing
        ``"orthogonal"``, ``"any"`` or ``"nonlinear"``, as in `StructuralPriorCRL`.
    center, scale
        Whether to take the mean off X first, and whether to divide features by their standard
        deviations, as in `StructuralPriorCRL`.
    n_steps, n_restarts
        Of the training behind a nonlinear mixing, as in `StructuralPriorCRL`.
    random_state
        Seed of starts, batches and held-out rows.

    Examples
    --------
    >>> from crlearn import GaussianPriorCRL
    >>> from crlearn.data import make_multi_domain
    >>> world = make_multi_domain(n_latents=3, n_features=20, n_samples=500, random_state=0)
    >>> known = {"graph": world.truth.graph, "targets": world.known_targets}
    >>> model = GaussianPriorCRL(prior="mixture", **known, random_state=0)
    >>> model.fit(world.X, world.y).transform(world.X, world.y).shape  # posterior means
    (1500, 3)
    >>> low, high = model.posterior(world.X, world.y).interval(0.9)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ExplicitPriorCRL._parameter_constraints,
        "n_latents": COUNTED,
        "prior": [StrOptions({"normal", "mixture", "conditional", "shift"})],
    }

    def __init__(
        self,
        n_latents: int | str | None = "auto",
        *,
        prior: str = "conditional",
        graph: Any = None,
        targets: Any = None,
        mixing: str = "orthogonal",
        center: bool = False,
        scale: bool = False,
        n_steps: int = 4000,
        n_restarts: int = 2,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.prior = prior
        self.graph = graph
        self.targets = targets
        self.mixing = mixing
        self.center = center
        self.scale = scale
        self.n_steps = n_steps
        self.n_restarts = n_restarts
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        assert y is not None
        environments = read_environments(y, fewest=1)
        n_latents, known = self._known(environments)
        if known is None and self.graph is not None:
            raise ValueError(
                "'graph' tells latents apart together with 'targets' only, which were not given. "
                "Set both, or neither."
            )
        options: dict[str, Any] = {"prior": self.prior, "scale": self.scale, "seed": seed}
        if self.mixing == "nonlinear":
            if n_latents is None:
                raise ValueError(
                    "With mixing='nonlinear' the number of latents cannot be counted. Set "
                    "'n_latents', or 'graph' and 'targets'."
                )
            return structural_prior_crl(
                X,
                environments,
                known,
                n_latents,
                mixing="nonlinear",
                n_steps=self.n_steps,
                n_restarts=self.n_restarts,
                **options,
            )
        return gaussian_prior_crl(
            X,
            environments,
            known,
            counted(n_latents),  # type: ignore[arg-type]
            orthogonal=self.mixing == "orthogonal",
            center=self.center,
            **options,
        )
