"""``tacit model``: language models trained where they are used."""
