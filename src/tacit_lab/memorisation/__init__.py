"""What a language model keeps of its texts: canaries with secrets, exposure, a bound on it."""
