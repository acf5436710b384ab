"""Encoders that are invertible by construction, and reductions of X to few numbers."""

from crlearn.flows._autoencoder import Autoencoder, learn_autoencoder
from crlearn.flows._coupling import CouplingFlow
from crlearn.flows._image_autoencoder import ImageAutoencoder, learn_image_autoencoder
from crlearn.flows._reduction import (
    Folds,
    dimension_check,
    fold_check,
    folds,
    intrinsic_dimension,
)

__all__ = [
    "Autoencoder",
    "CouplingFlow",
    "Folds",
    "ImageAutoencoder",
    "dimension_check",
    "fold_check",
    "folds",
    "intrinsic_dimension",
    "learn_autoencoder",
    "learn_image_autoencoder",
]
