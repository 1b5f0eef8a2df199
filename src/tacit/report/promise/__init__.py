"""The page of numbers released under a promise about rows or about a table."""
