"""An articulated arm: joints that move together, otherwise in each task."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from crlearn.data._dataset import Dataset
from crlearn.data._random import RandomState, independent_seeds
from crlearn.data.model._graphs import make_graph
from crlearn.data.model._interventions import Intervention
from crlearn.data.model._scm import make_scm
from crlearn.data.worlds._arm_views import LENGTHS, ArmMarkers, ArmRendering, joint_names
from crlearn.data.worlds._checks import check_choice, check_count, check_range
from crlearn.data.worlds._segments import make_latent_anm
from crlearn.data.worlds._world import Secrecy, Sizes, simulate


def make_arm(
    n_latents: int = 3,
    n_samples: Sizes = 250,
    *,
    view: Literal["markers", "images"] = "markers",
    n_markers: int = 3,
    resolution: int = 32,
    dtype: Literal["float32", "uint8"] = "float32",
    environments: Literal["tasks", "interventions"] = "tasks",
    n_tasks: int = 40,
    quiet: float = 0.3,
    variance_factors: tuple[float, ...] = (0.25, 4.0),
    graph: str | ArrayLike | nx.DiGraph = "full",
    edge_probability: float = 0.5,
    noise: str = "gaussian",
    noise_mean: tuple[float, float] = (-2.0, 2.0),
    noise_scale: tuple[float, float] = (0.3, 1.5),
    measurement_noise: float = 0.0,
    targets: Secrecy = "hidden",
    random_state: RandomState = None,
) -> Dataset:
    """Articulated arm seen by markers or as images, its joints coordinated by task.

    The latents drive the joints: shoulder, elbow, wrist. Each joint turns by ``1.2 tanh(z / 5)``
    radians from the direction of the link before it. A joint that another one causes moves along
    with it, by a sum of two saturating steps for each cause.

    With tasks, ``y`` is the number of the task: each has its own means and spreads of the joints
    and its own coordination of them, as in `make_latent_anm`. With interventions, as on a robot
    whose motors can be told to ignore the others, environment 0 is observational, environments 1,
    ..., n_latents intervene on the joints in order with the first variance factor, the next ones
    with the second, as in `make_ball_images`. ``truth.latent_names`` are the joints.

    Parameters
    ----------
    n_latents
        Number of joints: shoulder, elbow, wrist, and further ones.
    n_samples
        Rows in each task or environment, one number or one for each.
    view
        ``"markers"``: x and y of markers on the links, see `ArmMarkers`; ``"images"``: one grey
        picture a row, see `ArmRendering`.
    n_markers
        Markers on each link.
    resolution, dtype
        Of the images: height and width in pixels; ``"float32"``, or ``"uint8"`` for whole numbers
        from 0 to 255 in a quarter of the memory.
    environments
        ``"tasks"``, or ``"interventions"``: hard ones on single joints.
    n_tasks
        Number of tasks.
    quiet
        Share of the tasks in which a joint moves independently of the others, drawn for each joint.
    variance_factors
        Interventions: factors on the variance of the noise of the joint, one for each round; a
        joint that is intervened on does not depend on the others.
    graph, edge_probability
        See `make_graph`; by default each joint causes all that are further from the shoulder.
    noise, noise_mean, noise_scale
        Family, and ranges from which mean and standard deviation of each joint are drawn, in each
        task anew.
    measurement_noise
        Standard deviation of the Gaussian noise that is added to each feature; the arm is 2.6 long,
        and images have values from 0 to 1.
    targets
        Interventions: ``"known"`` also gives the targets as ``known_targets``.
    random_state
        Seed or generator.

    Examples
    --------
    >>> from crlearn.data import make_arm
    >>> make_arm(random_state=0)
    Dataset(10000 samples x 18 features, 40 environments, 3 known latents)
    """
    check_count(n_latents, "n_latents")
    check_choice(view, "view", ("markers", "images"))
    check_choice(environments, "environments", ("tasks", "interventions"))
    check_choice(targets, "targets", ("hidden", "known"))
    if measurement_noise and view == "images" and dtype == "uint8":
        raise ValueError(
            "Images of whole numbers cannot carry 'measurement_noise'. Use dtype='float32', or no "
            f"noise. Got {measurement_noise} with dtype='uint8'."
        )
    if environments == "tasks":
        check_count(n_tasks, "n_tasks")
        world = make_latent_anm(
            n_latents,
            n_samples=n_samples,
            n_segments=n_tasks,
            graph=graph,
            edge_probability=edge_probability,
            quiet=quiet,
            noise=noise,
            noise_mean=noise_mean,
            noise_scale=noise_scale,
            mixing=_view(n_latents, view, n_markers, resolution, dtype),
            measurement_noise=measurement_noise,
            random_state=random_state,
        )
        return _with_names(world)
    check_range(noise_mean, "noise_mean")
    check_range(noise_scale, "noise_scale", positive=True)
    model_seed, sample_seed = independent_seeds(random_state, 2)
    rng = np.random.default_rng(model_seed)
    scm = make_scm(
        make_graph(graph, n_latents, rng, edge_probability=edge_probability),
        "tanh_sum",
        noise=noise,
        noise_scale=rng.uniform(*noise_scale, size=n_latents),
        noise_mean=rng.uniform(*noise_mean, size=n_latents),
        random_state=rng,
    )
    rounds = [
        Intervention(j, "hard", variance_factor=factor)
        for factor in variance_factors
        for j in range(n_latents)
    ]
    world = simulate(
        scm,
        _view(n_latents, view, n_markers, resolution, dtype),
        n_samples,
        interventions=[None, *rounds],
        measurement_noise=measurement_noise,
        targets=targets,
        random_state=sample_seed,
    )
    return _with_names(world)


def _view(
    n_latents: int,
    view: Literal["markers", "images"],
    n_markers: int,
    resolution: int,
    dtype: Literal["float32", "uint8"],
) -> ArmMarkers | ArmRendering:
    lengths = (LENGTHS + LENGTHS[-1:] * n_latents)[:n_latents]
    if view == "markers":
        return ArmMarkers(lengths, n_markers)
    return ArmRendering(lengths, resolution, dtype)


def _with_names(world: Dataset) -> Dataset:
    """Name latents and features after the joints and links that they belong to."""
    assert world.truth is not None
    truth = replace(world.truth, latent_names=joint_names(world.truth.n_latents))
    names = getattr(truth.mixing, "names", world.names)
    return replace(world, names=names, truth=truth)
