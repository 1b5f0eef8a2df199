"""What became of a round."""

from __future__ import annotations

from dataclasses import dataclass

from tacit._ground.reprs import short_repr


@short_repr
@dataclass(frozen=True, kw_only=True)
class Round:
    """What became of one round.

    Attributes:
        number: rounds applied so far, this one included.
        loss: mean loss of the real batch before the step. It is measured on the data without
            noise: it is for whoever trains, and no part of the release.
        taking_part: how many references differ from the real input in the round.
        energy: E‖noise‖² of what was added to the mean gradient or the parameters, by the Gram
            matrix known; None without one.
        gap: certified relative distance of the energy from the least possible.
    """

    number: int
    loss: float | None
    taking_part: int
    energy: float | None
    gap: float | None
