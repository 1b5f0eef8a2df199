"""Unit vectors released through a secret random projection: directions, prototypes, queries."""
