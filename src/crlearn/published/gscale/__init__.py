"""GSCALE-I: general mixing, two hard interventions per latent."""
