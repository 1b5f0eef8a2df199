"""Whole prompts read back from what was released of them, and how much of each was right."""
