"""The canary game."""
