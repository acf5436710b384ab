"""What all models of the likelihood share."""
