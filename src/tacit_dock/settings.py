"""What an operator decides: which submissions are taken, how large, how many, how fast."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tacit._ground.checks import boolean, choice, in_interval, integer, positive

Without: TypeAlias = Literal["refuse", "accept", "quarantine"]
WITHOUT: tuple[Without, ...] = ("refuse", "accept", "quarantine")
IndexKind: TypeAlias = Literal["auto", "exact", "quantised"]
INDEX_KINDS: tuple[IndexKind, ...] = ("auto", "exact", "quantised")


@dataclass(frozen=True, kw_only=True)
class AdmissionPolicy:
    """What happens to a submission that has no guarantee, or one that is too weak.

    Args:
        without: ``"refuse"`` it, ``"accept"`` it, marked, or ``"quarantine"`` it: kept, not found.
        max_epsilon: largest ε of differential privacy, at δ = 1e-5 or less.
        max_advantage: largest advantage 2 P(right) − 1 in guessing a member at even odds.

    Raises:
        ValueError: a limit is out of range; the message names it.

    Example:
        >>> AdmissionPolicy(without="quarantine", max_epsilon=8.0).max_advantage
        1.0
    """

    without: Without = "refuse"
    max_epsilon: float = math.inf
    max_advantage: float = 1.0

    def __post_init__(self) -> None:
        choice("policy", self.without, WITHOUT)
        positive("max_epsilon", self.max_epsilon, allow_inf=True)
        in_interval("max_advantage", self.max_advantage, 0, 1, open_low=True)


@dataclass(frozen=True, kw_only=True)
class DockSettings:
    """Limits of a dock and how it searches.

    Args:
        policy: for submissions without a guarantee that holds.
        metrics: whether ``/metrics`` tells counts and times to anybody who asks.
        private: whether reading and searching need a token too.
        max_specification: bytes of a specification.
        max_model: bytes of a model.
        max_card: bytes of a card.
        max_release: bytes of a release's JSON, which holds the specification in base64.
        min_free: bytes that a submission leaves free on the disk.
        reserve: bytes that are kept free by a file, and given back where a withdrawal needs them.
        max_learnwares: learnwares that one developer may hold.
        max_bytes: bytes that one developer may hold.
        max_revisions: contents that one learnware may have had.
        requests_per_minute: of one developer, or of one address without a token, in each process.
        concurrency: requests answered at a time; what comes beside them is told to come again.
        body_seconds: in which the body of a request must have arrived.
        header_seconds: in which the head of a request must have arrived.
        least_speed: bytes a second, on average, below which a body or a reader is too slow.
        max_arriving: bodies under way at a time.
        max_arriving_of_one: bodies under way at a time from one address.
        max_arriving_bytes: bytes of bodies under way, half of them from one address.
        hosts: names that a request may be for; empty for any.
        proxies: addresses whose X-Forwarded-For and X-Forwarded-Proto are believed.
        index: ``"exact"``, ``"quantised"`` with exact re-ranking, or ``"auto"``: by size.

    Raises:
        ValueError: a limit is out of range; the message names it.

    Example:
        >>> DockSettings(max_card=1000).max_card
        1000
    """

    policy: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    private: bool = False
    metrics: bool = False
    max_specification: int = 8 << 20
    max_model: int = 512 << 20
    max_card: int = 64 << 10
    max_release: int = 12 << 20
    min_free: int = 64 << 20
    reserve: int = 16 << 20
    max_learnwares: int = 1000
    max_bytes: int = 16 << 30
    max_revisions: int = 100
    requests_per_minute: int = 600
    concurrency: int = 64
    body_seconds: float = 600.0
    header_seconds: float = 15.0
    least_speed: int = 8192
    max_arriving: int = 512
    max_arriving_of_one: int = 128
    max_arriving_bytes: int = 4 << 30
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    index: IndexKind = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.policy, AdmissionPolicy):
            raise ValueError(
                f"policy: expected an AdmissionPolicy, got {type(self.policy).__name__}"
            )
        boolean("private", self.private)
        boolean("metrics", self.metrics)
        for name in (
            "max_specification",
            "max_model",
            "max_card",
            "max_release",
            "min_free",
            "reserve",
            "max_learnwares",
            "max_bytes",
            "max_revisions",
            "requests_per_minute",
            "concurrency",
            "least_speed",
            "max_arriving",
            "max_arriving_of_one",
            "max_arriving_bytes",
        ):
            integer(name, getattr(self, name), minimum=1, maximum=None)
        positive("body_seconds", self.body_seconds)
        positive("header_seconds", self.header_seconds)
        for name in ("hosts", "proxies"):
            _check_words(name, getattr(self, name))
        choice("index", self.index, INDEX_KINDS)


def _check_words(name: str, words: object) -> None:
    fine = isinstance(words, tuple) and all(isinstance(word, str) for word in words)
    if not fine or any(not word or set(word) & set(" /,@") for word in words):  # type: ignore[attr-defined]
        raise ValueError(f"{name}: expected a tuple of names or addresses, got {words!r}")
