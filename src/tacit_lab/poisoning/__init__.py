"""What one malicious source can make a model do, and how little of it is left beside references."""
