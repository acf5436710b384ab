"""Interventions on unknown sets of latents."""
