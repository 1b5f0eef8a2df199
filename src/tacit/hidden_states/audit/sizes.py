"""How much of everything a sweep measures."""

from __future__ import annotations

from dataclasses import dataclass

from tacit._ground.checks import integer
from tacit.hidden_states.codebooks.methods import LEAST_CELL
from tacit.models.texts.prefixes import Prefixes

LEAST = {"generated": 0, "least_cell": 1}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything a sweep measures.

    Attributes:
        geometry: calibration prompts from which F and S are measured.
        pairs: differences in each adjacency set.
        prompts: held-out prompts on which KL and agreement are measured.
        generated: of these, how many are continued by 8 tokens; 0 for none.
        queries: bank prompts whose releases are attacked.
        trained: calibration prompts through which codewords are trained.
        least_cell: calibration prompts that a cell of a codebook stands for at least.
        held_out: further bank prompts on whose releases attackers are tuned.
    """

    geometry: int = 2000
    pairs: int = 2000
    prompts: int = 2000
    generated: int = 500
    queries: int = 2000
    held_out: int = 256
    trained: int = 10_000
    least_cell: int = LEAST_CELL

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            integer(name, value, minimum=LEAST.get(name, 2))

    def within(self, prefixes: Prefixes) -> Sizes:
        """Return the sizes that these prompts allow.

        Raises:
            ValueError: the bank has too few prompts to attack and to tune on.
        """
        bank, calibration = len(prefixes.bank), len(prefixes.calibration)
        apart = len(prefixes.held_out)
        if bank < 8:
            raise ValueError(f"prefixes: expected a bank of at least 8 prompts, got {bank}")
        if calibration < 4:
            raise ValueError(f"prefixes: expected at least 4 to calibrate on, got {calibration}")
        if apart < 2:
            raise ValueError(
                f"prefixes: expected at least 2 held-out prompts to measure use on, got {apart}"
            )
        held_out = min(self.held_out, bank // 4)
        prompts = min(self.prompts, apart)
        return Sizes(
            geometry=min(self.geometry, calibration),
            pairs=min(self.pairs, bank),
            prompts=prompts,
            generated=min(self.generated, prompts),
            queries=min(self.queries, bank - held_out),
            held_out=held_out,
            trained=min(self.trained, calibration),
            least_cell=self.least_cell,
        )
