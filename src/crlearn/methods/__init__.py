"""The methods: one file each, all behind the interface of `crlearn.base.BaseCRL`."""

from crlearn.methods._baselines import ICABaseline, PCABaseline, ica_baseline, pca_baseline
from crlearn.methods._beta_vae import BetaVAE, beta_vae
from crlearn.methods._denoising import DenoisingCRL as DenoisingCRL  # a base, for the published
from crlearn.methods._denoising import PosteriorEncoder
from crlearn.methods._image_reduction import reduce_images as reduce_images  # for the bench
from crlearn.methods._ivae import IVAE, ivae
from crlearn.methods._linear_intervention import HARD_GUARANTEE as HARD_INTERVENTION_GUARANTEE
from crlearn.methods._linear_intervention import SOFT_GUARANTEE as SOFT_INTERVENTION_GUARANTEE
from crlearn.methods._linear_intervention import LinearInterventionCRL, linear_intervention_crl
from crlearn.methods._multi_node import HARD_GUARANTEE as HARD_MULTI_NODE_GUARANTEE
from crlearn.methods._multi_node import SOFT_GUARANTEE as SOFT_MULTI_NODE_GUARANTEE
from crlearn.methods._multi_node import MultiNodeCRL, multi_node_crl
from crlearn.methods._polynomial import PolynomialReduction
from crlearn.methods._reduction import Composed as Composed
from crlearn.methods._vade import VaDE, vade
from crlearn.methods.additive._estimator import LatentANM, latent_anm
from crlearn.methods.empirical_bayes._algorithm import ScoreOptions, empirical_bayes_crl
from crlearn.methods.empirical_bayes._estimator import EmpiricalBayesCRL
from crlearn.methods.gaussian._estimator import GaussianPriorCRL, gaussian_prior_crl
from crlearn.methods.nonlinear._estimator import (
    NonlinearInterventionCRL,
    nonlinear_intervention_crl,
)
from crlearn.methods.observational._estimator import GUARANTEE as OBSERVATIONAL_GUARANTEE
from crlearn.methods.observational._estimator import ObservationalCRL, observational_crl
from crlearn.methods.observational._posterior import MechanismNoisePosterior, MechanismsPosterior
from crlearn.methods.sparse._estimator import SparseMixtureCRL, sparse_mixture_crl
from crlearn.methods.structural._estimator import StructuralPriorCRL, structural_prior_crl

# Every estimator class by name; `crlearn.estimators` has those of `crlearn.published`, too.
ESTIMATORS = {
    method.__name__: method
    for method in (
        PCABaseline,
        ICABaseline,
        BetaVAE,
        VaDE,
        IVAE,
        LinearInterventionCRL,
        MultiNodeCRL,
        NonlinearInterventionCRL,
        ObservationalCRL,
        EmpiricalBayesCRL,
        StructuralPriorCRL,
        GaussianPriorCRL,
        LatentANM,
        SparseMixtureCRL,
    )
}

__all__ = [
    "ESTIMATORS",
    "HARD_INTERVENTION_GUARANTEE",
    "HARD_MULTI_NODE_GUARANTEE",
    "IVAE",
    "OBSERVATIONAL_GUARANTEE",
    "SOFT_INTERVENTION_GUARANTEE",
    "SOFT_MULTI_NODE_GUARANTEE",
    "BetaVAE",
    "EmpiricalBayesCRL",
    "GaussianPriorCRL",
    "ICABaseline",
    "LatentANM",
    "LinearInterventionCRL",
    "MechanismNoisePosterior",
    "MechanismsPosterior",
    "MultiNodeCRL",
    "NonlinearInterventionCRL",
    "ObservationalCRL",
    "PCABaseline",
    "PolynomialReduction",
    "PosteriorEncoder",
    "ScoreOptions",
    "SparseMixtureCRL",
    "StructuralPriorCRL",
    "VaDE",
    "beta_vae",
    "empirical_bayes_crl",
    "gaussian_prior_crl",
    "ica_baseline",
    "ivae",
    "latent_anm",
    "linear_intervention_crl",
    "multi_node_crl",
    "nonlinear_intervention_crl",
    "observational_crl",
    "pca_baseline",
    "sparse_mixture_crl",
    "structural_prior_crl",
    "vade",
]
