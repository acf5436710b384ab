"""The methods: one file each, all behind the interface of `crlearn.base.BaseCRL`."""

from crlearn.methods._baselines import ICABaseline, PCABaseline, ica_baseline, pca_baseline
from crlearn.methods._ivae import IVAE, ivae

__all__ = ["IVAE", "ICABaseline", "PCABaseline", "ica_baseline", "ivae", "pca_baseline"]
