"""The canary game: whether a model's training data held one record, guessed from the model."""
