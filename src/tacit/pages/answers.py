"""What the person behind a record asks of a release, answered from its public part."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.guarantees.adjacency import WORDS, Adjacency
from tacit.guarantees.base import Guarantee
from tacit.guarantees.information import known_alone
from tacit.guarantees.leakage import factor_words
from tacit.guarantees.one_line import TOLD_DELTA, question
from tacit.releases import Release
from tacit.releases.kinds import kind_named
from tacit.text import in_nats, number_up, share_nearest, share_up

# Fields of a release that are no setting of the workflow, in the words of a reader.
FIELDS = {
    "title": "its title",
    "method": "the method",
    "created": "when it was made",
    "guarantees": "the promise",
    "digests": "digests of what the release is about",
    "notes": "the notes below",
}
LARGEST_EXPONENT = 30.0


def record_words(release: Release[Any]) -> str:
    """Return what one record is, as the end of "One record is …"."""
    promise: Any = getattr(release.details, "promise", None)
    # whose column a promise names is drawn, or hidden, with all rows together
    if getattr(promise, "person", None) is not None:
        return f"one {promise.secret_unit} with all rows of that {promise.secret_unit}"
    said = getattr(release.details, "record", "") or kind_named(release.kind).record
    if said:
        return said
    for held in release.guarantees:
        adjacency = getattr(held, "adjacency", "")
        kind = Adjacency.of(adjacency)
        if kind is not None:
            unit = adjacency.removeprefix(WORDS[kind])
            return "a record, as its holder defined it" if unit == "record" else f"one {unit}"
    return "what is named as hidden"


def found_out(release: Release[Any]) -> str:
    """Answer "would I be found out?" in two sentences, every number on the safe side."""
    bound = release.headline
    told: Guarantee | None = release.leakage or bound or next(iter(release.guarantees), None)
    if isinstance(told, RenyiDP):
        told = told.approximate(TOLD_DELTA)
    if isinstance(told, GaussianDP):
        told = told.success()
    if isinstance(told, MaximalLeakage):
        return _by_factor(told)
    if isinstance(told, SuccessBound):
        return _by_success(told, release.success(told) if told is bound else told.success)
    if isinstance(told, ApproximateDP) and told.epsilon < LARGEST_EXPONENT:
        # e^ε to four digits, rounded up; the float itself is off by less than a digit of these
        times = number_up(math.exp(told.epsilon) * (1.0 + 1e-12))
        return (
            f"Whoever reads this concludes anything about you at most {times} times as often as if "
            f"your record {_otherwise(told.adjacency)}, but for a probability of "
            f"{number_up(told.delta)}. This holds whatever else that person knows."
        )
    if isinstance(told, InformationBound):
        return (
            f"This tells at most {in_nats(number_up(told.nats))} about {told.secret}. What was "
            "hard to guess before stays hard to guess, as far as this number says."
        )
    return "No answer in a sentence follows from this promise. Read the proven limits below."


def _otherwise(adjacency: str) -> str:
    """Say what the neighbouring table has in the place of a record."""
    kept = {Adjacency.ADD_REMOVE: "had been left out", Adjacency.REPLACE: "had been another"}
    found = Adjacency.of(adjacency)
    return kept[found] if found else "had not been what it is"


def _by_success(bound: SuccessBound, success: float) -> str:
    blind = share_nearest(bound.prior)
    # the difference of the two numbers as they are printed, so that it can be checked by hand
    printed = (Fraction(one[:-1]) / 100 for one in (share_up(success), blind))
    most, least = printed
    more = share_up(float(most - least))[:-1]
    return (
        f"Whoever tries to find out {question(bound.task)} is right at most {share_up(success)} of "
        f"the time, and {blind} of the time by guessing without this release. Reading it adds at "
        f"most {more} percentage points, if {known_alone('that person', bound.law)}."
    )


def _by_factor(told: MaximalLeakage) -> str:
    return (
        f"Whatever somebody wants to find out about {told.secret}, reading this makes a right "
        f"guess at most {factor_words(told)} times as likely, whatever else that person knows. "
        "What is one of very many stays hard to guess; what is one of a few does not."
    )


def published_beside(release: Release[Any]) -> list[str]:
    """Return what the public part of a release holds beside the noised values."""
    content = release.to_dict()
    numbers = []
    if release.numbers is not None:
        numbers = ["the names of the numbers and the size of the noise in each"]
        if release.numbers.sampling is not None:
            numbers.append("the sampling error of each")
    fields = [words for name, words in FIELDS.items() if content.get(name)]
    # what is left empty, as a field of the holder's is here, tells nothing
    held = [name for name, value in content["details"].items() if value not in (None, [], {})]
    settings = [name.replace("_", " ") for name in held]
    return [*numbers, *fields, f"and the settings of the workflow ({', '.join(settings)})"]
