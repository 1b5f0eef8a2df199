"""What an inverter reached, as the evidence that page and gate read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tacit._ground.checks import choice, integer, non_negative
from tacit._ground.reprs import short_repr
from tacit.attacks.inversion.result import Inversion, Recovery, successes
from tacit.hidden_states.origin import HOLDERS, check_digests
from tacit.releases import Attack, Kind, Release
from tacit.releases.recompute import check_rebuilt

KIND = "hidden-inversion"
SHARES = "Shares of tokens, suffixes and whole prompts that one attacker with one training read " \
    "back: a stronger one may read more."  # fmt: skip
LEARNT = "The attacker learnt from {}: one who learns from texts that are more like the secret " \
    "reads more."  # fmt: skip
OF = {"last": "of ", "all": "of all positions of "}
BEHIND = {"last": "a released state", "all": "the released states of all its positions"}
LEFT_OUT = "Left out, for they stand word for word in what the attacker holds: {} prompts."
# The other guesses that a success stands beside; the module that makes them needs torch.
BASELINES = ("permuted", "zeroed", "majority", "nearest")


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


@dataclass(frozen=True, kw_only=True)
class FixedRelease:
    """What fixes a release beside its mechanism.

    Attributes:
        K: nats that noise may cost.
        C: codes that are there.
        covariance: SHA-256 of Σ.
        codewords: SHA-256 of what codes stand for.
        codebook: digest of a codebook that was given, by which encoded stores name it.
    """

    K: float | None = None
    C: int | None = None
    covariance: str | None = None
    codewords: str | None = None
    codebook: str | None = None

    def __post_init__(self) -> None:
        if self.K is not None:
            non_negative("K", self.K)
        if self.C is not None:
            integer("C", self.C, minimum=0)


@dataclass(frozen=True, kw_only=True)
class InverterTraining:
    """How an inverter came about, each None where it has no such thing.

    Attributes:
        kind: of network, or training-free.
        seed: of prompts, draws and training.
        known: prompts left out, for the attacker holds or learnt them.
        size: of the network.
        aware: whether it learnt from releases; else from clean states.
        steps: taken.
        loss: of held-out public windows, nats a token.
        verified: whether its guesses were run through the model.
        prompts: that the probe of a training-free decoder was fitted on.
        beam: prefixes that it keeps.
        texts: what it learnt from, in words.
    """

    kind: str
    seed: int
    known: int
    size: str | None = None
    aware: bool | None = None
    steps: int | None = None
    loss: float | None = None
    verified: bool | None = None
    prompts: int | None = None
    beam: int | None = None
    texts: str | None = None


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class InversionEvidence:
    """What an inverter read back from simulated releases of one layer's states.

    It certifies nothing: an attack is evidence of what can be read, never of what cannot.

    Attributes:
        attacker: the inverter.
        knows: what it was told besides the releases and their law.
        mechanism: what was released.
        release: what fixes the release.
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
    """

    attacker: str
    knows: str
    mechanism: str
    release: FixedRelease
    model: str
    layer: int
    positions: Literal["last", "all"]
    length: int
    recovery: Recovery
    baselines: Mapping[str, Recovery]
    queries: int
    measured_kl: float
    training: InverterTraining

    def __post_init__(self) -> None:
        for name in ("queries", "layer", "length"):
            integer(name, getattr(self, name), minimum=1)
        non_negative("measured_kl", self.measured_kl)
        for name in self.baselines:
            choice("baselines", name, BASELINES)
        read = len(self.recovery.by_position)
        if read > self.length:
            raise ValueError(
                f"recovery: expected at most length, {self.length}, positions, got {read}"
            )

    @property
    def title(self) -> str:
        """The mechanism with its size and where it is, as in "isotropic, K = 0.1, of layer 1"."""
        sizes = (("K", self.release.K), ("C", self.release.C))
        told = [f"{name} = {size:,g}" for name, size in sizes if size is not None]
        words = ", ".join((self.mechanism, *told))
        spelled = f"{words}," if ", " in words else words
        return f"{spelled} {OF[self.positions]}layer {self.layer} of {self.model}"


def inversion_release(
    details: InversionEvidence, digests: tuple[tuple[str, str], ...]
) -> Release[InversionEvidence]:
    """Return the evidence as page and gate read it: attacks, and no guarantee."""
    training = details.training
    return Release(
        kind=KIND,
        title=details.title,
        secret=f"the prompt behind {BEHIND[details.positions]}",
        method=details.mechanism,
        guarantees=(),
        details=details,
        reproducible=False,
        withheld=HOLDERS,
        digests=digests,
        notes=(
            SHARES,
            *([f"The attacker learnt from {details.knows}."] if details.knows else []),
            *([] if training.texts is None else [LEARNT.format(training.texts)]),
            *([LEFT_OUT.format(training.known)] if training.known else []),
        ),
        attacks=_attacks(details.attacker, details.recovery, details.baselines, details.queries),
    )


def recompute(release: Release[InversionEvidence]) -> str:
    """Hold the attacks and the words of an inversion against what was measured.

    Raises:
        ValueError: they are not those of its details, or something is certified.
    """
    check_rebuilt(release, inversion_release(release.details, release.digests))
    check_digests(release, ("model", "layer", "public prompts"))
    return ""


INVERSIONS = Kind(
    name=KIND,
    details=InversionEvidence,
    recompute=recompute,
    record="one prompt",
)


def _attacks(
    name: str, recovery: Recovery, baselines: Mapping[str, Recovery], queries: int
) -> tuple[Attack, ...]:
    return tuple(
        Attack(name=name, task=task, success=success, prior=prior, trials=queries)
        for task, success, prior in successes(recovery, baselines)
    )
