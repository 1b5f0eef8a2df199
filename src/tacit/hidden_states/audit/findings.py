"""What an audit of a layer found, as a value that is written and read without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tacit._ground.reprs import short_repr
from tacit.documents import check_known
from tacit.guarantees import guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.guesses import GuessPoint
from tacit.hidden_states.audit.points import AttackPoint, Point, proven
from tacit.hidden_states.audit.recommendation import Recommendation, Wish, recommend
from tacit.hidden_states.codebooks.certificates import naming
from tacit.hidden_states.origin import HOLDERS, Origin, origin_from
from tacit.releases.form import Attack, Form, Release, Use

KIND = "hidden-audit"


@short_repr
@dataclass(frozen=True, kw_only=True, eq=False)
class Audit(Release):
    """What was measured of one layer, and what follows.

    Attributes:
        model: name of the language model.
        layer: 1 … L.
        layers: L.
        width: d.
        length: tokens of the longest prompt.
        calibration: public prompts that designs, codebooks and denoisers were fitted on.
        points: every release measured.
        recommendation: the release to choose, or none.
        guarantees: of the recommended release, none when nothing is recommended.
        fisher_spectrum: eigenvalues of F, largest first, (d,).
        spread_spectrum: eigenvalues of the second moment of prompt differences, largest first.
        notes: where the measurement is too small for what is asked.
        seed: what every draw of the measurement depends on.
        clean: what attackers who know more or ask less reach against the clean state, the control.
        origin: model, layer and prompts by digest; None where they were not recorded.
    """

    model: str
    layer: int
    layers: int
    width: int
    length: int
    calibration: int
    points: tuple[Point, ...]
    recommendation: Recommendation
    guarantees: tuple[Guarantee, ...]
    fisher_spectrum: tuple[float, ...]
    spread_spectrum: tuple[float, ...]
    notes: tuple[str, ...]
    seed: int
    clean: tuple[GuessPoint, ...] = ()
    origin: Origin | None = None

    FORMAT = KIND

    @property
    def releases(self) -> int:
        """T: releases about one prompt that bounds and exact attacks are about."""
        return self.recommendation.wish.releases

    def check(self) -> None:
        """Refuse guarantees that are not those of the release recommended, as far as one can count.

        Raises:
            ValueError: a number of the guarantees does not follow from what was measured.
        """
        point = self.recommendation.point
        if point is None:
            if self.guarantees:
                raise ValueError("audit: nothing is recommended, and something is guaranteed")
            return
        for name, value in proven(self.guarantees).items():
            if self.guarantees and value != getattr(point, name):
                raise ValueError(
                    f"audit: the point recommended has {name} {getattr(point, name)!r}, its "
                    f"guarantees {value!r}"
                )
        found = mechanism_of(point).contradiction(point, self.guarantees, self.releases)
        if found is not None:
            raise ValueError(f"audit: {found}")

    @property
    def form(self) -> Form:
        """What the audit recommends, as report, gate, ledger and commands read it."""
        point = self.recommendation.point
        return Form(
            kind=KIND,
            title=f"layer {self.layer} of {self.layers} of {self.model}"
            if point is None
            else f"layer {self.layer} of {self.layers} of {self.model}, by {point.label}",
            secret="which prompt of the bank was given",
            method="none recommended" if point is None else point.mechanism,
            guarantees=self.guarantees,
            attacks=() if point is None else tuple(_attack(point, one) for one in point.attacks),
            use=() if point is None else _use(point),
            digests=() if self.origin is None else self.origin.digests,
            notes=(*self.notes, HOLDERS),
            publishable=("guarantees",),
            reproducible=False,
            created="",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary that ``from_dict`` reads back."""
        found = self.recommendation
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen = None if found.point is None else self.points.index(found.point)
        return {
            "kind": KIND,
            **content,
            "points": [point.to_dict() for point in self.points],
            "recommendation": {
                "point": chosen,
                "wish": asdict(found.wish),
                "kept": found.kept,
                "reasons": list(found.reasons),
            },
            "guarantees": [guarantee.to_dict() for guarantee in self.guarantees],
            "fisher_spectrum": list(self.fisher_spectrum),
            "spread_spectrum": list(self.spread_spectrum),
            "notes": list(self.notes),
            "clean": [guess.to_dict() for guess in self.clean],
            "origin": None if self.origin is None else self.origin.to_dict(),
            "form": self.form.to_dict(),
        }

    @staticmethod
    def from_dict(content: Any) -> Audit:
        """Return the audit that ``to_dict`` wrote; what it recommends is worked out anew.

        Raises:
            ValueError: it is not an audit, or a field is missing or out of range.
        """
        if not isinstance(content, Mapping) or content.get("kind") != KIND:
            raise ValueError(f"audit: expected an audit of hidden states of kind {KIND!r}")
        try:
            points = tuple(Point.from_dict(entry) for entry in content["points"])
            wish = Wish(**content["recommendation"]["wish"])
            found = Audit(
                **{name: content[name] for name in ("model", "layer", "layers", "width")},
                **{name: content[name] for name in ("length", "calibration", "seed")},
                points=points,
                recommendation=recommend(points, wish),
                guarantees=tuple(guarantee_from_dict(held) for held in content["guarantees"]),
                fisher_spectrum=tuple(map(float, content["fisher_spectrum"])),
                spread_spectrum=tuple(map(float, content["spread_spectrum"])),
                notes=tuple(map(str, content["notes"])),
                clean=tuple(GuessPoint.from_dict(held) for held in content.get("clean", ())),
                origin=origin_from(content.get("origin")),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"audit: a field is missing or malformed: {error}") from None
        check_known("audit", content, found.to_dict(), beside=("provenance",))
        return found


def _attack(point: Point, attack: AttackPoint) -> Attack:
    return Attack(
        name=attack.name,
        task=naming(point.bank),
        success=attack.top1,
        prior=1 / point.bank,
        trials=point.bank,
    )


def _use(point: Point) -> tuple[Use, ...]:
    shares = {"agreement": point.agreement, "top5": point.top5}
    nats = {
        "kl": point.kl,
        "kl-median": point.kl_median,
        "kl-95": point.kl_95,
        "jensen-shannon": point.jensen_shannon,
    }
    kept, changed = (
        {name: held for name, held in measured.items() if held is not None}
        for measured in (shares, nats)
    )
    return (
        *(Use(name=n, unit="share", better="higher", measured=m) for n, m in kept.items()),
        *(Use(name=n, unit="nats", better="lower", measured=m) for n, m in changed.items()),
    )
