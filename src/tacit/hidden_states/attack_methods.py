"""What is released of a layer's states and which inverter reads it, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from tacit._ground.values import Flag, NonNegative, Positive, Within, value
from tacit.attacks.inversion.learned.presets import InverterFit

CLEAN, ROTATED, TRAINING_FREE = "clean", "rotation", "training-free"


@value
class StateMechanism:
    """What is released of the states of a layer, and of which positions.

    Args:
        mechanism: What is released: clean, codes, behaviour-codes, a Gaussian design, pca(k),
            projection(k), product(m) or rotation; from Python also a codebook.
        kl_budget: K = ½ tr(FΣ) that noise may cost, in nats.
        codewords: C of codes.
        decision_cost: λ of behaviour codes.
        known_pairs: Number of prompts whose stored state the attacker of a rotation knows; as many
            as a state has numbers when left out.
        positions: Whose states are released: last alone, or all, each by itself.

    Example:
        >>> StateMechanism(mechanism="isotropic", kl_budget=0.1).positions
        'last'
    """

    panel: ClassVar[str] = "Release"

    mechanism: Any = CLEAN
    kl_budget: Positive = 1.0
    codewords: Annotated[int, Within(2, ends="[)")] = 1024
    decision_cost: NonNegative = 0.0
    known_pairs: Annotated[int | None, Within(0, ends="[)")] = None
    positions: Literal["last", "all"] = "last"

    def _together(self) -> None:
        if self.known_pairs is not None and self.mechanism != ROTATED:
            raise ValueError(f"known_pairs: expected only beside rotation, got {self.mechanism!r}")

    @property
    def everywhere(self) -> bool:
        """Whether a state of every position is released."""
        return self.positions == "all"


@value
class LayerInverter:
    """Which inverter is put to the releases of a layer.

    Args:
        kind: How prompts are read. right-to-left is usual for the last state, and forward for the
            states of all positions. at-once reads every position by itself. training-free compares
            states of all positions with those of candidates.
        verify: Run guesses through the model and keep the best.
        clean_trained: Learn from clean states, not from releases.
        fit: How a network learns.

    Example:
        >>> LayerInverter(kind="training-free", fit=InverterFit(steps=2))
        Traceback (most recent call last):
        ValueError: steps: expected none beside kind training-free, got one
    """

    panel: ClassVar[str] = "Attacker"

    kind: Literal["right-to-left", "at-once", "forward", "training-free"] | None = None
    verify: Annotated[bool, Flag("--rescore")] = False
    clean_trained: Annotated[bool, Flag("--clean-trained")] = False
    fit: Any = InverterFit()

    def _together(self) -> None:
        if not isinstance(self.fit, InverterFit):
            raise ValueError(f"fit: expected an InverterFit, got {type(self.fit).__name__}")
        if self.kind != TRAINING_FREE:
            return
        given = {name: getattr(self.fit, name) for name in ("minutes", "steps", "checkpoint")}
        for name, held in {"clean_trained": self.clean_trained or None, **given}.items():
            if held is not None:
                raise ValueError(f"{name}: expected none beside kind training-free, got one")

    def check(self, released: StateMechanism) -> None:
        """Refuse what does not read such a release.

        Raises:
            ValueError: guesses at all positions to be verified, or a decoder of all positions where
                the last is released alone.
        """
        if self.verify and released.everywhere:
            raise ValueError("verify: expected only beside positions last, got all")
        if self.kind == TRAINING_FREE and not released.everywhere:
            raise ValueError("kind: expected training-free beside positions all, got last")

    def learning(self, usual: str) -> InverterFit:
        """Return how its network learns, of its own kind, the fit's or the usual one."""
        fit: InverterFit = self.fit
        kind: Any = self.kind or fit.kind or usual
        return replace(fit, kind=kind)


@value
class InversionPrompts:
    """The prompts that are attacked, and what the attacker may learn from.

    Args:
        secret: Prompts whose states are released, (n, T), padded with −1 on the left; those that
            stand in the stream are left out, for nothing is to be learnt from them.
        public: Prompts that the mechanism is fitted on and the attacker holds, (m, T).
        stream: Public tokens that a network learns from, (S,).
        texts: What the stream is, in words for page and gate.
    """

    secret: Any
    public: Any
    stream: Any
    texts: str | None = None


INVERTER = LayerInverter()
