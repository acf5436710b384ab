"""A latent given its parents: the models that a mechanism may have."""
