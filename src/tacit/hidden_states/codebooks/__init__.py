"""Codes of states: fitted, read and certified by counting."""
