"""Score differences between environments, from samples: how the papers get to structure.

The score of a density is the slope of its logarithm. What an intervention changes shows in the
score of the reference minus the score of the environment. Each class here has ``fit(X, codes)``,
with environments counted from 0 (the reference), and ``difference(X, environment)``; `make_score`
takes them by name, and a user's own object or function as well.

==============  ===============================================================================
``"gaussian"``  closed form in each environment; exact if all are Gaussian
``"ratio"``     one classifier over all environments; the most accurate where they are not
``"sliced"``    sliced score matching, one network for each environment, as published
`ExactScores`   the truth of a simulated world
`NoisyScores`   the same with errors of a known size
==============  ===============================================================================

Where there is one environment only, its score and the Jacobian of its score say something. Each of
these classes has ``fit(X)`` and ``evaluate(X)``; `make_jacobian` takes them by name, and a user's
own object or function as well.

================  =============================================================================
``"stein"``       Stein's identities with a kernel, in closed form, as published
``"sliced"``      sliced score matching, and the slope of the network, as published
``"flow"``        a density fitted by maximum likelihood, differentiated twice
`ExactJacobians`  the truth of a simulated world
`NoisyJacobians`  the same with errors of a known size
================  =============================================================================

`StructuredScore` follows a known causal graph; with it `Denoiser` takes Gaussian noise off latents.
"""

from crlearn.scores._base import ScoreDifference, check_environments
from crlearn.scores.differences._exact import ExactScores, FunctionScores
from crlearn.scores.differences._gaussian import GaussianScores
from crlearn.scores.differences._make import SCORES, make_score
from crlearn.scores.differences._noise import ZeroTest, random_half, zero_test
from crlearn.scores.differences._noisy import NoisyScores
from crlearn.scores.differences._ratio import RatioScores
from crlearn.scores.differences._reduced import ReducedScores, all_differences, in_basis
from crlearn.scores.differences._sliced import SlicedScores
from crlearn.scores.jacobians._flow import FlowJacobians
from crlearn.scores.jacobians._isotropic import isotropic_subspace, principal_matrices
from crlearn.scores.jacobians._make import (
    JACOBIANS,
    ExactJacobians,
    FunctionJacobians,
    ScoreJacobian,
    make_jacobian,
)
from crlearn.scores.jacobians._noisy import NoisyJacobians
from crlearn.scores.jacobians._sliced import SlicedJacobians
from crlearn.scores.jacobians._stein import SteinJacobians
from crlearn.scores.structured._score import Structure, StructuredScore, score_graph
from crlearn.scores.structured._shifted import ShiftedScore
from crlearn.scores.structured._splines import CubicSplines
from crlearn.scores.structured._tweedie import Denoiser, Posterior, root_of, whitened

__all__ = [
    "JACOBIANS",
    "SCORES",
    "CubicSplines",
    "Denoiser",
    "ExactJacobians",
    "ExactScores",
    "FlowJacobians",
    "FunctionJacobians",
    "FunctionScores",
    "GaussianScores",
    "NoisyJacobians",
    "NoisyScores",
    "Posterior",
    "RatioScores",
    "ReducedScores",
    "ScoreDifference",
    "ScoreJacobian",
    "ShiftedScore",
    "SlicedJacobians",
    "SlicedScores",
    "SteinJacobians",
    "Structure",
    "StructuredScore",
    "ZeroTest",
    "all_differences",
    "check_environments",
    "in_basis",
    "isotropic_subspace",
    "make_jacobian",
    "make_score",
    "principal_matrices",
    "random_half",
    "root_of",
    "score_graph",
    "whitened",
    "zero_test",
]
