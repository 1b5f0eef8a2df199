"""Sums and integrals that are never below the truth."""
