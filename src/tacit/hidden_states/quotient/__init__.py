"""A predictive quotient of a hidden state, clipped to a ball and released with noise."""
