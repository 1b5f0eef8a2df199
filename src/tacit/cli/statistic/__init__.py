"""``tacit statistic``: a table's statistic released under one of three promises, or compared."""
