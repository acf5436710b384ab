"""Networks as equinox modules, their evaluation in blocks, and log-determinants."""

from crlearn.nets._convolutional import ConvolutionalDecoder, ConvolutionalEncoder
from crlearn.nets._evaluate import apply_in_blocks, evaluate
from crlearn.nets._logdet import log_determinants
from crlearn.nets._mlp import ACTIVATIONS, MLP, AnyArray, BentLinear, NetworkMap
from crlearn.nets._positions import PixelDecoder, PositionEncoder

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "AnyArray",
    "BentLinear",
    "ConvolutionalDecoder",
    "ConvolutionalEncoder",
    "NetworkMap",
    "PixelDecoder",
    "PositionEncoder",
    "apply_in_blocks",
    "evaluate",
    "log_determinants",
]
