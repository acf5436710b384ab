"""Mechanisms that change with an auxiliary variable: LatentANM."""
