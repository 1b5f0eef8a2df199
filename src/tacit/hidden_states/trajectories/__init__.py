"""A code in the place of every cached position: what it costs in generation, and what it tells."""
