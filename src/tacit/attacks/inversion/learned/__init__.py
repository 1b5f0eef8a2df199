"""Inverters that learn from public prompts to read one released state."""
