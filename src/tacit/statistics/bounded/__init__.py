"""Releases that hide that a row is in the table at all: differential privacy, declared bounds."""
