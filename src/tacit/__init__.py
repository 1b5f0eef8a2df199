"""Tacit: decide what a release says, prove it, attack it before you ship it."""

__version__ = "0.1.0"
