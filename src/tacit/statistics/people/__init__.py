"""Statistics of people: all rows of one person are clipped together and hidden together."""
