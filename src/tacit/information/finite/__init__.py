"""Exact information about a secret of finitely many values."""
