"""Attackers who compute the posterior: how a release was drawn, and every candidate, are known."""
