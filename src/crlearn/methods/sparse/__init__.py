"""Latents that switch off: hyperplanes that hold many rows, and flows that make them flat."""
