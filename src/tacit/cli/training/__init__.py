"""``tacit training``: models that are hardly told from what safe references would have given."""
