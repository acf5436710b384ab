"""LSCALE-I: linear mixing, one intervention per latent."""
