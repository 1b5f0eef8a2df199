"""Releases that hide which row of any one pair was drawn, from whoever knows every other coin."""
