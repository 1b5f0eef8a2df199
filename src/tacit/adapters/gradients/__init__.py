"""Per-example gradients of linear layers, caught on their way in one backward pass."""
