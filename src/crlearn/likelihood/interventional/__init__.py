"""Interventions on single latents."""
