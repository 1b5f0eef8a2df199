"""Attributes of prompts, and attackers who learn to read them off releases."""
