"""Noisy measurements by an explicit Gaussian prior: GaussianPriorCRL."""
