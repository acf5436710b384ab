"""Mechanisms that change by segment: likelihood, order and graph, and where they vanish."""
