"""Learnwares and example tasks made from the data at hand, to fill an empty dock."""
