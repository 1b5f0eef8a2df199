"""Per-example gradients of one forward and one backward pass, and the noise that they need."""
