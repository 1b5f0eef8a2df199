"""What an inverter reached, as a release lists the attacks on it."""

from __future__ import annotations

from tacit.attacks.inversion.result import Inversion
from tacit.releases import Attack


def inversion_attacks(found: Inversion) -> tuple[Attack, ...]:
    """Return the attacks on the whole prompt and on its last token, for the form of a release.

    The prior of each is the most that a baseline is right, None where none was measured.

    Args:
        found: what ``attack_inversion`` returned.

    Raises:
        ValueError: something else was given.

    Example:
        >>> from tacit.attacks import Inversion, Recovery
        >>> rows = [[1, 2], [3, 4]]
        >>> recovery = Recovery.of(rows, rows)
        >>> found = Inversion(
        ...     attacker="inverter", knows="", recovery=recovery, baselines={}, queries=2,
        ...     known=0, removed=True, seconds=0.1, tokens=rows, truth=rows,
        ... )
        >>> [attack.task for attack in inversion_attacks(found)]
        ['the whole prompt', 'the last token']
    """
    if not isinstance(found, Inversion):
        raise ValueError(f"found: expected an Inversion, got {type(found).__name__}")
    return tuple(
        Attack(name=found.attacker, task=task, success=success, prior=prior, trials=found.queries)
        for task, success, prior in found.successes()
    )
