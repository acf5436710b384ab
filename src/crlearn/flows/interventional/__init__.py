"""Environments that intervene on latents: the likelihood, targets and order."""
