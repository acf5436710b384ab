"""Noisy measurements with a known graph and targets: StructuralPriorCRL."""
