"""The layers of a graph from the Jacobian of one score."""
