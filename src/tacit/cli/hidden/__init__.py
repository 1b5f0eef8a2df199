"""``tacit hidden`` and ``tacit audit``."""
