"""A code read at every position: what it costs in generation, and what it tells."""
