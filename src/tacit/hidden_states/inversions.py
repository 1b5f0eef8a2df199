"""What an inverter reached, as the evidence that page and gate read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit._ground.checks import choice, integer, non_negative
from tacit._ground.reprs import short_repr
from tacit.attacks.inversion.result import Inversion, Recovery, successes
from tacit.documents import Envelope, check_known
from tacit.hidden_states.origin import HOLDERS
from tacit.releases import Attack
from tacit.releases.form import Form, Release

ENVELOPE = Envelope("tacit.inversion", 1)
KIND = "hidden-inversion"
SHARES = "Shares of tokens, suffixes and whole prompts that one attacker with one training read " \
    "back: a stronger one may read more."  # fmt: skip
LEARNT = "The attacker learnt from {}: one who learns from texts that are more like the secret " \
    "reads more."  # fmt: skip
OF = {"last": "of ", "all": "of all positions of "}
BEHIND = {"last": "a released state", "all": "the released states of all its positions"}
LEFT_OUT = "Left out, for they stand word for word in what the attacker holds: {} prompts."


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
    return _attacks(found.attacker, found.recovery, found.baselines, found.queries)[:2]


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class InversionEvidence(Release):
    """What an inverter read back from simulated releases of one layer's states.

    It certifies nothing: an attack is evidence of what can be read, never of what cannot.

    Attributes:
        attacker: the inverter.
        knows: what it was told besides the releases and their law.
        mechanism: what was released.
        release: what fixes the release: K, or C of codes that are there, and the SHA-256 of its
            covariance or codewords.
        model: name of the model.
        layer: 1 … L.
        positions: ``"last"``, where each prompt's last state is released alone, or ``"all"``.
        length: T, the most tokens that it reads.
        recovery: what it got right.
        baselines: other guesses, by name: all but ``"nearest"`` without the release of the prompt.
        queries: prompts attacked.
        measured_kl: mean nats that the release of the last state moves the prediction by, those of
            earlier positions read as they are.
        training: sizes, length and seed of its training.
        digests: (what, SHA-256) of model and prompts.
        created: ISO 8601, UTC.
    """

    attacker: str
    knows: str
    mechanism: str
    release: Mapping[str, Any]
    model: str
    layer: int
    positions: str
    length: int
    recovery: Recovery
    baselines: Mapping[str, Recovery]
    queries: int
    measured_kl: float
    training: Mapping[str, Any]
    digests: tuple[tuple[str, str], ...]
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The evidence as page and gate read it."""
        return Form(
            kind=KIND,
            title=f"{self._spelled()} {OF[self.positions]}layer {self.layer} of {self.model}",
            secret=f"the prompt behind {BEHIND[self.positions]}",
            method=self.mechanism,
            guarantees=(),
            attacks=_attacks(self.attacker, self.recovery, self.baselines, self.queries),
            digests=self.digests,
            notes=(
                SHARES,
                HOLDERS,
                *([f"The attacker learnt from {self.knows}."] if self.knows else []),
                *([LEARNT.format(self.training["texts"])] if "texts" in self.training else []),
                *([LEFT_OUT.format(known)] if (known := self.training.get("known")) else []),
            ),
            reproducible=False,
            created=self.created,
        )

    def _spelled(self) -> str:
        """Return the mechanism with its size, as in "isotropic, K = 0.1,"."""
        sizes = ("K", "C")
        told = [f"{name} = {self.release[name]:,g}" for name in sizes if name in self.release]
        words = ", ".join((self.mechanism, *told))
        return f"{words}," if ", " in words else words

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        return ENVELOPE.closed(
            {
                **vars(self),
                "recovery": self.recovery.to_dict(),
                "baselines": {name: held.to_dict() for name, held in self.baselines.items()},
                "release": dict(self.release),
                "training": dict(self.training),
                "digests": [list(pair) for pair in self.digests],
                "form": self.form.to_dict(),
            }
        )

    @staticmethod
    def from_dict(description: Any) -> InversionEvidence:
        """Return the evidence that ``to_dict`` described.

        Raises:
            ValueError: not such a description, or a field is missing or out of range.
        """
        return ENVELOPE.opened("description", description, _read)


BASELINES = ("permuted", "zeroed", "majority", "nearest")
RELEASE = dict.fromkeys(("K", "C", "covariance", "codewords", "codebook"))
TRAINING = dict.fromkeys(
    (
        "kind", "size", "aware", "steps", "loss", "verified", "prompts", "beam", "known", "seed",
        "texts",
    )
)  # fmt: skip


def _read(description: Mapping[str, Any]) -> InversionEvidence:
    beside = ("form", "provenance")
    fields = {name: value for name, value in description.items() if name not in beside}
    for name in ("queries", "layer", "length"):
        fields[name] = integer(name, fields[name], minimum=1)
    for name in ("attacker", "knows", "mechanism", "model", "created"):
        if not isinstance(fields[name], str):
            raise ValueError(f"{name}: expected a text, got {type(fields[name]).__name__}")
    fields["positions"] = choice("positions", fields.get("positions", "last"), tuple(OF))
    fields["measured_kl"] = non_negative("measured_kl", fields["measured_kl"])
    fields["recovery"] = Recovery.from_dict(fields["recovery"])
    fields["baselines"] = {
        str(name): Recovery.from_dict(held) for name, held in fields["baselines"].items()
    }
    fields["digests"] = tuple((str(what), str(value)) for what, value in fields["digests"])
    fields["training"] = dict(fields["training"])
    fields["release"] = dict(fields["release"])
    for name in ("K", "C"):
        if name in fields["release"]:
            fields["release"][name] = non_negative(name, fields["release"][name])
    check_known("release", fields["release"], RELEASE)
    check_known("training", fields["training"], TRAINING)
    for name in fields["baselines"]:
        choice("baselines", name, BASELINES)
    held = len(fields["recovery"].by_position)
    if held > fields["length"] or held != len(fields["recovery"].suffixes):
        raise ValueError(
            f"recovery: expected positions and suffixes alike, at most {fields['length']}, got "
            f"{held} and {len(fields['recovery'].suffixes)}"
        )
    return InversionEvidence(**fields)


def _attacks(
    name: str, recovery: Recovery, baselines: Mapping[str, Recovery], queries: int
) -> tuple[Attack, ...]:
    return tuple(
        Attack(name=name, task=task, success=success, prior=prior, trials=queries)
        for task, success, prior in successes(recovery, baselines)
    )
