"""Scores that follow a known graph, and what they say about noisy latents."""
