"""Whether stored guarantees are those that settings give, on another machine too."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.guarantees.base import Guarantee

# Computed numbers of a guarantee, and how far quadrature on another machine may move them.
NUMBERS, ELSEWHERE = ("success", "epsilon"), 1e-6


def agree(stored: Sequence[Guarantee], told: Sequence[Guarantee]) -> bool:
    """Return whether guarantees are those told, to within what another machine computes.

    Args:
        stored: read from a file.
        told: worked out again from what they follow from.
    """
    if len(stored) != len(told):
        return False
    for one, other in zip(stored, told, strict=True):
        # computed numbers to what quadrature moves, all words and parameters exactly
        left, right = one.to_dict(), other.to_dict()
        for name in NUMBERS:
            first, second = left.pop(name, 0.0), right.pop(name, 0.0)
            # an infinity is a word
            words = isinstance(first, str) or isinstance(second, str)
            if first != second and (words or abs(first - second) > ELSEWHERE * abs(second)):
                return False
        if left != right:
            return False
    return True
