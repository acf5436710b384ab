"""Searches over graphs that serve several families."""
