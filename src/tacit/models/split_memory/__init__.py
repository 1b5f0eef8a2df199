"""A language model whose states are a trunk that predicts and a memory beside it."""
