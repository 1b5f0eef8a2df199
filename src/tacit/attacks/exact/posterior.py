"""The exact posterior over a bank, for any label of its prompts and whatever else is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, in_interval, vector
from tacit._ground.values import value
from tacit.attacks.exact.channels import Channel, as_array
from tacit.attacks.exact.result import GuessAttack
from tacit.attacks.retrieval.bank import Indices, indices

TIES = 1e-12
ENTRIES_TOGETHER = 4_000_000


@value
class BankQuestion:
    """What an attacker who holds a bank guesses of the prompt behind a release, and is told of it.

    Args:
        task: (N,) what is guessed of a candidate; the candidate itself when None.
        known: (N,) what the attacker is told of the prompt, such as its first token; nothing when
            None.
        names: What ``task`` and ``known`` are called in results.

    Raises:
        ValueError: not two names.

    Example:
        >>> BankQuestion(names=("the topic", "its first token")).names[1]
        'its first token'
    """

    task: Any = None
    known: Any = None
    names: tuple[str, str] = ("the prompt", "")

    def _together(self) -> None:
        if isinstance(self.names, str) or len(self.names) != 2:
            raise ValueError(
                f"names: expected two, of the task and of what is known, got {self.names!r}"
            )


WHICH_PROMPT = BankQuestion()


def bank_posterior(
    bank: ArrayLike,
    released: ArrayLike,
    truth: ArrayLike,
    channel: Channel,
    *,
    asked: BankQuestion = WHICH_PROMPT,
    weights: ArrayLike | None = None,
    leakage_factor: float | None = None,
    confidence: float = 0.95,
) -> GuessAttack:
    """Guess a label of the prompt behind each release, by the exact posterior over a bank.

    ``P(l | y, k) ∝ Σ_{j: task_j = l, known_j = k} p_j P(y | j)``: the attacker holds the bank and
    the channel, and is told ``known`` of the prompt, which narrows the candidates. No attacker who
    is told as much is right more often when prompts are drawn by these weights.

    Args:
        bank: what the channel holds of every candidate, clean states (N, d) or codes (N,).
        released: (n, d) or (n,), what was released.
        truth: (n,) the candidate behind each release.
        channel: how a release was drawn.
        asked: what is guessed of a candidate, and what the attacker is told of it besides.
        weights: (N,) probabilities > 0 up to a factor; uniform when None.
        leakage_factor: of the release, where one is certified, to stand beside the result.
        confidence: coverage of each interval, in (0, 1).

    Returns:
        The attack. Where the channel has one release for each candidate and every candidate was
        attacked once, all equally likely, the shares are exact and intervals have no width.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.attacks.exact.channels import CodeChannel
        >>> codes, first = np.array([0, 0, 1, 1]), np.array([7, 8, 7, 9])
        >>> asked = BankQuestion(known=first)
        >>> told = bank_posterior(codes, codes, range(4), CodeChannel(), asked=asked)
        >>> told.prior, told.success
        (0.75, 1.0)

    Source: Bayes' rule.
    """
    if not isinstance(channel, Channel):
        raise ValueError(f"channel: expected a Channel, got {type(channel).__name__}")
    if not isinstance(asked, BankQuestion):
        raise ValueError(f"asked: expected a BankQuestion, got {type(asked).__name__}")
    task, known = asked.task, asked.known
    held = channel.checked("bank", bank)
    seen = channel.checked("released", released, released=True)
    if np.shape(held)[1:] != np.shape(seen)[1:]:
        raise ValueError(
            f"released: expected {np.shape(held)[1:]} numbers each, got {np.shape(seen)[1:]}"
        )
    count = len(held)
    own = indices("truth", truth, size=len(seen), below=count)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    labels = np.arange(count) if task is None else grouped("task", task, count)
    groups = np.zeros(count, dtype=np.int64) if known is None else grouped("known", known, count)
    # blind: the likeliest label of each group of what is known, before any release is seen
    logs = np.zeros(count) if weights is None else _log_prior(weights, count)
    masses = np.exp(logs)
    blind = by_masses(groups, labels, masses)
    if channel.deterministic and seen.ndim == 1 and bool((seen == held[own]).all()):
        # what is known besides is which candidates share the code
        both = np.unique(np.stack([groups, held]), axis=1, return_inverse=True)[1].reshape(-1)
        found = by_masses(both, labels, masses)
        columns: tuple[Array, Indices, Indices] = (found[0][own], found[1][own], found[2][own])
    else:
        columns = _by_likelihood(held, seen, own, channel, labels, groups, logs)
    hits, better, tied = columns
    every = channel.deterministic and weights is None
    return GuessAttack.of(
        hits=hits, blind=blind[0][own], better=better, tied=tied, confidence=level,
        exact=every and len(own) == count and bool((np.sort(own) == np.arange(count)).all()),
        task=asked.names[0], attacker="exact posterior over the bank", knows=asked.names[1],
        candidates=_most(groups, labels), covered=1.0, leakage_factor=leakage_factor,
    )  # fmt: skip


def _by_likelihood(
    held: Any,
    seen: Any,
    own: Indices,
    channel: Channel,
    labels: Indices,
    groups: Indices,
    logs: Array,
) -> tuple[Array, Indices, Indices]:
    """Rank the labels within the group of each release by their posterior masses."""
    hits, better, tied = np.empty(len(seen)), *(np.empty(len(seen), dtype=np.int64) for _ in "bt")
    # what is known narrows the candidates to a group: no other has a posterior
    for group in np.unique(groups[own]):
        members = np.flatnonzero(groups == group)
        asked = np.flatnonzero(groups[own] == group)
        local = np.unique(labels[members], return_inverse=True)[1].reshape(-1)
        wanted = local[np.searchsorted(members, own[asked])]
        rows = max(1, ENTRIES_TOGETHER // len(members))
        for start in range(0, len(asked), rows):
            part = asked[start : start + rows]
            joint = logs[members] + channel.log_likelihood(seen[part], held[members])
            found = standing(log_masses(joint, local), wanted[start : start + rows])
            hits[part], better[part], tied[part] = found
    return hits, better, tied


def by_masses(groups: Indices, labels: Indices, weights: Array) -> tuple[Array, Indices, Indices]:
    """Return what ``standing`` does of every candidate whose group is known and nothing else."""
    pairs, place = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    masses = np.bincount(place, weights)
    # equal sums that round differently are equal
    rank = np.unique(np.round(masses / masses.max(), 12), return_inverse=True)[1].reshape(-1)
    # sorted by group and mass together: how many of a group lie above is a difference of places
    keys = pairs[0] * (int(rank.max()) + 1) + rank
    ordered = np.sort(keys)
    ends = np.searchsorted(np.sort(pairs[0]), pairs[0], side="right")
    above = np.searchsorted(ordered, keys, side="right")
    better = (ends - above)[place].astype(np.int64)
    tied = (above - np.searchsorted(ordered, keys))[place].astype(np.int64) - 1
    return np.where(better == 0, 1.0 / (1.0 + tied), 0.0), better, tied


def _most(groups: Indices, labels: Indices) -> int:
    """The largest number of labels in a group."""
    pairs = np.unique(np.stack([groups, labels]), axis=1)
    return int(np.bincount(pairs[0]).max())


def standing(scores: Array, truth: Indices) -> tuple[Array, Indices, Indices]:
    """Return each truth's chance of being guessed, how many are ahead and how many tied with it.

    Args:
        scores: (n, m), larger is likelier.
        truth: (n,) columns; −1 where the truth is not among them.
    """
    inside = truth >= 0
    own = scores[np.arange(len(scores)), np.maximum(truth, 0)][:, None]
    # a tie is a tie although the sums round differently; what cannot be is a tie with its like
    slack = TIES * np.where(np.isfinite(own), 1.0 + np.abs(own), 0.0)
    better = (scores > own + slack).sum(axis=1)
    tied = (scores >= own - slack).sum(axis=1) - better - 1
    better = np.where(inside, better, scores.shape[1]).astype(np.int64)
    tied = np.where(inside, tied, 0).astype(np.int64)
    return np.where(better == 0, 1.0 / (1.0 + tied), 0.0), better, tied


def log_masses(joint: Array, labels: Indices) -> Array:
    """Return ``ln Σ_{j: labels_j = l} exp(joint_ij)`` of every label 0 … K − 1, (n, K)."""
    if len(joint[0]) == int(labels.max()) + 1:
        return joint[:, np.argsort(labels)]
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(int(labels.max()) + 1))
    ordered = joint[:, order]
    # each label by its own largest, so that none underflows
    peaks = np.maximum.reduceat(ordered, starts, axis=1)
    sizes = np.diff([*starts, len(order)])
    sums = np.add.reduceat(np.exp(ordered - np.repeat(peaks, sizes, axis=1)), starts, axis=1)
    masses: Array = peaks + np.log(sums)
    return masses


def grouped(name: str, values: Any, count: int) -> Indices:
    """Return labels, whatever they are, as integers 0 … K − 1."""
    found = as_array(name, values)
    if found.shape != (count,):
        raise ValueError(f"{name}: expected {count} labels, got shape {found.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"{name}: expected labels, got NaN or infinity")
    if found.dtype.kind == "O":
        found = np.array([str(value) for value in found])
    labels: Indices = np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return labels


def _log_prior(weights: Any, count: int) -> Array:
    values = vector("weights", weights, size=count)
    if values.min() <= 0:
        raise ValueError("weights: expected numbers > 0, got other values")
    # by logarithms, for a sum overflows and a quotient underflows where no weight does
    logs: Array = np.log(values) - np.log(values.max())
    total: float = np.exp(logs).sum()
    logs -= np.log(total)
    return logs
