"""The page of any release, from its form alone."""
