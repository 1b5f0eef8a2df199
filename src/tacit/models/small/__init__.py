"""Tacit's own small language model and how it is trained."""
