"""Information about a secret that can only be sampled."""
