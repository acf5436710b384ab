"""What an intervention changes in a score: one estimator a file."""
