"""The commands of ``tacit attack``."""
