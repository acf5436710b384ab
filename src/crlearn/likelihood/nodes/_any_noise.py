"""Noise of any shape: mechanisms on features of the parents, densities of what they leave.

Latent j is f_j(parents) plus noise whose density, in each pool, is fitted as in `core._density`;
features are the parents themselves (linear mechanisms) or those of `nodes._basis`. With linear
mechanisms covariances are no longer all that matters: noise that is not Gaussian tells more about
the encoder, as in independent component analysis. With nonlinear ones the Gaussian likelihood is
not only less sharp where noise has another shape, its optimum is at a wrong encoder.

With psi the scores -(log f)' of the noises and S the slopes of the mechanisms, the derivative of a
row's log-likelihood by D in (I + D) H is -(psi - S'psi) z', and by the coefficients of mechanism j
it is psi_j times the features. Steps are those of Fisher's scoring with the scatter of these
derivatives as information; after each the densities are fitted anew. Every step raises the
likelihood, so the answer is never worse than the Gaussian one.

Time grows linearly in the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from crlearn.graph import Graph, Parents, adjacency_of
from crlearn.likelihood._fit import Fit
from crlearn.likelihood._price import edge_prior, parameter_price
from crlearn.likelihood.core._density import GAUSSIAN_CONSTANT, Density, fit_density
from crlearn.likelihood.core._encoder import LONGEST_STEP, moved, off_diagonal
from crlearn.likelihood.core._newton import Expansion, descend
from crlearn.likelihood.nodes._basis import (
    BLOCK,
    RIDGE,
    ROWS_FOR_THE_FORM,
    Basis,
    LinearBasis,
)
from crlearn.likelihood.nodes._protocol import Key

Matrix = NDArray[np.floating]
IntMatrix = NDArray[np.intp]
Place = tuple[int, int]  # a latent and one of its pools
State = tuple[Matrix, "Mechanisms"]

_MOST_STEPS, _STEPS_OF_A_CHANGE = 30, 5
_LEAST_GAIN = 0.5  # nats
_ROWS_FOR_INFORMATION = 4_000  # of an environment


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A latent in one pool, given its parents.

    Attributes
    ----------
    parents, basis
        Whose features it has, and which.
    kept, n_parameters
        Features with coefficients, and how many numbers were fitted for them.
    coefficients
        Of all features, zero for those that are not kept; the first feature is constant.
    density
        Of the noise.
    """

    parents: Parents
    basis: Basis | LinearBasis
    kept: IntMatrix
    n_parameters: int
    coefficients: Matrix
    density: Density

    def residuals(self, j: int, z: Matrix) -> Matrix:
        """Return what is left of latent j in some rows."""
        return z[:, j] - self.features(z).values @ self.coefficients

    def features(self, z: Matrix):
        """Return the features of the parents."""
        return self.basis(z[:, list(self.parents)])

    def with_step(self, step: Matrix) -> Mechanism:
        """Change the coefficients of the features that are kept."""
        coefficients = self.coefficients.copy()
        coefficients[self.kept] += step
        return replace(self, coefficients=coefficients)


Mechanisms = Mapping[Place, Mechanism]


@dataclass(frozen=True, eq=False)
class EdgeTests:
    """Tests of all edges at a fit.

    Attributes
    ----------
    adjacency
        The edges that are there.
    statistics, freedom
        Wald's statistic for these, the score statistic for others; numbers of coefficients.
    standard_errors
        Of what each row of the encoder has of the other latents.
    """

    adjacency: NDArray[np.bool_]
    statistics: Matrix
    freedom: IntMatrix
    standard_errors: Matrix

    @property
    def p_values(self) -> Matrix:
        """Of each edge; 1 where there is none."""
        freedom = np.maximum(self.freedom, 1)
        return np.where(self.adjacency, chi2.sf(self.statistics, freedom), 1.0)


class AnyNoiseModel:
    """The likelihood of some rows.

    Parameters
    ----------
    environments
        Rows of each environment, reduced to as many dimensions as there are latents.
    pool
        ``pool[j, e]`` is the pool of environment e for latent j.
    parents_in
        In which pools latents have parents: the ``"first"`` (hard interventions), the ``"others"``
        (soft ones, in coordinates of the noise), or ``"all"``.
    linear
        Whether features are the parents themselves.
    choose_features
        Whether each mechanism takes only the features that pay for themselves, which is right for
        comparing graphs, or all.
    """

    def __init__(
        self,
        environments: Sequence[Matrix],
        pool: IntMatrix,
        *,
        parents_in: Literal["first", "others", "all"],
        linear: bool,
        choose_features: bool = True,
    ) -> None:
        everything = np.concatenate(environments)
        self.n, self.n_rows = everything.shape[1], len(everything)
        self.pool, self.parents_in = pool, parents_in
        self.linear, self.choose_features = linear, choose_features
        self._mean = everything.mean(axis=0)
        self._covariance = np.cov(everything.T, bias=True).reshape(self.n, self.n)
        self._rows = tuple(rows - self._mean for rows in environments)
        self._latents_at: tuple[Matrix | None, list[Matrix]] = (None, [])
        self._residuals_at: dict[Place, tuple[Matrix, Matrix, Matrix]] = {}
        self._value_at: tuple[State | None, float] = (None, 0.0)
        self._known: tuple[bytes, dict[tuple[Place, Parents], float]] = (b"", {})

    # Fits

    def gaussian(self, H: Matrix, graph: Graph) -> Fit:
        """Return the fit at an encoder by least squares, with Gaussian noise."""
        H = self.scaled(H)
        mechanisms = {
            (j, p): self._regressed(H, (j, p), parents)
            for j, parents in enumerate(graph)
            for p in self._pools_of(j)
        }
        return self._fit(H, graph, mechanisms)

    def fitted(self, H: Matrix, graph: Graph) -> Fit:
        """Fit encoder, mechanisms and densities of a graph from an encoder."""
        best = self.fitted_once(H, graph)
        while best.any_noise and not self.linear:  # features are fitted to the new latents
            found = self.fitted_once(best.H, graph)
            if found.score < best.score + _LEAST_GAIN:
                break
            best = found
        return best

    def fitted_once(self, H: Matrix, graph: Graph, max_steps: int = _MOST_STEPS) -> Fit:
        """Fit a graph from an encoder whose features stay as they are."""
        return self._raised(self.with_densities(self.gaussian(H, graph)), max_steps)

    def finished(self, H: Matrix, graph: Graph) -> Fit:
        """Fit a graph in a few steps, from an encoder that some of the rows have found."""
        return self.fitted_once(H, graph, _STEPS_OF_A_CHANGE)

    def refitted(self, fit: Fit, graph: Graph, H: Matrix | None = None) -> Fit:
        """Fit a graph from a similar one, and maybe from another encoder, in a few steps."""
        H = fit.H if H is None else H
        moved = (H != fit.H).any(axis=1)
        mechanisms = dict(fit.parameters)
        for j, parents in enumerate(graph):
            if parents == fit.graph[j] and not moved[[j, *parents]].any():
                continue
            for p in self._pools_of(j):
                mechanism = self._regressed(H, (j, p), parents)
                like = fit.parameters[j, p].density
                mechanisms[j, p] = self._with_density(H, (j, p), mechanism, like)
        start = self._fit(H, graph, mechanisms)
        return self._raised(start, _STEPS_OF_A_CHANGE, new_shapes=False)

    @property
    def hopeless(self) -> float:
        """Nats that the encoder may add to what was predicted; tests count with it already.

        About the price of a parameter, which was not measured.
        """
        return 0.0 if self.linear else parameter_price(self.n_rows)

    def predicted(self, fit: Fit, graphs: Sequence[Graph]) -> Matrix:
        """Return about what scores similar graphs would reach.

        With linear mechanisms by score tests of edges that are missing and Wald tests of others,
        which count with the encoder; otherwise by least squares at the encoder as it is.
        """
        gain = self._gain_by_tests(fit) if self.linear else self._gain_at_the_encoder(fit)
        return np.array([fit.score + gain(graph) for graph in graphs])

    def _gain_by_tests(self, fit: Fit) -> Callable[[Graph], float]:
        tests = self.tests(fit)
        gained = tests.statistics / 2 - parameter_price(self.n_rows) * tests.freedom
        gained -= edge_prior(self.n)

        def gain(graph: Graph) -> float:
            change = adjacency_of(graph).astype(int) - fit.adjacency.astype(int)
            return float((change * gained).sum())

        return gain

    def _gain_at_the_encoder(self, fit: Fit) -> Callable[[Graph], float]:
        prior = edge_prior(self.n)

        def gain(graph: Graph) -> float:
            changed = [j for j in range(self.n) if graph[j] != fit.graph[j]]
            new, old = ([(j, parents[j]) for j in changed] for parents in (graph, fit.graph))
            costs = self.values(fit.H, new).sum() - self.values(fit.H, old).sum()
            n_more = sum(len(graph[j]) - len(fit.graph[j]) for j in changed)
            return -self.n_rows * float(costs) - prior * n_more

        return gain

    def values(self, H: Matrix, wanted: Sequence[Key]) -> Matrix:
        """Return the values of nodes at an encoder, with the price of features and densities."""
        return np.array(
            [
                sum(self._cost(H, (j, p), parents) for p in self._pools_of(j)) / self.n_rows
                for j, parents in wanted
            ]
        )

    def tests(self, fit: Fit) -> EdgeTests:
        """Test all edges of linear mechanisms; the encoder is uncertain, too."""
        n, n_moved = self.n, self.n * (self.n - 1)
        wide = {place: self._widened(place, own) for place, own in fit.parameters.items()}
        gradient, information = self._scatter((fit.H, wide))
        starts, adjacency = self._starts(wide), fit.adjacency
        places = {
            (i, j): [
                starts[j, p] + 1 + wide[j, p].parents.index(i)
                for p in self._pools_of(j)
                if self._has_parents(p)
            ]
            for i, j in zip(*np.nonzero(off_diagonal(n)), strict=True)
        }
        free = np.ones(len(gradient), dtype=bool)
        for edge, at in places.items():
            free[at] = adjacency[edge]
        covariance = np.zeros(information.shape)
        covariance[np.ix_(free, free)] = np.linalg.pinv(
            information[np.ix_(free, free)], hermitian=True
        )
        estimates = np.concatenate(
            [np.zeros(n_moved), *(mechanism.coefficients for mechanism in wide.values())]
        )
        statistics, freedom = np.zeros((n, n)), np.zeros((n, n), dtype=int)
        for edge, at in places.items():
            if adjacency[edge]:
                variance, vector = covariance[np.ix_(at, at)], estimates[at]
            else:
                crossed = information[at] @ covariance
                variance = information[np.ix_(at, at)] - crossed @ information[:, at]
                vector = gradient[at] - crossed @ gradient
            statistics[edge] = vector @ np.linalg.pinv(variance, hermitian=True) @ vector
            freedom[edge] = len(at)
        errors = np.zeros((n, n))
        errors[off_diagonal(n)] = np.sqrt(np.maximum(np.diag(covariance)[:n_moved], 0))
        return EdgeTests(adjacency, statistics, freedom, errors)

    def _widened(self, place: Place, mechanism: Mechanism) -> Mechanism:
        """Return a linear mechanism with all latents as parents, some without effect."""
        j, p = place
        if not self._has_parents(p):
            return mechanism
        parents = tuple(i for i in range(self.n) if i != j)
        coefficients = np.zeros(self.n)
        coefficients[0] = mechanism.coefficients[0]
        coefficients[[1 + parents.index(i) for i in mechanism.parents]] = mechanism.coefficients[1:]
        basis = LinearBasis(len(parents))
        return replace(
            mechanism,
            parents=parents,
            basis=basis,
            kept=np.arange(basis.size),
            coefficients=coefficients,
        )

    def scaled(self, H: Matrix) -> Matrix:
        """Give every latent unit variance over all rows: the features expect it."""
        return H / np.sqrt(np.einsum("ja,ab,jb->j", H, self._covariance, H))[:, None]

    def latents(self, H: Matrix) -> Matrix:
        """Return the latents of all rows, centred."""
        return np.concatenate([rows @ H.T for rows in self._rows])

    def functions(self, H: Matrix, j: int, parents: Sequence[int]) -> Matrix:
        """Return all that a mechanism of latent j may consist of, for all rows."""
        Z = self.latents(H)
        return self._basis(H, j, tuple(parents), Z)(Z[:, list(parents)]).values.astype(float)

    def slopes(self, fit: Fit, j: int) -> Matrix:
        """Return the derivative of a mechanism by each parent, for all rows."""
        mechanism = fit.parameters[j, 0]
        slopes = mechanism.features(self.latents(fit.H)).slope(mechanism.coefficients)
        return np.broadcast_to(slopes, (self.n_rows, len(mechanism.parents)))

    def residuals(self, fit: Fit) -> Matrix:
        """Return what the mechanisms leave where each latent has one pool: the noises."""
        each = [self._residuals(fit.H, (j, 0), fit.parameters[j, 0]) for j in range(self.n)]
        return np.column_stack(each)

    # The parts of a fit

    def _pools_of(self, j: int) -> list[int]:
        return np.unique(self.pool[j]).tolist()

    def _latents(self, H: Matrix, place: Place) -> Iterator[Matrix]:
        """Yield the latents in a pool, block by block."""
        j, p = place
        for e in np.flatnonzero(self.pool[j] == p):
            yield from self._blocks(H, int(e))

    def _blocks(self, H: Matrix, e: int) -> Iterator[Matrix]:
        """Yield the latents of an environment, block by block; those of the last H are kept."""
        if self._latents_at[0] is not H:
            self._latents_at = (H, [rows @ H.T for rows in self._rows])
        z = self._latents_at[1][e]
        for start in range(0, len(z), BLOCK):
            yield z[start : start + BLOCK]

    def _has_parents(self, p: int) -> bool:
        return self.parents_in == "all" or (p == 0) == (self.parents_in == "first")

    def _regressed(self, H: Matrix, place: Place, parents: Parents) -> Mechanism:
        """Regress a latent on features by least squares, with Gaussian noise."""
        j, p = place
        parents = parents if self._has_parents(p) else ()
        z = np.concatenate(list(self._latents(H, place)))
        basis, child = self._basis(H, j, parents, z), z[:, j]
        values = basis(z[:, list(parents)]).values.astype(float)
        gram, with_child, square = values.T @ values, values.T @ child, child @ child
        price = parameter_price(self.n_rows)
        choices: list[tuple[float, IntMatrix, int, Matrix]] = []
        for kept, n_parameters in self._selections(basis):
            inside = gram[np.ix_(kept, kept)]
            ridge = RIDGE * np.trace(inside) / len(kept) * np.eye(len(kept))
            found = np.linalg.solve(inside + ridge, with_child[kept])
            mean = (child.sum() - gram[0, kept] @ found) / len(z)
            left = (square + found @ (inside @ found - 2 * with_child[kept])) / len(z) - mean**2
            cost = 0.5 * len(z) * np.log(max(left, 1e-300)) + price * n_parameters
            choices.append((cost, kept, n_parameters, found))
        _, kept, n_parameters, found = min(choices, key=lambda choice: choice[0])
        coefficients = np.zeros(basis.size)
        coefficients[kept] = found
        residuals = child - values @ coefficients
        self._residuals_at[place] = H, coefficients, residuals
        density = Density.gaussian(float(residuals.std()))
        return Mechanism(parents, basis, kept, n_parameters, coefficients, density)

    def _basis(self, H: Matrix, j: int, parents: Parents, z: Matrix) -> Basis | LinearBasis:
        if self.linear or not parents:
            return LinearBasis(len(parents))
        some = z[:: -(-len(z) // ROWS_FOR_THE_FORM)]
        child = some[:, j] + H[j] @ self._mean  # from its own origin
        return Basis.plain(len(parents)).fitted_to_squares(some[:, list(parents)], child)

    def _selections(self, basis: Basis | LinearBasis) -> list[tuple[IntMatrix, int]]:
        """Return the sets of features that a mechanism may consist of, and their parameters."""
        if isinstance(basis, LinearBasis):
            return [(np.arange(basis.size), basis.size)]
        selections = basis.selections() if self.choose_features else [basis.everything()]
        return [(selection.kept, selection.n_parameters) for selection in selections]

    def _residuals(self, H: Matrix, place: Place, mechanism: Mechanism) -> Matrix:
        """Return what a mechanism leaves in its pool; the last of each place are kept."""
        known = self._residuals_at.get(place)
        if known is not None and known[0] is H and known[1] is mechanism.coefficients:
            return known[2]
        found = np.concatenate([mechanism.residuals(place[0], z) for z in self._latents(H, place)])
        self._residuals_at[place] = H, mechanism.coefficients, found
        return found

    def _with_density(
        self, H: Matrix, place: Place, mechanism: Mechanism, like: Density | None
    ) -> Mechanism:
        """Fit the density to the residuals, whose mean becomes part of the mechanism."""
        residuals = self._residuals(H, place, mechanism)
        mean = residuals.mean()
        coefficients = mechanism.coefficients.copy()
        coefficients[0] += mean
        centred = residuals - mean
        self._residuals_at[place] = H, coefficients, centred
        density = fit_density(centred, like)
        return replace(mechanism, coefficients=coefficients, density=density)

    def with_densities(self, fit: Fit, *, keep_penalties: bool = False) -> Fit:
        """Fit all densities to the residuals of a fit."""
        mechanisms = {
            place: self._with_density(
                fit.H, place, mechanism, mechanism.density if keep_penalties else None
            )
            for place, mechanism in fit.parameters.items()
        }
        return self._fit(fit.H, fit.graph, mechanisms)

    def _cost(self, H: Matrix, place: Place, parents: Parents) -> float:
        """Return the negative log-likelihood of a latent in a pool, with the price of its model.

        What was computed at this encoder before is known.
        """
        if self._known[0] != H.tobytes():
            self._known = (H.tobytes(), {})
        known = self._known[1]
        parents = parents if self._has_parents(place[1]) else ()
        if (place, parents) not in known:
            mechanism = self._regressed(H, place, parents)
            residuals = self._residuals(H, place, mechanism)
            residuals = residuals - residuals.mean()
            density = fit_density(residuals)
            price = parameter_price(self.n_rows) * (mechanism.n_parameters + density.freedom)
            known[place, parents] = price - float(density.log_density(residuals).sum())
        return known[place, parents]

    def _fit(self, H: Matrix, graph: Graph, mechanisms: Mechanisms) -> Fit:
        freedom = sum(m.n_parameters + m.density.freedom for m in mechanisms.values())
        price = parameter_price(self.n_rows) * freedom
        price += edge_prior(self.n) * sum(map(len, graph))
        return Fit(
            H,
            graph,
            -self._value((H, mechanisms)),
            price,
            self.pool,
            mechanisms="linear" if self.linear else "nonlinear",
            any_noise=any(m.density.freedom > 0 for m in mechanisms.values()),
            parameters=mechanisms,
        )

    # Steps

    def _raised(self, fit: Fit, max_steps: int, *, new_shapes: bool = True) -> Fit:
        """Raise the likelihood: a step, then densities of the residuals, and so on.

        `new_shapes`: whether to choose anew how smooth densities are, where steps gain no more.
        """
        choose = False
        for _ in range(max_steps):
            if not fit.any_noise:
                break
            (H, mechanisms), _ = descend(
                (fit.H, fit.parameters),
                self._expanded,
                self._value,
                self._moved,
                max_steps=1,
                tolerance=0.0,
                longest=LONGEST_STEP,
            )
            stepped = self._fit(H, fit.graph, mechanisms)
            smoothed = self.with_densities(stepped, keep_penalties=not choose)
            found = max(stepped, smoothed, key=lambda fit: fit.score)
            gained = found.score - fit.score
            fit = found if gained > 0 else fit
            if gained < _LEAST_GAIN and choose == new_shapes:
                break
            choose = new_shapes and gained < _LEAST_GAIN
        return fit

    def _value(self, state: State) -> float:
        """Return the negative log-likelihood, up to the constant of the Gaussian F.

        That of the last state is kept.
        """
        H, mechanisms = state
        known, value = self._value_at
        if known is not None and known[0] is H and known[1] is mechanisms:
            return value
        total = sum(
            float(mechanism.density.log_density(self._residuals(H, place, mechanism)).sum())
            for place, mechanism in mechanisms.items()
        )
        left_out = self.n * (GAUSSIAN_CONSTANT + 0.5)  # by the Gaussian F
        value = float(-total - self.n_rows * (np.linalg.slogdet(H)[1] + left_out))
        self._value_at = state, value
        return value

    def _expanded(self, state: State) -> Expansion:
        gradient, information = self._scatter(state)
        return Expansion(self._value(state), -gradient, information)

    def _moved(self, state: State, step: Matrix) -> State:
        H, mechanisms = state
        starts = self._starts(mechanisms)
        changed = {
            place: mechanism.with_step(step[starts[place] : starts[place] + len(mechanism.kept)])
            for place, mechanism in mechanisms.items()
        }
        return moved(H, step[: self.n * (self.n - 1)]), changed

    def _starts(self, mechanisms: Mechanisms) -> dict[Place, int]:
        """Return where the coefficients of each place start among the parameters, after D."""
        sizes = [len(mechanism.kept) for mechanism in mechanisms.values()]
        starts = self.n * (self.n - 1) + np.cumsum([0, *sizes[:-1]])
        return dict(zip(mechanisms, starts.tolist(), strict=True))

    def _scatter(self, state: State) -> tuple[Matrix, Matrix]:
        """Return the gradient of the log-likelihood of all rows, and the scatter of its parts."""
        H, mechanisms = state
        n, starts = self.n, self._starts(mechanisms)
        n_moved, kept = n * (n - 1), off_diagonal(n).ravel()
        n_parameters = n_moved + sum(len(mechanism.kept) for mechanism in mechanisms.values())
        gradient, information = np.zeros(n_parameters), np.zeros((n_parameters, n_parameters))
        for e, rows in enumerate(self._rows):
            seen, share = 0, len(rows) / min(len(rows), _ROWS_FOR_INFORMATION)
            for z in self._blocks(H, e):
                n_some = min(len(z), max(0, _ROWS_FOR_INFORMATION - seen))
                parts, moving = np.zeros((n_some, n_parameters)), np.zeros(z.shape)
                for j in range(n):
                    place = (j, int(self.pool[j, e]))
                    mechanism, start = mechanisms[place], starts[place]
                    features = mechanism.features(z)
                    left = z[:, j] - features.values @ mechanism.coefficients
                    psi = mechanism.density.score(left)
                    own = slice(start, start + len(mechanism.kept))
                    values = features.values[:, mechanism.kept]
                    gradient[own] += psi @ values
                    parts[:, own] = psi[:n_some, None] * values[:n_some]
                    moving[:, j] += psi
                    slopes = features.slope(mechanism.coefficients)
                    moving[:, list(mechanism.parents)] -= psi[:, None] * slopes
                gradient[:n_moved] -= (moving.T @ z).ravel()[kept]
                products = moving[:n_some, :, None] * z[:n_some, None, :]
                parts[:, :n_moved] = -products.reshape(n_some, n * n)[:, kept]
                information += share * (parts.T @ parts)
                seen += len(z)
        return gradient, information
