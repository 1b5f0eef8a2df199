"""What counting codes gives, whatever is coded: the nats they tell, the numbers that hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit._ground.checks import integer
from tacit._ground.numbers import EPS
from tacit.guarantees import InformationBound
from tacit.hidden_states.codebooks.certificates import FITTED_APART

SECRET = "the prompt of a row"


def information(
    sizes: tuple[int, ...], releases: int = 1, epsilon: float | None = None
) -> InformationBound:
    """Return what T codes tell about a prompt at most, whatever its law: ``T Σ_j ln C_j`` nats.

    A code is one of ``Π_j C_j`` values, so that ``I <= H(code) <= ln Π_j C_j``; a randomised one
    tells no more than its ε either.
    """
    times = integer("releases", releases, minimum=1)
    # math.log of an integer of any size is off by an ulp at most
    nats = times * math.log(math.prod(sizes))
    many = "one code is released" if times == 1 else f"{times} codes are released"
    if epsilon is not None:
        nats = min(nats, times * epsilon)
    return InformationBound(
        nats=nats * (1.0 + 8.0 * EPS),
        secret=SECRET,
        evidence="theorem",
        assumptions=(
            f"{many} about each prompt: codes of further rows or releases about it add up",
            FITTED_APART,
        ),
        source="I(X; code) <= H(code) <= ln of the codes there are",
    )


def code_type(sizes: tuple[int, ...]) -> np.dtype[Any]:
    """Return the smallest little-endian unsigned type that holds every code.

    Example:
        >>> code_type((256, 256)), code_type((257,)), code_type((70_000,))
        (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    most = max(sizes)
    return np.dtype("u1" if most <= 2**8 else "<u2" if most <= 2**16 else "<u4")
