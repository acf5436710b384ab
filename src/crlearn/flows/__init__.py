"""Encoders that are invertible by construction, with exact log-determinants."""

from crlearn.flows._coupling import CouplingFlow

__all__ = ["CouplingFlow"]
