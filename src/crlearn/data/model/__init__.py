"""What a causal world is made of: a graph, a structural causal model on it, and a mixing."""
