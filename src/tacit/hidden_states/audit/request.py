"""What is asked of an audit: at what releases are measured, and what the one to choose keeps to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tacit._ground.checks import choice, integer, positive
from tacit._ground.values import Count, Positive, Spelled, Within, value
from tacit.hidden_states.audit.points import DEFAULT_READINGS, NOISE_READINGS
from tacit.hidden_states.codebooks.methods import LEAST_CELL
from tacit.hidden_states.spelling import words_between_commas

if TYPE_CHECKING:
    from tacit.hidden_states.audit.points import Point
    from tacit.models.texts.prefixes import Prefixes


def _numbers(text: str) -> tuple[float, ...]:
    return _each(text, float)


def _integers(text: str) -> tuple[int, ...]:
    return _each(text, int)


def _each(text: str, kind: Any) -> tuple[Any, ...]:
    try:
        return tuple(kind(word) for word in words_between_commas(text))
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None


# Flags that hold several numbers, or several words.
Numbers = Annotated[tuple[float, ...], Spelled("K,K,…", _numbers)]
Integers = Annotated[tuple[int, ...], Spelled("C,C,…", _integers)]
Words = Annotated[tuple[Any, ...], Spelled("WORD,WORD,…", words_between_commas)]

# A mean of fewer has no interval.
Some = Annotated[int, Within(2, ends="[)")]


@value
class SweepRequest:
    """What is measured, and who attacks it; each mechanism takes what it has a use for.

    Args:
        mechanisms: What is released: values, or words such as isotropic or codebook-decision; the
            usual ones when left out.
        kl_budgets: What noise may cost, K = ½ tr(FΣ) in nats; one or several, each above 0.
        codewords: Number of cells of a codebook (C); one or several, from 2 to the number of
            calibration prompts.
        epsilons: ε that noise is scaled to, of Rényi order 2 over nearest neighbours; one or
            several, each above 0.
        readings: How noisy states are read: raw, posterior-mean, wiener or trained under protocol
            A, and posterior-behaviour under protocol B.
        attackers: Attackers that name the prompt behind a noisy state: euclidean, complement,
            weighted or mahalanobis. euclidean and mahalanobis when left out.
        guessers: Attackers that know a part of the prompt, or guess a part of it, such as
            known-prefix. When left out, an audit runs the usual ones and a sweep runs none.

    Example:
        >>> SweepRequest(mechanisms=["isotropic"], kl_budgets=[0.5]).kl_budgets
        (0.5,)
    """

    panel: ClassVar[str] = "Releases measured"

    mechanisms: Words | None = None
    kl_budgets: Numbers = (1.0, 4.0, 16.0)
    codewords: Integers = (64, 256, 1024)
    epsilons: Numbers = ()
    readings: Words = DEFAULT_READINGS
    attackers: Words | None = None
    guessers: Words | None = None

    def _together(self) -> None:
        for name in ("mechanisms", "attackers", "guessers"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise ValueError(f"{name}: expected a list, got the text {given!r}")
            object.__setattr__(self, name, None if given is None else tuple(given))
        checks: dict[str, Callable[[str, Any], Any]] = {
            "kl_budgets": positive, "epsilons": positive, "codewords": integer,
        }  # fmt: skip
        for name, check in checks.items():
            kept = tuple(check(name, one) for one in getattr(self, name))
            object.__setattr__(self, name, kept)
        readings = tuple(choice("readings", one, NOISE_READINGS) for one in self.readings)
        object.__setattr__(self, "readings", readings)


@value
class SweepRun:
    """Where a sweep keeps its points, and on how many processes it measures them.

    Args:
        out: JSON lines to write and to resume from; a point whose settings stand there is not
            measured again.
        workers: Processes that measure one release each, with a model and a layer of their own;
            when left out this one alone, or all workers of a cluster.
        engine: A cluster that measures, as for ``tacit.compute.parallel_map``.
        progress: Called with a label, points done and points in all.
    """

    out: Any = None
    workers: Count | None = None
    engine: str | None = None
    progress: Any = None


@value
class Sizes:
    """How much of everything a sweep measures.

    Args:
        geometry: Calibration prompts from which F and S are measured.
        pairs: Differences in each adjacency set.
        prompts: Held-out prompts on which KL and agreement are measured.
        generated: Of these, how many are continued by 8 tokens; 0 for none.
        queries: Bank prompts whose releases are attacked.
        held_out: Further bank prompts on whose releases attackers are tuned.
        trained: Calibration prompts through which codewords are trained.
        least_cell: Calibration prompts that a cell of a codebook stands for at least.
    """

    geometry: Some = 2000
    pairs: Some = 2000
    prompts: Some = 2000
    generated: Annotated[int, Within(0, ends="[)")] = 500
    queries: Some = 2000
    held_out: Some = 256
    trained: Some = 10_000
    least_cell: Count = LEAST_CELL

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
        # at most a quarter tunes attackers; the others are attacked
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


@value
class Wish:
    """What a release has to keep to, every interval at its bad end.

    Args:
        max_attack: Largest success at naming one of the bank's equally likely prompts. Where a
            theorem bounds every attacker the bound counts, and elsewhere the strongest attack that
            was run.
        min_agreement: Least share of prompts whose likeliest next token stays.
        max_kl: Largest mean KL from the clean prediction, nats; any when left out.
        protocol: What the consumer of the release holds: A, also the clean states of earlier
            positions; B, the release alone.
        releases: Number of releases about one prompt (T), those of its last T positions. For more
            than one only a bound by a theorem counts, as attacks see one release.
        max_gain: Largest gain in success, over guessing without the release, of an attacker who
            knows all earlier tokens or who learnt an attribute from other prompts; None, in Python,
            for any.

    Example:
        >>> Wish(max_attack=0.2)
        Wish(max_attack=0.2)
    """

    panel: ClassVar[str] = "Limits"

    max_attack: Annotated[float, Within(0, 1, "(]")] = 0.1
    min_agreement: Annotated[float, Within(0, 1, "[]")] = 0.5
    max_kl: Positive | None = None
    protocol: Literal["A", "B"] = "A"
    releases: Count = 1
    max_gain: Annotated[float, Within(0, 1, "(]")] | None = 0.5

    def holds(self, point: Point) -> bool:
        """Whether a point keeps to it with every interval at its bad end."""
        return (
            point.protocol == self.protocol
            # an attack sees one release: of several, a theorem alone says something
            and (self.releases == 1 or point.bound is not None)
            and point.leak <= self.max_attack
            and point.agreement.low >= self.min_agreement
            and (self.max_kl is None or point.kl.high <= self.max_kl)
            and self.gains_little(point)
        )

    def gains_little(self, point: Point) -> bool:
        """Whether no attacker weighed gains more than ``max_gain``, its interval at the bad end."""
        return self.max_gain is None or point.gain <= self.max_gain


# What stands for an argument that is left out.
USUAL_REQUEST, USUAL_WISH, HERE = SweepRequest(), Wish(), SweepRun()
