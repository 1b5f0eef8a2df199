"""Gaussian releases of states and what a reader makes of them."""
