"""The last token of a prompt whose earlier tokens are known."""
