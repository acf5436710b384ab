"""Worlds of the papers as they are measured: with noise, and as counts."""
