"""The commands of ``tacit adapter``."""
