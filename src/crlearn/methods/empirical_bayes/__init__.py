"""Noisy linear measurements with a known graph and targets: EmpiricalBayesCRL."""
