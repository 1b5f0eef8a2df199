"""The page of promises side by side."""
