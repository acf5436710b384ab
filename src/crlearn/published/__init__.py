"""The papers' algorithms as printed, with what had to be mended said in each file.

Each is an estimator of its own, with the paper's choices as defaults, and stands beside ours in
every study.
"""

from crlearn import methods
from crlearn.published._eb_crl import EBCRL, eb_crl

# Every estimator class by name, ours and the published ones: what files, studies and the command
# line may ask for.
ESTIMATORS = {**methods.ESTIMATORS, "EBCRL": EBCRL}

__all__ = ["EBCRL", "ESTIMATORS", "eb_crl"]
