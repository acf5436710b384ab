"""Linear mixing, observational data alone: ObservationalCRL."""
