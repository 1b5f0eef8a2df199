"""The sweep: every mechanism at every budget, what it leaves of the model, what it gives away."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import RandomSource, choice, generator, integer, positive
from tacit.compute import goes_elsewhere, parallel_map
from tacit.documents import dumps
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.attackers import USUAL, Attacker, read_attacker
from tacit.hidden_states.audit.catalogue import read_mechanism
from tacit.hidden_states.audit.guessers import Guesser, guessed, read_guesser
from tacit.hidden_states.audit.guesses import GuessPoint
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import Asked, Mechanism, Rows, Setting, Trial
from tacit.hidden_states.audit.points import (
    DEFAULT_READINGS,
    NOISE_READINGS,
    Point,
    Table,
    proven,
)
from tacit.hidden_states.audit.sizes import Sizes
from tacit.hidden_states.origin import digest_of, served_digest
from tacit.models.language import LanguageModel
from tacit.models.passes import Passes
from tacit.models.texts.prefixes import Prefixes

Announce = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Job:
    """One point that is to be measured: what is released, and how it is read.

    Attributes:
        mechanism: what is released.
        setting: at what it is fitted.
        attackers: who attack it.
        guessers: who guess a part of the prompt, or know one.
        settings: all that determines the point; its key is their digest.
    """

    mechanism: Mechanism
    setting: Setting
    attackers: tuple[Attacker, ...]
    guessers: tuple[Guesser, ...]
    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A digest of the settings."""
        text = dumps(self.settings, sort_keys=True, ascii_only=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def seed(self) -> int:
        """Seed of the point's draws, the same for every reading of one release."""
        names = ("model", "layer", "mechanism", "kl_budget", "target_epsilon", "codewords", "seed")
        text = dumps([self.settings[name] for name in names], ascii_only=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")

    @property
    def label(self) -> str:
        """What is measured, in a few words."""
        layer, reading = f"layer {self.settings['layer']}", self.settings["reading"]
        parts = (layer, self.mechanism.name, self.setting.label, reading)
        return ", ".join(filter(None, parts))


def sweep(
    model: LanguageModel,
    layers: Iterable[int],
    mechanisms: Iterable[Mechanism | str],
    kl_budgets: Iterable[float],
    attackers: Sequence[Attacker | str] = USUAL,
    *,
    prefixes: Prefixes,
    codewords: Iterable[int] = (64, 256, 1024),
    epsilons: Iterable[float] = (),
    readings: Sequence[str] = DEFAULT_READINGS,
    sizes: Sizes | None = None,
    guessers: Sequence[Guesser | str] = (),
    out: str | os.PathLike[str] | None = None,
    rng: RandomSource = None,
    progress: Announce | None = None,
    bench: Bench | None = None,
    releases: int = 1,
    workers: int | None = None,
    engine: str | None = None,
) -> tuple[Point, ...]:
    """Measure releases of the last state: agreement and KL against the strongest attacker.

    A mechanism of noise stands at every KL budget ``K = ½ tr(FΣ)`` and, scaled to it, at every
    Rényi ε of order 2 over nearest neighbours of the bank; one of codes at every C. Each is read
    under protocol A (the earlier positions stay clean) and B (the release alone). What is measured
    has the same bits wherever it is, on as many threads as PyTorch has here.

    Args:
        model: the language model.
        layers: each 1 … L.
        mechanisms: values, or the words that ``read_mechanism`` makes values of.
        kl_budgets: K > 0 in nats, for noise.
        attackers: values, or their words; none is needed by a mechanism whose attack is exact.
        prefixes: bank (the secrets), calibration (public); disjoint.
        codewords: C, 2 … the calibration prompts, for codes.
        epsilons: ε > 0, for noise at equal ε.
        readings: of noisy states: ``"raw"``, ``"posterior-mean"``, ``"wiener"``, ``"trained"``
            (protocol A), ``"posterior-behaviour"`` (protocol B).
        sizes: how much is measured; the defaults of ``Sizes``, cut to the prefixes, when left out.
        guessers: attackers who know more of a prompt or ask less of it, values or their words such
            as ``"known-prefix"``; none when left out.
        out: JSON lines to write and to resume from; a point whose settings stand there is not
            measured again.
        rng: source of every draw. An integer makes points repeatable, and a run resumable.
        progress: called with a label, points done and points in all.
        bench: what keeps the layer last measured, made with the same arguments; None for a new one.
        releases: T, codes released about one prompt, of its last T positions; their bound and
            attack are those of all together.
        workers: processes that measure one release each, with a model and a layer of their own;
            None for this one alone, or for all workers of a cluster.
        engine: a cluster that measures, as for ``tacit.compute.parallel_map``.

    Returns:
        The points asked for, in order, whether measured now or read from ``out``.

    Raises:
        ValueError: an unknown name, a budget that is not positive, or prompts too few.

    Source: hidden-state, Sec. 6, App. S, T and U.
    """
    kept = (Sizes() if sizes is None else sizes).within(prefixes)
    values = [read_mechanism(mechanism) for mechanism in mechanisms]
    names = [value.name for value in values]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"mechanisms: expected each once, got {twice[0]} {names.count(twice[0])} "
                         "times")  # fmt: skip
    seed = integer("rng", rng, minimum=0) if isinstance(rng, int) else _seed(rng)
    levels = [integer("layers", layer, minimum=1, maximum=model.layers) for layer in layers]
    asked = Asked(
        kl_budgets=tuple(positive("kl_budgets", budget) for budget in kl_budgets),
        epsilons=tuple(positive("epsilons", epsilon) for epsilon in epsilons),
        codewords=tuple(codewords),
        readings=tuple(choice("readings", reading, NOISE_READINGS) for reading in readings),
        calibration=len(prefixes.calibration),
        vocabulary=model.vocabulary,
    )
    times = integer("releases", releases, minimum=1, maximum=int(prefixes.bank.shape[1]))
    named = tuple(read_attacker(attacker) for attacker in attackers)
    guessing = tuple(read_guesser(guesser) for guesser in guessers)
    shared: dict[str, Any] = {
        "model": model.name,
        "parameters": digest_of(model.network.state_dict()),
        "served": served_digest(model.network, model.tokenizer),
        "attackers": [attacker.name for attacker in named],
        "bank": _fingerprint(prefixes.bank),
        "calibration": _fingerprint(prefixes.calibration),
        "held_out": _fingerprint(prefixes.held_out),
        "sizes": _measured_sizes(kept),
        "seed": seed,
        # left out for one, so that the points of earlier sweeps are found again
        **({} if times == 1 else {"releases": times}),
    }
    if guessing:
        shared["guessers"] = [guesser.name for guesser in guessing]
    jobs = list(_jobs(levels, values, asked, named, guessing, shared))
    if not jobs:
        raise ValueError("mechanisms: expected at least one mechanism with a budget, got none")
    if any(job.mechanism.takes_attackers for job in jobs) and not named:
        raise ValueError("attackers: expected at least one, got none")
    table = Table(out)
    missing = list({job.key: job for job in jobs if job.key not in table}.values())
    wished = tuple(dict.fromkeys(job.settings["layer"] for job in missing))
    alone = workers is None and not goes_elsewhere(engine)
    goes_on = any(job.mechanism.continues for job in missing)
    place = Bench(model, prefixes, kept, seed, wished, times, goes_on) if bench is None else bench
    # here a release stays at the bench from point to point, and an interruption loses one point
    items = [(job,) for job in missing] if alone else _by_release(missing)

    def announce() -> None:
        if progress is not None:
            label = next((job.label for job in missing if job.key not in table), "done")
            progress(label, sum(job.key in table for job in jobs), len(jobs))

    def keep(found: Sequence[tuple[str, Point]]) -> None:
        for key, point in found:
            table.add(key, point)
        announce()

    announce()
    parallel_map(
        _Measuring(place, uuid.uuid4().hex),
        items,
        workers=1 if alone else workers,
        engine=engine,
        threads=torch.get_num_threads(),
        each=keep,
    )
    return tuple(table[job.key] for job in jobs)


def _by_release(jobs: Iterable[Job]) -> list[tuple[Job, ...]]:
    """Return the readings of one release together, for it is drawn and attacked once."""
    return [tuple(readings) for _, readings in groupby(jobs, key=lambda job: job.seed)]


def _jobs(
    layers: Sequence[int],
    mechanisms: Sequence[Mechanism],
    asked: Asked,
    attackers: tuple[Attacker, ...],
    guessers: tuple[Guesser, ...],
    shared: Mapping[str, Any],
) -> Iterator[Job]:
    for layer in layers:
        for mechanism in mechanisms:
            for setting in mechanism.settings(asked):
                for reading, protocol in mechanism.readings(asked).items():
                    own = {"mechanism": mechanism.name, "reading": reading, "protocol": protocol}
                    settings = {**shared, "layer": layer, **asdict(setting), **own}
                    yield Job(mechanism, setting, attackers, guessers, settings)


@dataclass
class Bench:
    """Keeps what neighbouring points share, so that each is computed once.

    Prompts are read at all of ``layers`` in one pass, when the first of them is asked for; where
    ``continues`` and it is one layer, calibration prompts are made ready to be continued in it.
    """

    model: LanguageModel
    prefixes: Prefixes
    sizes: Sizes
    seed: int
    layers: Sequence[int] = ()
    releases: int = 1
    continues: bool = False
    _passes: Passes | None = field(default=None, repr=False)
    _laboratory: Laboratory | None = None
    _trial: tuple[int, Trial] | None = field(default=None, repr=False)
    _proven: dict[int, tuple[Guarantee, ...]] = field(default_factory=dict, repr=False)
    _guessed: dict[tuple[int, tuple[Guesser, ...]], tuple[GuessPoint, ...]] = field(
        default_factory=dict, repr=False
    )

    def emptied(self) -> Bench:
        """Return a bench for the same points that keeps nothing yet."""
        return Bench(
            self.model, self.prefixes, self.sizes, self.seed, self.layers, self.releases,
            self.continues,
        )  # fmt: skip

    def measure(self, job: Job) -> Point:
        """Measure one point."""
        start = time.perf_counter()
        laboratory = self.at(job.settings["layer"])
        trial = self._fitted(laboratory, job.mechanism, job.setting, job.seed)
        use = _use(laboratory, trial.read(job.settings["reading"]))
        setting, attacks = job.setting, trial.attack(job.attackers)
        return Point(
            model=self.model.name,
            layer=laboratory.layer,
            family=job.mechanism.family,
            mechanism=job.mechanism.name,
            reading=job.settings["reading"],
            protocol=job.settings["protocol"],
            kl_budget=trial.predicted_kl if setting.kl_budget is None else setting.kl_budget,
            target_epsilon=setting.target_epsilon,
            codewords=setting.codewords,
            rank=trial.rank,
            codes=trial.codes,
            predicted_kl=trial.predicted_kl,
            **use,
            attacks=attacks,
            **proven(self._proven[job.seed]),
            epsilon_random=trial.epsilon_random,
            bank=len(laboratory.bank),
            prompts=self.sizes.prompts,
            seed=self.seed,
            draw=job.seed,
            guesses=self._guesses(trial, job),
            seconds=round(time.perf_counter() - start, 3),
        )

    def _guesses(self, trial: Trial, job: Job) -> tuple[GuessPoint, ...]:
        """Run the guessers once for all readings of a release."""
        key = job.seed, job.guessers
        if key not in self._guessed:
            seen = trial.observed() if job.guessers else None
            laboratory = self.at(job.settings["layer"])
            self._guessed[key] = () if seen is None else guessed(laboratory, seen, job.guessers)
        return self._guessed[key]

    def guarantees(self, mechanism: Mechanism, point: Point) -> tuple[Guarantee, ...]:
        """Return what is proven of a point's release, fitted again where it was not before."""
        if point.draw not in self._proven:
            self._fitted(self.at(point.layer), mechanism, Setting.of(point), point.draw)
        return self._proven[point.draw]

    def _fitted(
        self, laboratory: Laboratory, mechanism: Mechanism, setting: Setting, seed: int
    ) -> Trial:
        """Return the trial of a seed, which no two releases share; the last one is kept."""
        if self._trial is None or self._trial[0] != seed:
            self._trial = None
            trial = mechanism.fit(laboratory, setting, seed)
            self._trial, self._proven[seed] = (seed, trial), trial.certify()
        return self._trial[1]

    def at(self, layer: int) -> Laboratory:
        """Return the layer made ready."""
        if self._laboratory is None or self._laboratory.layer != layer:
            self._trial = self._laboratory = None
            if self._passes is None or layer not in self._passes.bank.states:
                layers = {layer, *self.layers}
                self._passes = Passes.of(
                    self.model, self.prefixes, layers, self.sizes.trained, continues=self.continues
                )
            self._laboratory = Laboratory.prepare(
                self.model, layer, self.prefixes, self.sizes, seed=self.seed,
                passes=self._passes, releases=self.releases,
            )  # fmt: skip
        return self._laboratory


# of each thread of a worker, kept for the items of the same sweep that follow
_left = threading.local()


class _Measuring:
    """Measures the points of an item; copies in a worker share the bench that the first one made.

    Args:
        bench: where points are measured; None for a copy.
        mark: of the sweep.
        content: the bench as bytes, with nothing kept at it.
    """

    def __init__(self, bench: Bench | None, mark: str, content: bytes = b"") -> None:
        self.bench, self.mark, self.content = bench, mark, content

    def __reduce__(self) -> tuple[Any, ...]:
        if self.bench is not None and not self.content:
            self.content = cloudpickle.dumps(self.bench.emptied())
        return _Measuring, (None, self.mark, self.content)

    def __call__(self, jobs: Sequence[Job]) -> list[tuple[str, Point]]:
        bench = self._left_here() if self.bench is None else self.bench
        return [(job.key, bench.measure(job)) for job in jobs]

    def _left_here(self) -> Bench:
        if getattr(_left, "mark", None) != self.mark:
            _left.bench, _left.mark = cloudpickle.loads(self.content), self.mark
        found: Bench = _left.bench
        return found


def _use(laboratory: Laboratory, read: Tensor | Rows) -> dict[str, Any]:
    """Measure use, and what is generated where the layers above go on from states."""
    if isinstance(read, Tensor):
        utility = laboratory.utility(laboratory.reads_states(read))
        return {**utility, "generated": laboratory.generated(read)}
    return {**laboratory.utility(lambda _, rows: read(rows)), "generated": None}


def _measured_sizes(sizes: Sizes) -> dict[str, int]:
    """Return what determines a point; cells of any size keep the keys that they always had."""
    return {k: v for k, v in asdict(sizes).items() if k != "least_cell" or v > 1}


def _fingerprint(tokens: Any) -> str:
    rows = np.ascontiguousarray(np.asarray(tokens, dtype=np.int64))
    return f"{len(rows)}:{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}"


def _seed(rng: RandomSource) -> int:
    return int(generator(rng).integers(2**53))
