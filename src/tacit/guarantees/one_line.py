"""A guarantee in one line: its number first, at most fifteen words."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.guarantees.adjacency import WORDS, Adjacency
from tacit.guarantees.base import Guarantee
from tacit.guarantees.differential import (
    ApproximateDP,
    GaussianDP,
    Indistinguishability,
    RenyiDP,
    divergence_name,
)
from tacit.guarantees.information import InformationBound, ResidualPrivacy, SuccessBound
from tacit.guarantees.leakage import MaximalLeakage, factor_words
from tacit.text import in_nats, number_up, share_up

MOST_WORDS = 15
# δ at which a Rényi curve is told.
TOLD_DELTA = 1e-5
# How a task that guesses one of two inputs begins and ends.
TWO, USED = "which of two neighbouring inputs (", ") was used"
# Of the words of a task those that a title can do without.
SPARE = (
    ("any one ", "one "),
    (" of the pool", ""),
    (" of one group", ""),
    (" is in the table", " was used"),
)
# Tasks that are no question, as one.
QUESTIONS = {
    "the membership of one row": "whether one row was drawn",
    "which of the two": "which of two inputs was used",
}


@dataclass(frozen=True)
class OneLine:
    """A title of at most fifteen words.

    Attributes:
        number: what it begins with, rounded up, such as ``"60%"``; a word where there is none.
        words: what the number is.
    """

    number: str
    words: str

    @property
    def text(self) -> str:
        """Both, as one line without a full stop."""
        return f"{self.number}: {self.words}"


def one_line(guarantee: Guarantee) -> OneLine:
    """Return a guarantee in one line: its number, rounded up, and what the number is.

    Args:
        guarantee: of any type.

    Example:
        >>> from tacit.guarantees import SuccessBound
        >>> bound = SuccessBound(
        ...     success=0.6, prior=0.5, task="whether any one row of the pool was drawn",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> one_line(bound).text
        '60%: the most often anyone can be right about whether one row was drawn'
    """
    if isinstance(guarantee, SuccessBound):
        return _guessed(share_up(guarantee.success), guarantee.task)
    if isinstance(guarantee, GaussianDP):
        told = guarantee.success()
        return _guessed(share_up(told.success), told.task)
    if isinstance(guarantee, RenyiDP):
        return one_line(guarantee.approximate(TOLD_DELTA))
    if isinstance(guarantee, ApproximateDP):
        beside = "" if guarantee.delta == 0.0 else f" at δ = {number_up(guarantee.delta)}"
        private = "the differential privacy of"
        return _fitting(
            f"ε = {number_up(guarantee.epsilon)}{beside}",
            f"{private} {_hidden(guarantee.adjacency)}",
            f"{private} any two neighbours",
        )
    if isinstance(guarantee, MaximalLeakage):
        grows = "the most this multiplies anyone's chance of guessing"
        return _fitting(
            f"{factor_words(guarantee)} times",
            f"{grows} anything about {guarantee.secret}",
            f"{grows} what is hidden",
        )
    if isinstance(guarantee, InformationBound):
        told_of = "the most that this tells about"
        return _fitting(
            in_nats(number_up(guarantee.nats)),
            f"{told_of} {guarantee.secret}",
            f"{told_of} what is hidden",
        )
    if isinstance(guarantee, ResidualPrivacy):
        return OneLine(in_nats(number_up(guarantee.leaked)), "the most that this tells")
    if isinstance(guarantee, Indistinguishability):
        return _apart(guarantee)
    return OneLine("A limit", "what it says stands below")


def _guessed(number: str, task: str) -> OneLine:
    """Return what a success is of, by the task that is guessed."""
    asked, most = question(task), "the most often anyone can"
    verb = "be right about" if asked.startswith(("which ", "whether ", "what ")) else "guess"
    return _fitting(number, f"{most} {verb} {asked}", f"{most} be right about what is hidden")


def question(task: str) -> str:
    """Return what is guessed in as few words as say it, a question where it is one.

    Example:
        >>> question("which of two neighbouring inputs (add or remove one person) was used")
        'whether one person was used'
    """
    if task.startswith(TWO) and task.endswith(USED):
        task = _of_two(task.removeprefix(TWO).removesuffix(USED))
    for words, short in SPARE:
        task = task.replace(words, short)
    return QUESTIONS.get(task, task)


def _of_two(adjacency: str) -> str:
    """Return what is guessed about two neighbours as a question."""
    kind = Adjacency.of(adjacency)
    if kind is None:
        asked = adjacency.startswith(("which ", "whether "))
        return adjacency if asked else "which of two neighbours was used"
    unit = adjacency.removeprefix(WORDS[kind])
    return f"{'whether one' if kind is Adjacency.ADD_REMOVE else 'which'} {unit} was used"


def _hidden(adjacency: str) -> str:
    """Return what two neighbours differ in."""
    kind = Adjacency.of(adjacency)
    # "any two that the assumptions allow" says no more than that
    if kind is None:
        return "any two neighbours" if adjacency.startswith("any two that ") else adjacency
    return f"one {adjacency.removeprefix(WORDS[kind])}"


def _apart(guarantee: Indistinguishability) -> OneLine:
    count, name = len(guarantee.references), divergence_name(guarantee.divergence)
    beside = "its reference" if count == 1 else f"any of {count} references"
    largest = number_up(max(guarantee.bounds))
    return _fitting(largest, f"the largest {name} from {beside}", "the largest divergence")


def _fitting(number: str, words: str, otherwise: str) -> OneLine:
    """Return a line of the first words where it is short enough, of the second where it is not."""
    found = OneLine(number, words)
    return found if len(found.text.split()) <= MOST_WORDS else OneLine(number, otherwise)
