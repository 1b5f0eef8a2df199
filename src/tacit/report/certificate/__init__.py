"""What may be published of a released statistic, on one page."""
