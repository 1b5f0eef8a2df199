"""What was measured of a trained model, by which time its budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.releases.form import Attack, Use


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Attacks, use and notes for a release."""

    attacks: tuple[Attack, ...] = ()
    use: tuple[Use, ...] = ()
    notes: tuple[str, ...] = ()


def attempted(measure: Callable[[], Measured]) -> Measured:
    """Return what is measured, or a note that it could not be: the model must not be lost.

    Args:
        measure: may fail, or be interrupted.

    Example:
        >>> attempted(lambda: Measured(notes=(str(1 / 0),))).notes
        ('Nothing was measured of the model: ZeroDivisionError.',)
    """
    try:
        return measure()
    except (Exception, KeyboardInterrupt) as error:
        return Measured(notes=(f"Nothing was measured of the model: {type(error).__name__}.",))
