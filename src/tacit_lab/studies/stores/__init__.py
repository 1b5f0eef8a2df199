"""What a thief of a vector store gets, beside what a search finds, by the bits of a code."""
