"""Least noise that covers every listed difference."""
