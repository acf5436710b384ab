"""The papers' algorithms as printed, each an estimator with the paper's choices as defaults.

Errors of the papers and of their code are mended, and what differs is said in each module's text.
The methods of the same settings in `crlearn.methods` do better; these stand beside them.
"""

from crlearn.published._contrastive import ContrastiveCRL, contrastive_crl
from crlearn.published._eb_crl import EBCRL, eb_crl
from crlearn.published._latent_anm_vae import LatentANMVAE, latent_anm_vae
from crlearn.published._pdgmm import PDGMM, pdgmm
from crlearn.published.gscale._estimator import GSCALEI, gscale_i
from crlearn.published.layers._estimator import ScoreLayers, score_layers
from crlearn.published.lscale._estimator import LSCALEI, lscale_i
from crlearn.published.umni._estimator import UMNICRL, umni_crl

# Every estimator class by name.
ESTIMATORS = {
    method.__name__: method
    for method in (
        LSCALEI,
        UMNICRL,
        GSCALEI,
        ContrastiveCRL,
        ScoreLayers,
        EBCRL,
        LatentANMVAE,
        PDGMM,
    )
}

__all__ = [
    "EBCRL",
    "ESTIMATORS",
    "GSCALEI",
    "LSCALEI",
    "PDGMM",
    "UMNICRL",
    "ContrastiveCRL",
    "LatentANMVAE",
    "ScoreLayers",
    "contrastive_crl",
    "eb_crl",
    "gscale_i",
    "latent_anm_vae",
    "lscale_i",
    "pdgmm",
    "score_layers",
    "umni_crl",
]
