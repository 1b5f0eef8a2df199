"""Noise of many steps that is tied together, so that most of it cancels in what is trained."""
