"""x"""


def compare() -> None:
    """X."""
