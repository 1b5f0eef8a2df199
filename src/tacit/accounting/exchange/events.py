"""Profiles of what `dp_accounting` calls events: the history of its accountants, read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tacit._ground.checks import in_interval, integer, non_negative
from tacit._ground.lazy import install_with
from tacit._ground.numbers import EPS
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.classical import discrete_laplace, laplace, randomized_response
from tacit.accounting.mechanisms.gaussian import gaussian, gaussian_shift
from tacit.accounting.mechanisms.mixtures import gaussian_mixture
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian
from tacit.guarantees.adjacency import Adjacency, Neighbours

FIXED_SIZE = "every batch is a set of the same size, drawn uniformly, and stays secret"
# Units in the last place: of a quotient, of a logarithm of one.
UNITS, LOG_UNITS = 2, 8
# Events that are accounted for nowhere here, and what stands in the way.
REFUSED = {
    "UnsupportedDpEvent": "it stands for a mechanism that its writer could not describe",
    "SampledWithReplacementDpEvent": "it needs the profiles of groups of records",
    "RepeatAndSelectDpEvent": "Tacit has no account of a random number of repetitions",
    "TruncatedSubsampledGaussianDpEvent": "a truncated sample depends on all records",
    "ZCDpEvent": "a bound of Rényi divergences is no pair of distributions",
}


@dataclass(frozen=True)
class _Pairs:
    """What an event tells: a record from another, or from none, and of none where that is known."""

    told: PrivacyProfile
    absent: PrivacyProfile | None


def from_dp_event(event: Any, neighbours: Neighbours = Adjacency.ADD_REMOVE) -> PrivacyProfile:
    """Return the profile of a `dp_accounting` event, composed and rounded up.

    An accountant of that library keeps its history as a ``DpEvent``. Noise multipliers are over
    the norm C of one record: a record that is replaced moves a sum by 2C.

    Args:
        event: a ``dp_accounting.DpEvent``: no operation, not private, Gaussian, Laplace, discrete
            Laplace, mixture of Gaussians, randomised response, tree aggregation of one epoch,
            Poisson samples of these, batches of fixed size, and compositions of all.
        neighbours: ``"add-remove"`` or ``"replace"``. Randomised response and batches of fixed
            size are about a record that is replaced, a mixture about one added or removed.

    Returns:
        The profile; δ is 1 everywhere for what is not private.

    Raises:
        ValueError: it is no event, one that Tacit has no account of, which is named, one of other
            neighbours, or a number in it is out of range.
        ImportError: ``dp_accounting`` is not installed: the extra `exchange` has it.

    Example:
        >>> import dp_accounting
        >>> step = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.0))
        >>> profile = from_dp_event(dp_accounting.SelfComposedDpEvent(step, 500))
        >>> round(profile.epsilon(1e-5), 3)
        2.773

    Source: the docstrings of ``dp_accounting.dp_event``; the functions of `tacit.accounting`.
    """
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        raise ImportError(
            f"from_dp_event needs dp_accounting: {install_with('exchange')}"
        ) from error

    relation = Adjacency.read("neighbours", neighbours)
    if not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(f"event: expected a dp_accounting.DpEvent, got {type(event).__name__}")
    return _read(event, relation).told


def _read(event: Any, relation: Adjacency) -> _Pairs:
    """Return what one event tells of a record."""
    name = type(event).__name__
    if name not in READERS:
        reason = REFUSED.get(name, "Tacit has no account of it")
        raise ValueError(f"event: {name} is refused: {reason}")
    return READERS[name](event, relation)


def _number(event: Any, field: str) -> str:
    """Return what a refusal calls a number of an event."""
    return f"{type(event).__name__}.{field}"


def _both(relation: Adjacency, profile_of: Callable[[int], PrivacyProfile]) -> _Pairs:
    """Return the pairs of a value that one record moves by 1, and a replaced one by 2."""
    absent = profile_of(1)
    return _Pairs(profile_of(2) if relation is Adjacency.REPLACE else absent, absent)


def _nothing(_event: Any = None, _relation: Any = None) -> _Pairs:
    """Return what an operation without a release tells."""
    return _Pairs(gaussian_shift(0.0), gaussian_shift(0.0))


def _everything(_event: Any = None, _relation: Any = None) -> _Pairs:
    """Return what an operation that is not private tells."""
    return _Pairs(gaussian_shift(math.inf), gaussian_shift(math.inf))


def _gaussian(event: Any, relation: Adjacency) -> _Pairs:
    noise = non_negative(_number(event, "noise_multiplier"), event.noise_multiplier)
    if noise == 0:
        return _everything()
    return _both(relation, lambda moved: gaussian(moved, noise))


def _laplace(event: Any, relation: Adjacency) -> _Pairs:
    noise = non_negative(_number(event, "noise_multiplier"), event.noise_multiplier)
    if noise == 0:
        return _everything()
    return _both(relation, lambda moved: laplace(moved, noise))


def _discrete_laplace(event: Any, relation: Adjacency) -> _Pairs:
    rate = non_negative(_number(event, "noise_parameter"), event.noise_parameter)
    reach = integer(_number(event, "sensitivity"), event.sensitivity, minimum=1)
    # b = 1/a rounds down: less noise tells more; a below the least quotient is no number
    scale = 1.0 / max(rate, 1e-300) * (1 - UNITS * EPS)
    if rate == 0:
        # noise over all whole numbers alike has no distribution: dp_accounting takes it for none
        return _everything()
    return _both(relation, lambda moved: discrete_laplace(moved * reach, scale))


def _response(event: Any, relation: Adjacency) -> _Pairs:
    name = type(event).__name__
    if relation is not Adjacency.REPLACE:
        raise ValueError(
            f"neighbours: expected 'replace' for {name}, as an answer is there in any case"
        )
    noise = in_interval(_number(event, "noise_parameter"), event.noise_parameter, 0.0, 1.0)
    buckets = integer(_number(event, "num_buckets"), event.num_buckets, minimum=1)
    if buckets == 1:
        return _nothing()
    # the truth with 1 − η + η/k, another answer with η/k: e^ε = 1 + k (1 − η)/η, rounded up
    odds = math.inf if noise == 0 else buckets * ((1.0 - noise) / noise)
    loss = math.log1p(odds) * (1 + LOG_UNITS * EPS) if math.isfinite(odds) else math.inf
    return _Pairs(randomized_response(loss, buckets), None)


def _mixture(event: Any, relation: Adjacency) -> _Pairs:
    name = type(event).__name__
    if relation is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"neighbours: expected 'add-remove' for {name}, which says what one record adds"
        )
    deviation = non_negative(_number(event, "standard_deviation"), event.standard_deviation)
    shifts, chances = list(event.sensitivities), list(event.sampling_probs)
    if deviation == 0:
        return _everything() if any(shifts) else _nothing()
    try:
        profile = gaussian_mixture(shifts, chances, deviation)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return _Pairs(profile, profile)


def _tree(event: Any, relation: Adjacency) -> _Pairs:
    noise = non_negative(_number(event, "noise_multiplier"), event.noise_multiplier)
    label = _number(event, "step_counts")
    given = event.step_counts
    counts = list(given) if isinstance(given, Iterable) else [given]
    longest = max((integer(label, count, minimum=0) for count in counts), default=0)
    if longest == 0:
        raise ValueError(f"{label}: expected a step in a tree at least, got none")
    if noise == 0:
        return _everything()
    # a leaf of n is in ⌊log₂ n⌋ + 1 nodes at most, in each of which the record moves the sum by 1
    nodes = math.sqrt(longest.bit_length()) * (1 + UNITS * EPS)
    return _both(relation, lambda moved: gaussian(moved * nodes * (1 + UNITS * EPS), noise))


def _poisson(event: Any, relation: Adjacency) -> _Pairs:
    label = _number(event, "sampling_probability")
    rate = in_interval(label, event.sampling_probability, 0.0, 1.0)
    inner = _read(event.event, relation)
    if inner.absent is None:
        name = type(event.event).__name__
        raise ValueError(
            f"event: a Poisson sample of {name} is refused: it does not say what an "
            "absent record gives"
        )
    absent = _sampled(inner.absent, rate)
    if relation is Adjacency.ADD_REMOVE:
        return _Pairs(absent, absent)
    if type(event.event).__name__ == "GaussianDpEvent" and event.event.noise_multiplier > 0:
        # the best two records point opposite ways: exact
        noise = event.event.noise_multiplier
        return _Pairs(subsampled_gaussian(rate, noise, 1, relation), absent)
    told = inner.told.poisson_subsample(rate, neighbours=relation, without=inner.absent)
    return _Pairs(told, absent)


def _sampled(profile: PrivacyProfile, rate: float) -> PrivacyProfile:
    """Return a release on samples, of a record that is there or not."""
    return profile.poisson_subsample(rate, neighbours=Adjacency.ADD_REMOVE)


def _fixed_size(event: Any, relation: Adjacency) -> _Pairs:
    name = type(event).__name__
    if relation is not Adjacency.REPLACE:
        raise ValueError(
            f"neighbours: expected 'replace' for {name}, whose batches have a size that is public"
        )
    whole = integer(_number(event, "source_dataset_size"), event.source_dataset_size, minimum=1)
    size = integer(_number(event, "sample_size"), event.sample_size, minimum=1, maximum=whole)
    inner = _read(event.event, relation)
    # δ'(ln(1 + (m/n)(e^ε − 1))) <= (m/n) δ(ε): Balle, Barthe and Gaboardi (2018), Theorem 9. The
    # batches with the record, with the other, and with neither, differ in one record two by two
    rate = min(size / whole * (1 + UNITS * EPS), 1.0)
    sampled = inner.told.poisson_subsample(rate, neighbours=relation)
    told = replace(
        sampled,
        name=f"{inner.told.name}, on {size} of {whole} records",
        source=f"{inner.told.source}; Balle, Barthe and Gaboardi (2018), Theorem 9",
        assumptions=(*inner.told.assumptions, FIXED_SIZE),
    )
    return _Pairs(told, None)


def _composed(event: Any, relation: Adjacency) -> _Pairs:
    return _together([_read(one, relation) for one in event.events])


def _repeated(event: Any, relation: Adjacency) -> _Pairs:
    count = integer(_number(event, "count"), event.count, minimum=0)
    if count == 0:
        return _nothing()
    once = _read(event.event, relation)
    return _Pairs(once.told * count, None if once.absent is None else once.absent * count)


def _together(parts: list[_Pairs]) -> _Pairs:
    """Return what several events tell."""
    if not parts:
        return _nothing()
    told = reduce(PrivacyProfile.compose, [one.told for one in parts])
    absent = [one.absent for one in parts if one.absent is not None]
    known = len(absent) == len(parts)
    return _Pairs(told, reduce(PrivacyProfile.compose, absent) if known else None)


READERS: dict[str, Callable[[Any, Adjacency], _Pairs]] = {
    "NoOpDpEvent": _nothing,
    "NonPrivateDpEvent": _everything,
    "GaussianDpEvent": _gaussian,
    "LaplaceDpEvent": _laplace,
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "RandomizedResponseDpEvent": _response,
    "MixtureOfGaussiansDpEvent": _mixture,
    "SingleEpochTreeAggregationDpEvent": _tree,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _fixed_size,
    "ComposedDpEvent": _composed,
    "SelfComposedDpEvent": _repeated,
}
