"""The score of one environment and its Jacobian: one estimator a file."""
