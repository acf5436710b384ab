"""Linear mixing, interventions on unknown sets of latents (the setting of UMNI-CRL).

Recovers the latents, the graph among them and the targets of every environment from an
observational environment and others, each of which changes the mechanisms of some latents; nobody
needs to know which. The 0/1 matrix of targets must have full rank. With hard interventions each
latent is recovered up to scale and the graph exactly; with soft ones each latent up to a mixture
with its ancestors, and the graph up to its transitive closure, or more if mechanisms are nonlinear
(see `LinearInterventionCRL`).

The paper estimates score differences and looks for integer combinations of environments that act
like an intervention on one latent, by enumerating them and cutting singular values. This
implementation maximises one likelihood over all environments:

1. X is reduced to the span of the mixing and whitened.
2. *Peeling*: a latent whose causes are known gives a direction in which precision matrices differ
   by rank one. The environments in which it has one mechanism, and those in which it has another,
   are read from the likelihood of its conditional distribution.
3. *Joint fit*: every latent is regressed on its predecessors over the environments that leave it
   alone. Against a Gaussian of its own for every environment this is a test of the whole answer;
   while it fails, targets and order are changed.
4. Edges that are not needed are dropped.
5. *Nonlinear mechanisms*, if linear ones do not fit: as in `LinearInterventionCRL`, from the
   likeliest sets of targets; those of the best are revised as well.

Environments that hold latents at values (do-interventions) show their rows exactly, where the
environments leave no choice of them (`inputs._held`).

Time grows linearly in the rows (one pass to reduce X; without step 5 nothing else sees them), and
about as m n^4 in the number of environments and latents.

References
----------
Varıcı, Acartürk, Shanmugam and Tajer, Linear causal representation learning from unknown multi-node
interventions, NeurIPS 2024.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from crlearn.base import COUNTED, counted
from crlearn.inputs import (
    Environments,
    NoiseName,
    NumberOfLatents,
    by_environment,
    check_environment_sizes,
    read_environments,
    read_signal,
    reference_first,
    reference_of,
)
from crlearn.likelihood import Moments, fit_interventional
from crlearn.methods._alternatives import alternatives_of, determination_check
from crlearn.methods._denoising import MeasuredCRL, encoder_of
from crlearn.methods._interventional import (
    blamed,
    doubt_check,
    far_rows_check,
    fit_checks,
    fit_details,
    held_latents,
    known_relations,
    soft_guarantee,
    visibility_check,
)
from crlearn.result import Guarantee, LinearDecoder, Result

Matrix = NDArray[np.floating]
BoolMatrix = NDArray[np.bool_]

HARD_GUARANTEE = Guarantee(
    latents="scale",
    graph="exact",
    text="each latent up to scale and order, the exact graph and the targets of each environment, "
    "if the mixing is linear, interventions cut latents off their parents, in one way for each "
    "latent, and the 0/1 matrix of targets has full rank",
)
SOFT_GUARANTEE = Guarantee(
    latents="ancestors",
    graph="closure",
    text="each latent up to scale, order and a mixture with its ancestors, who is an ancestor of "
    "whom, and the targets of each environment, if the mixing is linear, interventions change "
    "mechanisms in one way for each latent, and the 0/1 matrix of targets has full rank",
)


def multi_node_crl(
    X: Matrix,
    environments: Environments,
    n_latents: NumberOfLatents = "auto",
    *,
    interventions: Literal["hard", "soft"] = "hard",
    mechanisms: Literal["auto", "linear", "nonlinear"] = "auto",
    noise: NoiseName = "auto",
    seed: int = 0,
) -> Result:
    """Recover latents, graph and targets; see the module's text."""
    hard = interventions == "hard"
    order = reference_first(environments)
    signal = read_signal(X, environments, n_latents, len(environments) - 1, noise)
    rows = by_environment(signal.encoder(X), environments, order)
    rng = np.random.default_rng(seed)
    held = held_latents(rows, environments.labels[order], hard=hard)
    rows = held.widened(rows, rng)
    mechanisms = blamed(mechanisms, signal)
    fit = fit_interventional(
        rows, None, hard=hard, mechanisms=mechanisms, rng=rng, noise=signal.noise_in(order)
    )
    fit = fit.causes_first()
    fit = replace(fit, H=held.exact(fit.H, fit.targets))
    labels, alternatives = environments.labels[order], alternatives_of(fit)
    encoder = encoder_of(fit, signal, rows, X, environments, order)
    known = known_relations(fit, hard=hard)
    return Result(
        encoder=encoder,
        decoder=LinearDecoder.undoing(encoder, X),
        guarantee=HARD_GUARANTEE if hard else soft_guarantee(SOFT_GUARANTEE, fit, None),
        adjacency=known,
        targets=fit.targets[np.argsort(order)],
        environments=environments.names,
        checks=(
            *signal.checks,
            reference_of(environments)[1],
            check_environment_sizes(environments, signal.n_latents),
            visibility_check(Moments.of(rows), labels),
            *held.checks(fit.H, fit.targets, None),
            *fit_checks("interventions on sets of latents fit", fit, environments, order),
            *far_rows_check(fit, environments, order),
            determination_check(signal.n_latents, alternatives),
            *doubt_check(fit, known, None),
        ),
        alternatives=alternatives,
        goodness_of_fit=fit.goodness_of_fit if fit.mechanisms == "linear" else None,
        edge_p_values=fit.edge_p_values,
        encoder_standard_errors=fit.standard_errors,
        details=fit_details(fit, signal),
    )


class MultiNodeCRL(MeasuredCRL):
    """Latents, graph and targets from interventions on unknown sets (setting of UMNI-CRL).

    The published algorithm, UMNI-CRL, is `crlearn.published.UMNICRL`.

    `y` holds one environment label a row. One environment is observational; each of the others
    changes the mechanisms of some latents, and there are at least as many as latents. Latents are
    numbered causes first.

    Parameters
    ----------
    n_latents
        Number of latents; ``"auto"`` or None: the rank of X, or, if noise fills all dimensions, as
        many as stand out from it.
    interventions
        ``"hard"``: they cut latents off their parents, or set them to values. ``"soft"``: they
        change mechanisms; less can be recovered then.
    mechanisms
        ``"linear"``, ``"nonlinear"``, or ``"auto"``: nonlinear if linear ones do not fit, or if
        interventions are soft and nonlinear ones explain more.
    noise
        Of the features: ``"gaussian"``, independent, with a variance of its own for each feature;
        ``"poisson"``: X are counts, whose variance beside the latents is their mean; ``"none"``; or
        ``"auto"``: Gaussian if X fills more dimensions than there are latents.
    outliers
        ``"keep"``, or ``"downweight"``: rows that stand far out of their environment get the weight
        zero; ``result_.details["weights"]`` has the weights.
    reference
        Label of the observational environment; None: the one labelled 0, or by a name such as
        ``"control"``, ``"wt"`` or ``"untreated"``.
    random_state
        Seed of the starts.

    Examples
    --------
    >>> from crlearn import MultiNodeCRL
    >>> from crlearn.data import make_multi_node
    >>> world = make_multi_node(n_latents=3, n_features=10, n_samples=2000, random_state=0)
    >>> model = MultiNodeCRL(interventions="hard", random_state=0).fit(world.X, world.y)
    >>> model.result_.targets.shape  # which environment intervenes on which latent
    (4, 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MeasuredCRL._parameter_constraints,
        "n_latents": COUNTED,
        "interventions": [StrOptions({"hard", "soft"})],
        "mechanisms": [StrOptions({"auto", "linear", "nonlinear"})],
        "noise": [StrOptions({"auto", "gaussian", "poisson", "none"})],
        "reference": "no_validation",
    }

    def __init__(
        self,
        n_latents: int | str | None = "auto",
        *,
        interventions: str = "hard",
        mechanisms: str = "auto",
        noise: str = "auto",
        outliers: str = "keep",
        reference: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_latents = n_latents
        self.interventions = interventions
        self.mechanisms = mechanisms
        self.noise = noise
        self.outliers = outliers
        self.reference = reference
        self.random_state = random_state

    def _algorithm(self, X: Matrix, y: NDArray[Any] | None, seed: int) -> Result:
        return self._algorithm_on_some(X, y, seed, None)

    def _algorithm_on_some(
        self, X: Matrix, y: NDArray[Any] | None, seed: int, numbers: NDArray[np.intp] | None
    ) -> Result:
        assert y is not None
        environments = replace(read_environments(y, self.reference), numbers=numbers)
        return multi_node_crl(
            X,
            environments,
            counted(self.n_latents),
            interventions=self.interventions,  # type: ignore[arg-type]
            mechanisms=self.mechanisms,  # type: ignore[arg-type]
            noise=self.noise,  # type: ignore[arg-type]
            seed=seed,
        )
