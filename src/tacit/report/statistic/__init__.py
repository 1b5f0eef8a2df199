"""The page of a statistic."""
