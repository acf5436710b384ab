"""Networks as equinox modules, applied with numpy and JAX alike."""

from crlearn.nets._mlp import ACTIVATIONS, MLP, AnyArray, NetworkMap, leaky_relu, tanh

__all__ = ["ACTIVATIONS", "MLP", "AnyArray", "NetworkMap", "leaky_relu", "tanh"]
