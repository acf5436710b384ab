"""The methods: one file each, all behind the interface of `crlearn.base.BaseCRL`."""

from crlearn.methods._baselines import ICABaseline, PCABaseline, ica_baseline, pca_baseline
from crlearn.methods._denoising import DenoisingCRL as DenoisingCRL  # a base, for the published
from crlearn.methods._empirical_bayes import EmpiricalBayesCRL, ScoreOptions, empirical_bayes_crl
from crlearn.methods._ivae import IVAE, ivae
from crlearn.methods._linear_intervention import (
    LinearInterventionCRL,
    linear_intervention_crl,
    published_lscale_i,
)
from crlearn.methods._multi_node import MultiNodeCRL, multi_node_crl, published_umni_crl
from crlearn.methods._observational import (
    ObservationalCRL,
    observational_crl,
    published_observational_crl,
)

# Every estimator class by name: what files and the command line may ask for.
ESTIMATORS = {
    method.__name__: method
    for method in (
        PCABaseline,
        ICABaseline,
        IVAE,
        LinearInterventionCRL,
        MultiNodeCRL,
        ObservationalCRL,
        EmpiricalBayesCRL,
    )
}

__all__ = [
    "ESTIMATORS",
    "IVAE",
    "EmpiricalBayesCRL",
    "ICABaseline",
    "LinearInterventionCRL",
    "MultiNodeCRL",
    "ObservationalCRL",
    "PCABaseline",
    "ScoreOptions",
    "empirical_bayes_crl",
    "ica_baseline",
    "ivae",
    "linear_intervention_crl",
    "multi_node_crl",
    "observational_crl",
    "pca_baseline",
    "published_lscale_i",
    "published_observational_crl",
    "published_umni_crl",
]
