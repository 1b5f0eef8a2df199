"""What a training may add to the cross-entropy: values that read a step and return a number."""
