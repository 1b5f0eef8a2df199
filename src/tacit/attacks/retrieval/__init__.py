"""Which prompt of a bank a released state belongs to."""
