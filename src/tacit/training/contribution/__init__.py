"""How much each source of the data may move a model, and how much it does."""
