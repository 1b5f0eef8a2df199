"""``tacit dock``: keep learnwares, find one by the specification of a task."""
