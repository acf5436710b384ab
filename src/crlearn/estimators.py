"""Every estimator by name: what files, studies and the command line may ask for."""

from __future__ import annotations

from crlearn import methods, published
from crlearn.base import BaseCRL

ESTIMATORS: dict[str, type[BaseCRL]] = {**methods.ESTIMATORS, **published.ESTIMATORS}
