"""Worlds with known truth: any combination of the parts, those of the papers, broken ones."""
