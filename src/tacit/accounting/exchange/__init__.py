"""Profiles to and from other libraries' accountants."""
