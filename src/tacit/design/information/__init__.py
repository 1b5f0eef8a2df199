"""Least noise within a budget of information."""
