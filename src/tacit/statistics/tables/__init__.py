"""Tables as they come: files, frames and queries, read by one reader into columns of numbers."""
