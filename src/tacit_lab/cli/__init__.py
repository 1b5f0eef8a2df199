"""Commands of the lab, which stand in groups of ``tacit``."""
