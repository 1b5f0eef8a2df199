"""An audit of a layer as a release: what was measured, and how it is worked out again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tacit._ground.checks import Array, integer
from tacit._ground.frozen import array_value
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.catalogue import mechanism_of, told
from tacit.hidden_states.audit.points import GuessPoint, Point, stated_numbers
from tacit.hidden_states.audit.recommendation import Recommendation, recommend
from tacit.hidden_states.audit.request import Wish
from tacit.hidden_states.codebooks.certificates import naming
from tacit.hidden_states.origin import HOLDERS
from tacit.releases import Attack, Kind, Release
from tacit.releases.release import Better, Use

KIND = "hidden-audit"
UNCHECKED = "what was counted and measured in the prompts, which are not in the file"
# What is left of the prediction, by its field of a point: unit, and what is better.
USES: dict[str, tuple[str, str, Better]] = {
    "agreement": ("agreement", "share", "higher"),
    "top5": ("top5", "share", "higher"),
    "kl": ("kl", "nats", "lower"),
    "kl_median": ("kl-median", "nats", "lower"),
    "kl_95": ("kl-95", "nats", "lower"),
    "jensen_shannon": ("jensen-shannon", "nats", "lower"),
}


@array_value(kw_only=True)
class Audit:
    """What was measured of one layer, and what its release has to keep to.

    Attributes:
        model: name of the language model.
        layer: 1 … L.
        layers: L.
        width: d.
        length: tokens of the longest prompt.
        calibration: public prompts that designs, codebooks and denoisers were fitted on.
        seed: what every draw of the measurement depends on.
        wish: what the release recommended has to keep to.
        points: every release measured.
        clean: what attackers who know more or ask less reach against the clean state, the control.
        fisher_spectrum: eigenvalues of F, largest first, (d,).
        spread_spectrum: eigenvalues of the second moment of prompt differences, largest first.
    """

    model: str
    layer: int
    layers: int
    width: int
    length: int
    calibration: int
    seed: int
    wish: Wish
    points: tuple[Point, ...]
    clean: tuple[GuessPoint, ...] = ()
    fisher_spectrum: Array
    spread_spectrum: Array

    def __post_init__(self) -> None:
        integer("layer", self.layer, minimum=1, maximum=self.layers)
        for name in ("width", "length", "calibration"):
            integer(name, getattr(self, name), minimum=1)
        integer("seed", self.seed, minimum=0, maximum=None)
        if not self.points:
            raise ValueError("points: expected at least one, got none")

    @cached_property
    def recommendation(self) -> Recommendation:
        """The release to choose of those measured, or none, and why."""
        return recommend(self.points, self.wish)


def release_of(
    details: Audit,
    guarantees: Sequence[Guarantee],
    *,
    digests: tuple[tuple[str, str], ...] = (),
    remarks: tuple[str, ...] = (),
) -> Release[Audit]:
    """Return an audit as report, gate and commands read it.

    Args:
        details: what was measured.
        guarantees: of the release recommended; none where none is.
        digests: of the model, the layer and the public prompts.
        remarks: where the measurement is too small for what is asked.
    """
    return Release(
        kind=KIND,
        guarantees=tuple(guarantees),
        details=details,
        reproducible=False,
        digests=digests,
        remarks=remarks,
        **words_of(details),
    )


def words_of(details: Audit) -> dict[str, Any]:
    """Return the fields of an audit that follow from what was measured."""
    point = details.recommendation.point
    place = f"layer {details.layer} of {details.layers} of {details.model}"
    return {
        "title": place if point is None else f"{place}: {told(point)}",
        "secret": "which prompt of the bank was given",
        "method": "none recommended" if point is None else point.mechanism,
        # what was chosen, and how many cells occur, was measured on the prompts
        "withheld": HOLDERS,
        "attacks": () if point is None else _attacks(point),
        "use": () if point is None else _uses(point),
    }


def _attacks(point: Point) -> tuple[Attack, ...]:
    task, prior, trials = naming(point.bank), 1 / point.bank, point.bank
    return tuple(
        Attack(name=one.name, task=task, success=one.top1, prior=prior, trials=trials)
        for one in point.attacks
    )


def _uses(point: Point) -> tuple[Use, ...]:
    return tuple(
        Use(name=name, unit=unit, better=better, measured=measured)
        for field, (name, unit, better) in USES.items()
        if (measured := getattr(point, field)) is not None
    )


def recompute(release: Release[Audit]) -> str:
    """Hold an audit against its points: what they recommend, and what is proven of that.

    Raises:
        ValueError: other words, attacks or use than those of the point recommended, or a guarantee
            that does not follow from it.
    """
    details = release.details
    for name, words in words_of(details).items():
        if getattr(release, name) != words:
            raise ValueError(f"its points give another {name!r}")
    point = details.recommendation.point
    if point is None:
        if release.guarantees:
            raise ValueError("it holds guarantees although nothing is recommended")
        return ""
    if not release.guarantees:
        return ""
    for name, value in stated_numbers(release.guarantees).items():
        if value != getattr(point, name):
            raise ValueError(
                f"the point recommended has {name} {getattr(point, name)!r}, its guarantees "
                f"{value!r}"
            )
    times = details.wish.releases
    wrong = mechanism_of(point).contradiction(point, release.guarantees, times)
    if wrong is not None:
        raise ValueError(wrong)
    return UNCHECKED


AUDITS = Kind(
    name=KIND,
    details=Audit,
    recompute=recompute,
    sections="tacit.hidden_states.audit.page.sections:sections",
    record="one prompt",
)
