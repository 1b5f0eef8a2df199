"""The page of an audit of hidden states."""
