"""The steps of a run, and what of the model and its records they see."""

from __future__ import annotations

from dataclasses import dataclass

from tacit._ground.checks import in_interval, integer


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What a certificate depends on beside the method.

    Args:
        sampling_rate: q in (0, 1], the probability that a record is in a step's sample.
        steps: T >= 1.
        dims: width of every adapted layer's input.
        rank_one: whether a record's gradient has rank one in every layer: one vector each.

    Raises:
        ValueError: an argument is outside its range.
    """

    sampling_rate: float
    steps: int
    dims: tuple[int, ...]
    rank_one: bool = False

    def __post_init__(self) -> None:
        in_interval("sampling_rate", self.sampling_rate, 0.0, 1.0, open_low=True)
        integer("steps", self.steps, minimum=1)
        if not self.dims:
            raise ValueError("dims: expected the width of at least one layer, got none")
        for width in self.dims:
            integer("dims", width, minimum=1)

    @property
    def difference_rank(self) -> int | None:
        """1 where a record changes a matrix of rank one and nothing else; None where unknown."""
        return 1 if self.rank_one and len(self.dims) == 1 else None
