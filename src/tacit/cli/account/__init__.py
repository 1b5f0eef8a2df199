"""``tacit account``."""
