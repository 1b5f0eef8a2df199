"""The audit of one training run: canaries that coins put in, and what guessing the coins proves."""
