"""Texts to learn from and prompts cut from them."""
