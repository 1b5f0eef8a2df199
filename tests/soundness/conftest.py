"""Settings of the soundness suite: examples are the same in every run."""

from hypothesis import settings

settings.register_profile("soundness", derandomize=True, deadline=None, database=None)
settings.load_profile("soundness")
