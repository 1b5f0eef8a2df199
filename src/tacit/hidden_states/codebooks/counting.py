"""What codes tell whatever is coded: as many nats as the logarithm of the codes there are."""

from __future__ import annotations

import math

from tacit._ground.checks import integer
from tacit.guarantees import InformationBound
from tacit.hidden_states.codebooks.certificates import FITTED_APART
from tacit.linalg import MACHINE_EPSILON

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
        nats=nats * (1.0 + 8.0 * MACHINE_EPSILON),
        secret=SECRET,
        evidence="theorem",
        assumptions=(
            f"{many} about each prompt: codes of further rows or releases about it add up",
            FITTED_APART,
        ),
        source="I(X; code) <= H(code) <= ln of the codes there are",
    )
