"""`make_score`: a score difference by name, or one of one's own."""

from __future__ import annotations

import copy
from typing import Any, cast

from sklearn.base import clone

from crlearn.scores._base import ScoreDifference
from crlearn.scores.differences._exact import FunctionScores
from crlearn.scores.differences._gaussian import GaussianScores
from crlearn.scores.differences._ratio import RatioScores
from crlearn.scores.differences._sliced import SlicedScores

# What `make_score` knows by name.
SCORES: dict[str, type[Any]] = {
    "gaussian": GaussianScores,
    "sliced": SlicedScores,
    "ratio": RatioScores,
}


def make_score(score: Any, random_state: Any = None) -> ScoreDifference:
    """Return a score difference that is not fitted yet.

    Parameters
    ----------
    score
        ``"gaussian"``, ``"sliced"`` or ``"ratio"``; an object with ``fit`` and ``difference``, of
        which a copy is made; or a function ``(X, environment) -> (N, d)`` that returns score of the
        reference minus score of the environment at the rows of X.
    random_state
        Seed of a score that is given by name. An object keeps its own.

    Examples
    --------
    >>> make_score("gaussian")
    GaussianScores()
    """
    if isinstance(score, str) and score in SCORES:
        made = SCORES[score]()
        return made.set_params(random_state=random_state) if _is_random(made) else made
    if isinstance(score, type):
        raise ValueError(
            f"The 'score' must be an object, not a class. Got {score.__name__}; write "
            f"{score.__name__}()."
        )
    if isinstance(score, ScoreDifference):
        return cast(Any, clone(score)) if hasattr(score, "get_params") else copy.copy(score)
    if callable(score):
        return FunctionScores(cast(Any, score))
    hint = " Exact scores need a world: give ExactScores(truth)." if score == "exact" else ""
    raise ValueError(
        f"The 'score' must be one of {', '.join(map(repr, SCORES))}, an object with fit(X, codes) "
        f"and difference(X, environment), or a function of X and environment. Got {score!r} "
        f"instead.{hint}"
    )


def _is_random(score: Any) -> bool:
    return "random_state" in score.get_params()
