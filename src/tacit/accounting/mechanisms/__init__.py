"""Exact profiles of mechanisms."""
