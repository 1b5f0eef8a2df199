"""Features of a transcoder: which of them a model's prediction reads, and what they tell."""
