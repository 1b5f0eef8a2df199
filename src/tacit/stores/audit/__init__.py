"""What a thief of a vector store's files gets: vectors, codes, and what was deleted."""
