"""The HTTP interface of a dock."""
