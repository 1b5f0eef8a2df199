"""What the experiments on adapters share."""
