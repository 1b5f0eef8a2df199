"""Guesses of a learned inverter, run through the public model: the best explanation is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import chi2

from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.frozen import array_value
from tacit._ground.reprs import short_repr
from tacit.attacks.exact.channels import CodeChannel, GaussianChannel
from tacit.attacks.inversion.inverters import Inverter
from tacit.attacks.inversion.learned.inverter import StateInverter
from tacit.attacks.inversion.learned.substitution import ROWS_TOGETHER, substitutes
from tacit.attacks.inversion.result import Right
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import Tokens

PROMPTS_TOGETHER = 128
PARENTS = 4
# most single changes that are also tried together
TOGETHER = 5
# what a generator of torch takes, after each part of the prompts has its own
LARGEST_SEED = 2**40


@array_value()
class VerifiedPrompts:
    """Prompts that explain releases best of all that were tried.

    Attributes:
        tokens: (n, T).
        distances: ``−2 ln P(release | prompt)`` up to a constant, (n,): squared Mahalanobis under
            noise; in units of the rounding of states where there is none; of codes that are
            certain, 0 for the same code, while of randomised reports the threshold is a rule of
            thumb.
        verified: whether the prompt explains the release, (n,): of clean states whether no
            coordinate is off by more than rounding, else whether the distance is within the
            threshold.
        threshold: of the distance, which of clean states is necessary and not enough.
        tried: prompts run through the model for each release, at most.
    """

    tokens: Tokens
    distances: Array
    verified: npt.NDArray[np.bool_]
    threshold: float
    tried: int


@short_repr
@dataclass(frozen=True, eq=False)
class VerifiedInverter(Inverter):
    """Draws guesses from a learned inverter, runs them through the model, and crosses the best.

    Candidates are the likeliest decoding, ``samples`` draws and the nearest prompts of a bank. In
    each round the best few are kept, cut and joined at a random place, and decoded anew from one.
    The best is then changed token by token, while a change makes the release likelier and it is not
    verified: what is tried in each place follows the gradient of the distance by the embedded
    tokens and the network. The prompt whose release is likeliest wins.

    ``verified`` says that a prompt explains its release. Of clean states it is exact: no coordinate
    is off by more than rounding, ``|y_i − h_i| ≤ 2⁻¹⁸ max(|y_i|, median |y|)``, and prompts that
    share a state so closely are told apart by nobody who computes it in another order. Under
    noise it is necessary and not sufficient: the truth is within the χ²_d quantile with chance
    ``passing``, and so is any prompt whose state is close to it. The same holds of codes, where it
    says that the code is the same.

    Args:
        inverter: the learned one.
        bank: public prompts, (m, T); None for none.
        samples: draws.
        neighbours: prompts of the bank.
        rounds: of crossing.
        sweeps: of changes of one token, 0 for none.
        substitutes: tokens tried in each place of the prompt in a sweep.
        passing: chance that the truth passes under noise, of the χ² quantile, in (0, 1).
        seed: of the draws.

    Raises:
        ValueError: a bad setting, or a bank of another length.
    """

    inverter: StateInverter
    bank: Any = None
    samples: int = 48
    neighbours: int = 8
    rounds: int = 6
    sweeps: int = 4
    substitutes: int = 32
    passing: float = 0.999
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.inverter, StateInverter):
            found = type(self.inverter).__name__
            raise ValueError(f"inverter: expected a StateInverter, got {found}")
        integer("samples", self.samples, minimum=1)
        integer("neighbours", self.neighbours, minimum=0)
        integer("rounds", self.rounds, minimum=0)
        integer("sweeps", self.sweeps, minimum=0)
        integer("substitutes", self.substitutes, minimum=1)
        integer("seed", self.seed, minimum=0, maximum=LARGEST_SEED)
        in_interval("passing", self.passing, 0.0, 1.0, open_low=True, open_high=True)
        if self.bank is not None:
            bank = as_tokens("bank", self.bank, ndim=2)
            if bank.shape[1] != self.inverter.length or not len(bank):
                raise ValueError(
                    f"bank: expected prompts of {self.inverter.length} tokens, got shape "
                    f"{tuple(bank.shape)}"
                )
            object.__setattr__(self, "bank", self.inverter.model.check_tokens(bank))

    @property
    def name(self) -> str:  # type: ignore[override]
        """Of the attacker."""
        return f"{self.inverter.name}, verified by the model"

    @property
    def knows(self) -> str:  # type: ignore[override]
        """As of what it verifies."""
        return self.inverter.knows

    def count(self, released: Any) -> int:
        return self.inverter.count(released)

    def select(self, released: Any, rows: Any) -> Any:
        return self.inverter.select(released, rows)

    def emptied(self, released: Any) -> Any:
        return self.inverter.emptied(released)

    def nearest(self, released: Any, bank: Any) -> Tokens:
        return self.inverter.nearest(released, bank)

    def invert(self, released: Any) -> Tokens:
        return self.verify(released).tokens

    def verify(self, released: Any) -> VerifiedPrompts:
        """Return the best explanations of releases, and which of them are verified."""
        given = self.inverter.checked(released)
        parts = [
            self._search(given[start : start + PROMPTS_TOGETHER], start)
            for start in range(0, len(given), PROMPTS_TOGETHER)
        ]
        tokens = np.concatenate([part[0] for part in parts])
        distances = np.concatenate([part[1] for part in parts])
        each = tokens.shape[1] * self.substitutes + TOGETHER
        tried = 1 + self.samples + self.neighbours + self.rounds * self.samples
        tried += self.sweeps * each
        verified = self._explains(given, tokens, distances)
        return VerifiedPrompts(tokens, distances, verified, self.threshold(given), tried)

    def _explains(self, released: Any, tokens: Tokens, distances: Array) -> Right:
        """Return whether each prompt explains its release, (n,)."""
        law = self.inverter.release
        if not law.bare:
            within: Right = distances <= self.threshold(released)
            return within
        device = self.inverter.model.device
        held = self.inverter.candidates(torch.from_numpy(tokens.copy()).to(device))
        found: Right = (np.abs(released - held) <= law.rounding(released)).all(axis=1)
        return found

    def threshold(self, released: Any) -> float:
        """Return the distance² below which a prompt explains its release."""
        channel, width = self.inverter.release.channel, np.asarray(released).shape[-1]
        if isinstance(channel, CodeChannel):
            # a report that its own code cannot give is far beyond this
            return 100.0
        assert isinstance(channel, GaussianChannel)
        if channel.covariance is None:
            # a state of another batch shape: no coordinate is off by more than its rounding
            return float(width)
        bare = width - channel.covariance.rank
        return float(chi2.ppf(self.passing, channel.covariance.rank)) + float(bare)

    def _search(self, released: Any, first: int) -> tuple[Tokens, Array]:
        inverter, count = self.inverter, len(released)
        draws = torch.Generator().manual_seed(self.seed * 1_000_003 + first)
        source = np.random.default_rng([self.seed, first])
        owners = np.repeat(np.arange(count), self.samples)
        drawn = inverter.sample(released[owners], source=draws)
        pool = [inverter.sample(released)[:, None], drawn.reshape(count, self.samples, -1)]
        if self.bank is not None and self.neighbours:
            pool.append(self._neighbours(released))
        tokens = np.concatenate(pool, axis=1)
        distances = self._distances(released, tokens)
        for _ in range(self.rounds):
            tokens, distances = _best(tokens, distances, PARENTS)
            children = self._children(released, tokens, draws, source)
            tokens = np.concatenate([tokens, children], axis=1)
            distances = np.concatenate([distances, self._distances(released, children)], axis=1)
        tokens, distances = _best(tokens, distances, 1)
        return self._swept(released, tokens[:, 0], distances[:, 0])

    def _swept(self, released: Any, tokens: Tokens, distances: Array) -> tuple[Tokens, Array]:
        """Change tokens while that brings a prompt nearer and it does not explain its release."""
        going = np.flatnonzero(~self._explains(released, tokens, distances))
        for _ in range(self.sweeps):
            if not len(going):
                break
            better = []
            for start in range(0, len(going), ROWS_TOGETHER):
                rows = going[start : start + ROWS_TOGETHER]
                found, nearest = self._changes(released[rows], tokens[rows], distances[rows])
                better.append(rows[nearest < distances[rows]])
                tokens[rows], distances[rows] = found, np.minimum(nearest, distances[rows])
            going = np.concatenate(better) if better else going
            if len(going):
                explained = self._explains(released[going], tokens[going], distances[going])
                going = going[~explained]
        return tokens, distances

    def _changes(self, released: Any, tokens: Tokens, distances: Array) -> tuple[Tokens, Array]:
        """Return each prompt with its best change, or several at once, or as it is."""
        count, length = tokens.shape
        rows, places = np.arange(count), np.arange(length)
        tried = substitutes(self.inverter, released, tokens, self.substitutes)
        changed = np.tile(tokens[:, None, None], (1, length, tried.shape[2], 1))
        changed[:, places, :, places] = tried.transpose(1, 0, 2)
        singles = changed.reshape(count, -1, length)
        reached = self._distances(released, singles).reshape(count, length, -1)
        best = np.take_along_axis(tried, reached.argmin(axis=2)[..., None], axis=2)[..., 0]
        # the place where a change gains most, then the first two at once, the first three, …
        order = np.argsort(reached.min(axis=2), axis=1)[:, :TOGETHER]
        joint = np.repeat(tokens[:, None], order.shape[1], axis=1)
        for step, place in enumerate(order.T):
            joint[rows, step:, place] = best[rows, place][:, None]
        several = self._distances(released, joint)
        candidates = np.concatenate([tokens[:, None], singles, joint], axis=1)
        totals = [distances[:, None], reached.reshape(count, -1), several]
        nearest = np.concatenate(totals, axis=1)
        chosen = nearest.argmin(axis=1)
        return candidates[rows, chosen], nearest[rows, chosen]

    def _neighbours(self, released: Any) -> Tokens:
        """Return the nearest prompts of the bank, (n, k, T)."""
        held = [self.inverter.candidates(part) for part in torch.split(self.bank, 4096)]
        totals = np.concatenate(
            [self.inverter.release.distances(released, part) for part in held], axis=1
        )
        kept = min(self.neighbours, totals.shape[1])
        order = np.argpartition(totals, kept - 1, axis=1)[:, :kept]
        found: Tokens = self.bank.cpu().numpy()[order]
        return found

    def _distances(self, released: Any, tokens: Tokens) -> Array:
        """Distances of each release to candidates of its own, (n, k)."""
        count, each, length = tokens.shape
        flat = torch.from_numpy(np.ascontiguousarray(tokens.reshape(-1, length)))
        held = self.inverter.candidates(flat.to(self.inverter.model.device))
        law = self.inverter.release
        rows = [
            law.nearness(released[row : row + 1], held[row * each : (row + 1) * each])
            for row in range(count)
        ]
        return np.concatenate(rows)

    def _children(
        self, released: Any, parents: Tokens, draws: torch.Generator, source: np.random.Generator
    ) -> Tokens:
        """Half joins of two parents at a place, half one parent's end decoded anew before it."""
        count, kept, length = parents.shape
        joined = self.samples // 2
        shape = (count, self.samples)
        rows = np.arange(count)[:, None]
        # a better parent more often: the smaller of two draws
        first = np.minimum(source.integers(kept, size=shape), source.integers(kept, size=shape))
        cut = source.integers(1, length, size=shape) if length > 1 else np.zeros(shape, int)
        front = np.arange(length) < cut[:, :, None]
        ends = parents[rows, first]
        other = parents[rows[:, :1], source.integers(kept, size=shape)]
        children = np.where(front, other, ends)
        fixed = np.where(front, -1, ends)[:, joined:]
        again = self.samples - joined
        owners = np.repeat(np.arange(count), again)
        decoded = self.inverter.sample(
            released[owners], fixed=fixed.reshape(-1, length), source=draws
        )
        children[:, joined:] = decoded.reshape(count, again, length)
        return self._changed(children, joined, source)

    def _changed(self, children: Tokens, joined: int, source: np.random.Generator) -> Tokens:
        """Put a token of another candidate of the same prompt into half of the joins."""
        count, _, length = children.shape
        some = joined // 2
        if some == 0:
            return children
        rows, columns = np.arange(count)[:, None], np.arange(some)[None]
        place = source.integers(length, size=(count, some))
        giver = source.integers(children.shape[1], size=(count, some))
        children[rows, columns, place] = children[rows, giver, place]
        return children


def _best(tokens: Tokens, distances: Array, kept: int) -> tuple[Tokens, Array]:
    """Return the nearest candidates of each row, the nearest first, each prompt once."""
    found, nearest = [], []
    for rows, own in zip(tokens, distances, strict=True):
        distinct, first = np.unique(rows, axis=0, return_index=True)
        order = np.argsort(own[first], kind="stable")[:kept]
        order = np.resize(order, kept)
        found.append(distinct[order])
        nearest.append(own[first][order])
    return np.stack(found), np.stack(nearest)
