"""The points of a sweep, and the file they are kept in: one JSON line each, resumable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import codec
from tacit._ground.checks import choice, in_interval, integer, non_negative, text
from tacit._ground.files import check_writable, read_bytes
from tacit.documents import dumps, loads
from tacit.guarantees import InformationBound, RenyiDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.measured import Interval

if TYPE_CHECKING:
    from tacit.attacks.exact.result import GuessAttack

# what the consumer of each reading holds: A, the clean earlier positions too; B, the release alone
PROTOCOLS = {
    "raw": "A",
    "posterior-mean": "A",
    "wiener": "A",
    "trained": "A",
    "posterior-behaviour": "B",
    "states": "A",
    "table": "B",
}
NOISE_READINGS = ("raw", "posterior-mean", "wiener", "trained", "posterior-behaviour")
DEFAULT_READINGS = ("raw", "posterior-mean", "wiener", "posterior-behaviour")
# of the Rényi divergence that a point states
ORDER = 2.0
# fields of a point that are whole numbers
COUNTS = ("layer", "codewords", "codes", "rank", "bank", "prompts")
# how a line that `PointTable` was writing may begin, so that one cut off is known as its own
OPENED = b'{"key": "'
KEYED = re.compile(OPENED.replace(b"{", rb"\{") + rb'([0-9a-f]{0,24}|[0-9a-f]{24}".*)', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """At what a mechanism is fitted: K, ε or C, or nothing besides its own numbers."""

    kl_budget: float | None = None
    target_epsilon: float | None = None
    codewords: int | None = None

    @classmethod
    def of(cls, point: Point) -> Setting:
        """Return the setting at which a point was measured."""
        # noise scaled to ε says besides what it costs
        budget = point.kl_budget if point.target_epsilon is None else None
        return cls(kl_budget=budget, target_epsilon=point.target_epsilon, codewords=point.codewords)

    @property
    def label(self) -> str:
        """The number and its sign, empty where there is none."""
        signs = {"K": self.kl_budget, "ε": self.target_epsilon}
        known = [f"{sign} = {value:g}" for sign, value in signs.items() if value is not None]
        known += [] if self.codewords is None else [f"C = {self.codewords:,}"]
        return ", ".join(known)


@dataclass(frozen=True, kw_only=True)
class AttackPoint:
    """What one attacker reached against a release, as shares of the releases attacked.

    Attributes:
        name: the attacker.
        top1: the prompt is its first candidate.
        top10: the prompt is among its first 10.
        top100: the prompt is among its first 100.
        last_token: its first candidate ends with the prompt's last token.
        candidates: (m, success among the prompt and m − 1 others of the bank).
        floor: τ it added to the covariance; 0 for none.
    """

    name: str
    top1: Interval
    top10: Interval
    top100: Interval
    last_token: Interval
    candidates: tuple[tuple[int, float], ...]
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("top1", "top10", "top100", "last_token"):
            in_interval(name, getattr(self, name).value, 0.0, 1.0)
        for size, share in self.candidates:
            integer("candidates", size, minimum=1)
            in_interval("candidates", share, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class GuessPoint:
    """One such attack on one release.

    Attributes:
        name: the attacker, which ``read_guesser`` makes a value of.
        task: what it guesses.
        attacker: how.
        knows: what it knows besides the release.
        success: share of right guesses.
        prior: the same without the release.
        gain: success − prior.
        candidates: the most values that a guess chose among.
        covered: share of prompts whose truth was among them; the others count as failures.
        queries: prompts attacked.
        weighed: whether the recommendation weighs it: its success does not depend on the bank.
    """

    name: str
    task: str
    attacker: str
    knows: str
    success: Interval
    prior: Interval
    gain: Interval
    candidates: int
    covered: float
    queries: int
    weighed: bool

    @classmethod
    def of(cls, name: str, attack: GuessAttack, *, weighed: bool) -> GuessPoint:
        """Return what is kept of an attack."""
        ends = {
            "success": attack.interval,
            "prior": attack.prior_interval,
            "gain": attack.gain_interval,
        }
        measured: dict[str, Any] = {
            part: Interval(value=getattr(attack, part), low=low, high=high)
            for part, (low, high) in ends.items()
        }
        copied = ("task", "attacker", "knows", "candidates", "covered", "queries")
        measured |= {part: getattr(attack, part) for part in copied}
        return cls(name=name, weighed=weighed, **measured)

    def __post_init__(self) -> None:
        for name in ("success", "prior", "gain"):
            in_interval(name, getattr(self, name).value, -1.0, 1.0)
        for name in ("candidates", "queries"):
            integer(name, getattr(self, name), minimum=1)
        in_interval("covered", self.covered, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One release mechanism at one setting, as a consumer reads it and as attackers see it.

    Attributes:
        model: name of the language model.
        layer: 1 … L.
        family: which mechanisms are alike, such as ``"gaussian"`` or ``"codebook"``.
        mechanism: its name, which ``read_mechanism`` makes a value of.
        reading: what the consumer does: ``"raw"``, ``"posterior-mean"``, ``"wiener"``,
            ``"trained"`` or ``"posterior-behaviour"`` for a noisy state, ``"states"`` or
            ``"table"`` for a code, or what another mechanism calls it.
        protocol: ``"A"``, the earlier positions stay clean, or ``"B"``, the release alone.
        kl_budget: K = ½ tr(FΣ) spent by design, nats; None for codebooks.
        target_epsilon: Rényi ε of order 2 the noise was scaled to; None otherwise.
        codewords: C asked for; None for Gaussian noise.
        rank: directions that receive noise, or occupied cells (sequences of cells, of several
            releases).
        predicted_kl: ½ tr(FΣ), nats: what the KL is while it is quadratic; None for codebooks.
        kl: mean KL of the prediction from the clean one, nats.
        kl_median: its median; None where there are too few prompts for an interval.
        kl_95: its 95% quantile, for the tail is heavy; likewise.
        jensen_shannon: mean Jensen–Shannon divergence of the two predictions, nats.
        agreement: share of prompts whose likeliest next token stays the same.
        top5: mean share of the 5 likeliest next tokens that stay among them.
        generated: share of the next greedily generated tokens that stay the same, or None.
        attacks: what each attacker reached.
        bound: proven largest success of any attacker to whom the prompts of the bank are equally
            likely, over all releases about one prompt that were asked for; or None.
        information: proven bound on I(prompt; release), nats, or None.
        epsilon_nearest: Rényi ε of order 2 over pairs of nearest neighbours; None for codebooks.
        epsilon_random: the same over random pairs.
        bank: N, candidates.
        prompts: n, held-out prompts on which utility was measured.
        seed: of the sweep.
        draw: seed of this release's own draws.
        seconds: how long the point took.
        guesses: what attackers reached who know more of a prompt or ask less of it.
        codes: C of the codebook as fitted, without cells of too few prompts.
    """

    model: str
    layer: int
    family: str
    mechanism: str
    reading: str
    protocol: str
    kl_budget: float | None
    target_epsilon: float | None
    codewords: int | None
    rank: int
    predicted_kl: float | None
    kl: Interval
    kl_median: Interval | None = None
    kl_95: Interval | None = None
    jensen_shannon: Interval | None = None
    agreement: Interval
    top5: Interval | None = None
    generated: Interval | None
    attacks: tuple[AttackPoint, ...]
    bound: float | None
    information: float | None
    epsilon_nearest: float | None
    epsilon_random: float | None
    bank: int
    prompts: int
    seed: int
    draw: int
    seconds: float
    guesses: tuple[GuessPoint, ...] = ()
    codes: int | None = None

    def __post_init__(self) -> None:
        for name in ("family", "mechanism", "reading"):
            text(name, getattr(self, name))
        known = PROTOCOLS.get(self.reading)
        choice("protocol", self.protocol, ("A", "B") if known is None else (known,))
        if not self.attacks:
            raise ValueError("attacks: expected at least one attack, got none")
        for name in COUNTS:
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), minimum=0, maximum=None)
        for name in ("predicted_kl", "information", "epsilon_nearest", "epsilon_random"):
            if getattr(self, name) is not None:
                non_negative(name, getattr(self, name), allow_inf=True)
        if self.bound is not None:
            in_interval("bound", self.bound, 0.0, 1.0)

    @property
    def cells(self) -> int | None:
        """C as it is: of the codebook as fitted where that is known, else as asked for."""
        return self.codewords if self.codes is None else self.codes

    @property
    def setting(self) -> str:
        """K, ε or C in a few words, C beside what was asked for where cells were removed."""
        if self.cells == self.codewords:
            return Setting.of(self).label
        return f"C = {self.cells:,} of {self.codewords:,}"

    @property
    def label(self) -> str:
        """Mechanism, setting and reading in a few words."""
        setting = self.setting
        return ", ".join(filter(None, (self.mechanism, setting, self.reading, self.protocol)))

    @property
    def best_attack(self) -> AttackPoint:
        """The attacker with the largest top-1 success."""
        return max(self.attacks, key=lambda attack: attack.top1.value)

    @property
    def leak(self) -> float:
        """The bound where there is one, else the largest upper end of an attack's interval.

        That is above what the best of the attackers reaches as surely as its own interval is:
        nothing is lost by taking the largest upper end. The largest lower end has no such law.
        """
        if self.bound is not None:
            return self.bound
        # the maximum of upper ends covers the best attacker at the level of one interval
        return max(attack.top1.high for attack in self.attacks)

    @property
    def gain(self) -> float:
        """The largest upper end of what an attacker gains whose success needs no bank; 0 for none.

        Those are the attackers that a recommendation weighs: they know all earlier tokens, or learn
        an attribute from releases of other prompts.
        """
        return max((guess.gain.high for guess in self.guesses if guess.weighed), default=0.0)

    @property
    def in_middle(self) -> bool:
        """Whether agreement is >= ½ and the bound, or else the best attack, is <= ½."""
        attack = self.best_attack.top1.value if self.bound is None else self.bound
        return self.agreement.value >= 0.5 and attack <= 0.5


class PointTable:
    """Points by key, in memory or in a file of JSON lines that an interruption cannot spoil.

    A line stands in the file whole or is cut off when the file is next opened, so that what an
    interruption loses is the one point being computed.

    Args:
        path: the file; None keeps the points in memory alone.

    Raises:
        ValueError: the file cannot be written, a whole line of it is no point, or it has none and
            begins as no line of a table does; the file is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else check_writable("out", path)
        self._points: dict[str, Point] = {}
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points.values())

    def __contains__(self, key: str) -> bool:
        return key in self._points

    def __getitem__(self, key: str) -> Point:
        return self._points[key]

    def add(self, key: str, point: Point) -> None:
        """Keep a point, in the file first."""
        if self.path is not None:
            line = dumps({"key": key, **codec.write(Point, point)})
            with open(self.path, "a", encoding="utf-8", newline="\n") as stream:
                stream.write(line + "\n")
                stream.flush()
                # what a power cut leaves is whole lines
                os.fsync(stream.fileno())
        self._points[key] = point

    def _read(self, path: Path) -> None:
        content = read_bytes("out", path)
        # a line without its end was being written when the sweep stopped
        whole = content[: content.rfind(b"\n") + 1]
        cut = content[len(whole) :]
        if not (whole or OPENED.startswith(cut) or KEYED.fullmatch(cut)):
            raise ValueError(f"out: {path} holds no table of points, and is left as it is")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = loads(line)
                key = entry.pop("key")
                self._points[str(key)] = codec.read(Point, entry, "point")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"out: line {number} of {path} is no point ({error})") from None
        if cut:
            os.truncate(path, len(whole))


def stated_numbers(guarantees: Iterable[Guarantee]) -> dict[str, Any]:
    """Return what a point says of guarantees: the bound, the nats, ε of order 2 over neighbours."""
    found: dict[str, Any] = dict.fromkeys(("bound", "information", "epsilon_nearest"))
    for held in guarantees:
        if isinstance(held, SuccessBound):
            found["bound"] = held.success
        if isinstance(held, InformationBound):
            found["information"] = held.nats
        if isinstance(held, RenyiDP) and ORDER in held.orders:
            found["epsilon_nearest"] = held.epsilons[held.orders.index(ORDER)]
    return found


def columns(points: Iterable[Point]) -> dict[str, list[Any]]:
    """Return a tidy table: one list per column, one entry per point and attacker.

    Args:
        points: what ``sweep`` returned.

    Returns:
        Columns of plain numbers and words, each interval as ``…_low`` and ``…_high``.

    Example:
        >>> columns([])
        {}
    """
    rows: list[dict[str, Any]] = []
    for point in points:
        shared = {k: v for k, v in vars(point).items() if k not in ("attacks", "guesses")}
        for attack in point.attacks:
            row = _flat(shared)
            own = {k: v for k, v in vars(attack).items() if k not in ("candidates",)}
            row.update({f"attack_{name}": value for name, value in _flat(own).items()})
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Interval):
            row.update({name: value.value, f"{name}_low": value.low, f"{name}_high": value.high})
        else:
            row[name] = value
    return row
