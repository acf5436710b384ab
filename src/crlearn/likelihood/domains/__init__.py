"""Domains with known graph and targets."""
