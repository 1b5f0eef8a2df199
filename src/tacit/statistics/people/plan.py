"""A query of sums over persons: what is decided before noise is drawn, and the draw."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import MembershipAttack, group_attack
from tacit.covariance import Diagonal
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.numbers import OPEN
from tacit.statistics.bounded.contributions import Contributions, Law, farthest_distance, reach
from tacit.statistics.bounded.plan import (
    ATTACKED_ROWS,
    ATTACKER,
    NOMINAL_ROWS,
    errors_from_sums,
    exact_errors,
    nominal_rows,
)
from tacit.statistics.cost import frame_of
from tacit.statistics.people.consistent import Consistency
from tacit.statistics.people.contributors import Contributors
from tacit.statistics.people.noise import LAPLACE, PeopleNoise, gaussian_noise, laplace_noise
from tacit.statistics.people.quantiles import QuantileChooser
from tacit.statistics.people.radius import RadiusSearch
from tacit.statistics.people.vectors import PersonMetric
from tacit.statistics.queries.statistic import NORMAL_95

# What a sum that is told for nothing is priced at, relative to the least price of another.
FLOOR = 1e-6
# 95% of Laplace's errors lie within so many deviations; a sum of these has lighter tails there than
# one of them with its deviation.
LAPLACE_95 = math.log(20.0) / math.sqrt(2.0)
# Radius, in rows, of which errors are told before one is found.
NOMINAL_RADIUS = 8.0


@dataclass(frozen=True, kw_only=True)
class PeopleBudget:
    """What the noise may tell, and by which law.

    Attributes:
        pure: whether it is ε of discrete Laplace noise and the sum of sizes is clipped; else μ of
            discrete Gaussian noise, and the Euclidean length.
        level: ε, or μ.
        adjacency: which tables are neighbours.
    """

    pure: bool
    level: float
    adjacency: Adjacency

    @property
    def norm(self) -> int:
        """1 where sizes are summed, 2 for Euclidean length."""
        return 1 if self.pure else 2

    def noise(self, metric: PersonMetric, radius: int) -> PeopleNoise:
        """Return the least noise for vectors of at most this length."""
        farthest = radius * int(reach(self.adjacency))
        build = laplace_noise if self.pure else gaussian_noise
        return build(metric, farthest, self.level)


@dataclass(frozen=True, eq=False)
class PeoplePlan:
    """Everything decided before the draw, from declared values alone.

    Attributes:
        added: what a row can add.
        metric: in which a person's vector is measured.
        persons: what they add, not clipped; secret.
        budget: of the noise.
        radius: in units of the coordinates; None where it will be found.
        search: finds it.
        chooser: of the quantiles among the numbers.
        errors: (d,) of the numbers of ``NOMINAL_ROWS`` rows spread over the bounds.
        consistency: what of the numbers is made to add up; None for nothing.
    """

    added: Contributions = field(repr=False)
    metric: PersonMetric = field(repr=False)
    persons: Contributors = field(repr=False)
    budget: PeopleBudget
    radius: int | None
    search: RadiusSearch | None
    chooser: QuantileChooser | None
    errors: Array
    consistency: Consistency | None = None

    @property
    def sampling(self) -> None:
        """Not known: it would have to be read from the table."""
        return None

    def read(self) -> None:
        """Ask of the persons what the draw needs, so that it cannot fail for want of it.

        Raises:
            ValueError: the engine that has their rows refuses.
        """
        if self.chooser is not None:
            self.chooser.read()
        if self.search is not None and self.radius is None:
            self.search.count(self.metric, self.persons, self.budget.norm)
        elif self.radius is not None:
            self.persons.total(self.metric, self.radius, self.budget.norm)

    def found(self, rng: RandomSource) -> PeoplePlan:
        """Return the plan with its radius, which is drawn where none was declared."""
        if self.radius is not None or self.search is None:
            return self
        radius = self.search.find(self.metric, self.persons, self.budget.norm, rng)
        return replace(self, radius=radius)

    def draw(self, rng: RandomSource) -> tuple[Array, Array]:
        """Return the numbers, and their errors as the released sums give them."""
        assert self.radius is not None, "found() comes first"
        noise = self.budget.noise(self.metric, self.radius)
        totals = self.persons.total(self.metric, self.radius, self.budget.norm)
        published = self.metric.restore(noise.release(totals, rng))
        numbers = self.added.query.round_whole(self.added.finish(published, None))
        errors = told_errors(self.added, noise, published)
        if self.consistency is not None:
            numbers, errors = self._mended(noise, published, numbers, errors)
        if self.chooser is not None:
            # what is chosen takes the places that no sum fills
            places = self.chooser.places
            numbers[places], errors[places] = self.chooser.draw(rng)
        return numbers, errors

    def _mended(
        self, noise: PeopleNoise, published: Array, numbers: Array, errors: Array
    ) -> tuple[Array, Array]:
        """Return the numbers and errors, those that shall add up as they do."""
        assert self.consistency is not None, "something shall add up"
        restored, numbers = self.added.restore(published), numbers.copy()
        at = {one: place for place, one in enumerate(self.added.query.terms)}
        for table in self.consistency.tables:
            if table.whole:
                # counts as the noise left them, negative ones too
                numbers[list(table.places)] = restored[[at[one] for one in table.terms]]
        spreads = exact_errors(self.added, noise, None)
        widths = LAPLACE_95 if noise.law == LAPLACE else NORMAL_95
        return self.consistency.mend(numbers, spreads, errors, widths)

    def numbers_here(self) -> tuple[Array, Array]:
        """Return the numbers (d,) without noise, of persons as they are and clipped.

        For the holder alone, as are ``errors_here``.
        """
        whole, kept = (
            self.added.finish(self.metric.restore(one), None) for one in self._totals_here()
        )
        return whole, kept

    def errors_here(self) -> Array:
        """Return the errors (d,) about the persons' own sums, without the law's wider ends."""
        _, kept = self._totals_here()
        noise = self.budget.noise(self.metric, self._radius_found)
        errors = errors_from_sums(self.added, noise, self.metric.restore(kept), None)
        if self.chooser is not None:
            errors[self.chooser.places] = self.errors[self.chooser.places]
        return errors

    def _totals_here(self) -> tuple[Array, Array]:
        kept = self.persons.total(self.metric, self._radius_found, self.budget.norm)
        return self.persons.whole(self.metric), kept.astype(np.float64)

    @property
    def _radius_found(self) -> int:
        assert self.radius is not None, "found() comes first"
        return self.radius

    def clip_words(self) -> str | None:
        """Say how far the clip moves the numbers, for the holder alone; None where no sum is."""
        if not self.added.query.terms:
            return None
        whole, cut = self.numbers_here()
        errors, moved = self.errors_here(), np.abs(whole - cut)
        if not moved.any():
            return "clipping moved no number"
        # what is known without noise is not moved
        worst = int(np.argmax(np.where(errors > 0.0, moved, -1.0) / np.maximum(errors, 1e-300)))
        name = self.added.query.names[worst]
        if errors[worst] >= OPEN:
            return None
        return (
            f"clipping moved {name} the most, by {moved[worst]:.3g}; the noise on it has "
            f"a standard deviation of {errors[worst]:.3g}"
        )

    def attack(self, trials: int, source: np.random.Generator) -> MembershipAttack | None:
        """Run the attacker who knows every other person, on those who add most."""
        if self.budget.pure or self.radius is None or not self.added.query.terms:
            return None
        noise = self.budget.noise(self.metric, self.radius)
        longest = self.persons.longest(self.metric, self.radius, self.budget.norm, ATTACKED_ROWS)
        if longest is None or not len(longest):
            return None
        values = longest / noise.deviation
        # told from none, or from one who adds the opposite
        others = np.zeros_like(values)
        if self.budget.adjacency is Adjacency.REPLACE:
            others = -values
        groups = np.stack([values, others], axis=1)
        law = Diagonal(np.ones(values.shape[1]))
        attack = group_attack(groups, law, trials=trials, rng=source)
        return replace(attack, name=ATTACKER.replace("row", "person"))


def told_errors(added: Contributions, noise: PeopleNoise, sums: Array) -> Array:
    """Return errors (d,) of which ±1.96 hold 95% of draws, under the law of the noise.

    Args:
        added: what a row can add.
        noise: on every coordinate.
        sums: (k,) around which numbers are linear.
    """
    widths = LAPLACE_95 if noise.law == LAPLACE else NORMAL_95
    errors = errors_from_sums(added, noise, sums, None, widths)
    # a whole number lies a whole number away: up to the next one, or a share of 5% grows to 7%
    whole = added.query.function.whole_numbers & (errors > 0.0)
    return np.where(whole, np.ceil(NORMAL_95 * errors) / NORMAL_95, errors)


def people_plan(
    added: Contributions,
    persons: Contributors,
    budget: PeopleBudget,
    clip: float | None,
    search: RadiusSearch | None,
    cost: Any,
    chooser: QuantileChooser | None = None,
) -> PeoplePlan:
    """Choose the metric and the noise from the declaration, and place the persons in it.

    Args:
        added: what a row can add.
        persons: what they add.
        budget: of the noise.
        clip: radius in rows; None where ``search`` finds it.
        search: of the radius.
        cost: as ``frame_of`` takes it.
        chooser: of the quantiles among the numbers.
    """
    metric, nominal = _metric(added, budget, NOMINAL_RADIUS if clip is None else clip, cost)
    radius = None if clip is None else metric.radius(clip)
    shown = metric.radius(NOMINAL_RADIUS) if radius is None else radius
    errors = told_errors(added, budget.noise(metric, shown), nominal)
    if chooser is not None:
        errors[chooser.places] = chooser.expected(NOMINAL_ROWS)
    return PeoplePlan(added, metric, persons, budget, radius, search, chooser, errors)


def _metric(
    added: Contributions, budget: PeopleBudget, rows: float, cost: Any
) -> tuple[PersonMetric, Array]:
    """Return the metric of the least cost for persons of so many rows, and sums of nominal rows.

    Noise of deviation ``C/(μ w_j)`` costs ``Σ F_j C²/(μ w_j)²``, and rows that move sum j by s_j
    have the length ``Σ w_j² s_j²``: the cost at a given length is least for ``w_j² ∝ √F_j/s_j``.
    The choice is of utility alone: whatever the weights are, every person is clipped in them.
    """
    terms = added.query.terms
    if not terms:
        # nothing is summed
        return PersonMetric(np.ones(0), added.exponents, whole=False), np.zeros(0)
    shifted = added.values(nominal_rows(added)).values
    nominal = shifted.mean(axis=0) * NOMINAL_ROWS
    if len(terms) == 1 and not added.numeric[0] and budget.pure:
        return PersonMetric(np.ones(1), added.exponents, whole=True), nominal
    frame = frame_of(
        added.query, added.restore(shifted), added.centres, NOMINAL_ROWS, cost, counted=False
    )
    # the price of a sum without its offset: what is given back counts with the count
    back = np.eye(len(terms))
    back[np.arange(len(back)), added.counts] += added.offsets
    prices = np.maximum(np.diagonal(back.T @ frame.costs[0] @ back), 0.0)
    prices = np.where(prices > 0.0, prices, prices[prices > 0.0].min(initial=1.0) * FLOOR)
    # cells of one table differ by which rows at random they got: the middle is taken for each
    prices = _evened(added, prices)
    spread = np.sqrt(_evened(added, np.square(shifted).mean(axis=0)))
    parts = _parts(added, rows, budget)
    spread = np.where(spread > 0.0, spread, added.widths) * parts
    weights = np.sqrt(np.sqrt(prices) / spread)
    weights /= _largest_row(added, weights * parts, budget)
    return PersonMetric(weights, added.exponents, whole=False), nominal


def _alike(added: Contributions) -> list[list[int]]:
    """Return the places of terms kind by kind: cells that a row is in one of at most are alike."""
    kinds: dict[Any, list[int]] = {}
    for place, one in enumerate(added.query.terms):
        # nested conditions, such as thresholds, are no cells: each is of its own kind; that a
        # number is there at all is no threshold
        cells = all(np.isfinite(held.low) == np.isfinite(held.high) for held in one.conditions)
        kind = (one.columns, one.factors, one.once) if cells else place
        kinds.setdefault(kind, []).append(place)
    return list(kinds.values())


def _evened(added: Contributions, values: Array) -> Array:
    """Return the values (k,) of terms, those of alike cells replaced by their middle."""
    evened = values.copy()
    for places in _alike(added):
        evened[places] = np.median(values[places])
    return evened


def _parts(added: Contributions, rows: float, budget: PeopleBudget) -> Array:
    """Return a row's share (k,) of what a person of so many rows adds to a term, as a length.

    Rows add up to C times one of them; what counts once is 1 in each of C cells at most, a length
    of √min(C, cells) and a sum of sizes of min(C, cells).
    """
    parts = np.ones(len(added.query.terms))
    for places in _alike(added):
        if added.query.terms[places[0]].once:
            reached = min(rows, float(len(places)))
            parts[places] = (reached if budget.pure else reached**0.5) / rows
    return parts


def _largest_row(added: Contributions, weights: Array, budget: PeopleBudget) -> float:
    """Return the length of the largest row there can be, good for a choice only."""
    laws: list[Law] = []
    if added.numeric.any():
        chosen = np.flatnonzero(added.numeric)
        laws.append((chosen, Diagonal(weights[chosen] ** -2.0)))
    laws += [(places, Diagonal(weights[places] ** -2.0)) for places, _ in added.parts]
    length = farthest_distance(added, laws, Adjacency.ADD_REMOVE) ** 0.5
    # a row that moves r sums has a sum of sizes of √r lengths at most
    moved = np.count_nonzero(added.values(nominal_rows(added)).integers, axis=1).max(initial=1)
    return float(length * (moved**0.5 if budget.pure else 1.0))
