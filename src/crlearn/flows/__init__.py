"""Encoders that are invertible by construction, with exact log-determinants, and priors on them.

A method is an encoder plus a prior on its outputs; the objective is the exact likelihood.
"""

from crlearn.flows._coupling import CouplingFlow
from crlearn.flows._fit import FlowFit, fit_flow
from crlearn.flows._gaussian import GaussianObjective
from crlearn.flows._interventional import InterventionalObjective, Parameters
from crlearn.flows._links import Links, learn_links
from crlearn.flows._smooth import SmoothFlow
from crlearn.flows._structure import Assignment, NodeRegressions, Structure, earlier

__all__ = [
    "Assignment",
    "CouplingFlow",
    "FlowFit",
    "GaussianObjective",
    "InterventionalObjective",
    "Links",
    "NodeRegressions",
    "Parameters",
    "SmoothFlow",
    "Structure",
    "earlier",
    "fit_flow",
    "learn_links",
]
