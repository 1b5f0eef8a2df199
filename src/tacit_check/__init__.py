"""A checker of certificates that shares no code with what made them."""

VERSION = "1.0"
