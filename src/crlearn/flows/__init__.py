"""Encoders that are invertible by construction, with exact log-determinants, and priors on them.

A method is an encoder plus a prior on its outputs; the objective is the exact likelihood. X is
brought to as many numbers as there are latents first, or made flat by the encoder (`OnSurface`).
"""

from crlearn.flows._autoencoder import Autoencoder, learn_autoencoder
from crlearn.flows._codes import leading_components, share_lost, white
from crlearn.flows._coupling import CouplingFlow
from crlearn.flows._densities import Densities
from crlearn.flows._fit import fit_flow
from crlearn.flows._flattening import Flattening, learn_flattening
from crlearn.flows._gaussian import GaussianObjective
from crlearn.flows._image_autoencoder import ImageAutoencoder, learn_image_autoencoder
from crlearn.flows._links import Links, learn_links
from crlearn.flows._reduction import (
    Folds,
    dimension_check,
    fold_check,
    folds,
    intrinsic_dimension,
)
from crlearn.flows._smooth import SmoothFlow
from crlearn.flows._spike_slab import SpikeSlab, SpikeSlabObjective, SpikeSlabParameters
from crlearn.flows._surface import OnSurface, SurfaceFlow
from crlearn.flows.interventional._objective import InterventionalObjective, Parameters
from crlearn.flows.interventional._structure import Assignment, NodeRegressions, Structure, earlier
from crlearn.flows.segments._objective import SegmentObjective, SegmentParameters
from crlearn.flows.segments._orders import MechanismKind, SegmentRegressions, functions_of_one
from crlearn.flows.segments._vanishing import SegmentFunctions, Vanishing, functions_of, vanishing

__all__ = [
    "Assignment",
    "Autoencoder",
    "CouplingFlow",
    "Densities",
    "Flattening",
    "Folds",
    "GaussianObjective",
    "ImageAutoencoder",
    "InterventionalObjective",
    "Links",
    "MechanismKind",
    "NodeRegressions",
    "OnSurface",
    "Parameters",
    "SegmentFunctions",
    "SegmentObjective",
    "SegmentParameters",
    "SegmentRegressions",
    "SmoothFlow",
    "SpikeSlab",
    "SpikeSlabObjective",
    "SpikeSlabParameters",
    "Structure",
    "SurfaceFlow",
    "Vanishing",
    "dimension_check",
    "earlier",
    "fit_flow",
    "fold_check",
    "folds",
    "functions_of",
    "functions_of_one",
    "intrinsic_dimension",
    "leading_components",
    "learn_autoencoder",
    "learn_flattening",
    "learn_image_autoencoder",
    "learn_links",
    "share_lost",
    "vanishing",
    "white",
]
