"""``tacit specification``: describe a model or a task so that it can be found."""
