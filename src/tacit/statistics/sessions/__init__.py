"""One secret draw, or one table, through many queries under one budget."""
