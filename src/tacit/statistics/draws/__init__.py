"""Releases that hide everything about what was drawn, up to so many nats."""
