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
==============  ===============================================================================
"""

from crlearn.scores._base import ScoreDifference, check_environments
from crlearn.scores._exact import ExactScores, FunctionScores
from crlearn.scores._gaussian import GaussianScores
from crlearn.scores._make import SCORES, make_score
from crlearn.scores._noise import ZeroTest, random_half, zero_test
from crlearn.scores._ratio import RatioScores
from crlearn.scores._reduced import ReducedScores, all_differences, in_basis
from crlearn.scores._sliced import SlicedScores

__all__ = [
    "SCORES",
    "ExactScores",
    "FunctionScores",
    "GaussianScores",
    "RatioScores",
    "ReducedScores",
    "ScoreDifference",
    "SlicedScores",
    "ZeroTest",
    "all_differences",
    "check_environments",
    "in_basis",
    "make_score",
    "random_half",
    "zero_test",
]
