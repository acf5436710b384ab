"""Every estimator by name: what files, studies and the command line may ask for."""

from __future__ import annotations

from crlearn import methods, published
from crlearn.base import BaseCRL, Storable

ESTIMATORS: dict[str, type[BaseCRL]] = {**methods.ESTIMATORS, **published.ESTIMATORS}
# What a pipeline may consist of: with these, what reduces X for them.
STEPS: dict[str, type[Storable]] = {
    **ESTIMATORS,
    "PolynomialReduction": methods.PolynomialReduction,
}
