"""The sweep: every mechanism at every budget, what it leaves of the model, what it gives away."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit.compute import goes_elsewhere, parallel_map
from tacit.documents import dumps
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit import catalogue
from tacit.hidden_states.audit.attackers import USUAL, Attacker, read_attacker
from tacit.hidden_states.audit.guessers import Guesser, read_guesser, run_guessers
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import Mechanism, RowPredictions, Trial
from tacit.hidden_states.audit.points import (
    GuessPoint,
    Point,
    PointTable,
    Setting,
    stated_numbers,
)
from tacit.hidden_states.audit.request import HERE, USUAL_REQUEST, Sizes, SweepRequest, SweepRun
from tacit.hidden_states.origin import digest_of, served_digest
from tacit.models.language import LanguageModel
from tacit.models.passes import Passes
from tacit.models.texts.prefixes import Prefixes


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
        # 96 bits: no two of a file's points meet
        text = dumps(self.settings, sort_keys=True, ascii_only=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def seed(self) -> int:
        """Seed of the point's draws, the same for every reading of one release."""
        # readings and attackers are no part of it: they are about one draw
        names = ("model", "layer", "mechanism", "kl_budget", "target_epsilon", "codewords", "seed")
        text = dumps([self.settings[name] for name in names], ascii_only=True)
        # 56 bits, which every generator takes
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
    request: SweepRequest = USUAL_REQUEST,
    *,
    prefixes: Prefixes,
    sizes: Sizes | None = None,
    releases: int = 1,
    run: SweepRun = HERE,
    rng: RandomSource = None,
) -> tuple[Point, ...]:
    """Measure releases of the last state: agreement and KL against the strongest attacker.

    A mechanism of noise stands at every KL budget ``K = ½ tr(FΣ)`` and, scaled to it, at every
    Rényi ε of order 2 over nearest neighbours of the bank; one of codes at every C. Each is read
    under protocol A (the earlier positions stay clean) and B (the release alone). What is measured
    has the same bits wherever it is, on as many threads as PyTorch has here.

    Args:
        model: the language model.
        layers: each 1 … L.
        request: mechanisms, at what they are measured, and who attacks them.
        prefixes: bank (the secrets), calibration (public); disjoint.
        sizes: how much is measured; the defaults of ``Sizes``, cut to the prefixes, when left out.
        releases: T, codes released about one prompt, of its last T positions; their bound and
            attack are those of all together.
        run: where points are kept, and on how many processes they are measured.
        rng: source of every draw. An integer makes points repeatable, and a run resumable.

    Returns:
        The points asked for, in order, whether measured now or read from ``run.out``.

    Raises:
        ValueError: an unknown name, a budget that is not positive, or prompts too few.

    Source: hidden-state, Sec. 6, App. S, T and U.
    """
    seed = integer("rng", rng, minimum=0) if isinstance(rng, int) else draw_seed(rng)
    bench = Bench(model, prefixes, Sizes() if sizes is None else sizes, seed, releases=releases)
    return bench.sweep(layers, request, run)


@dataclass
class Bench:
    """Where points are measured: keeps what neighbours share, so that each is computed once.

    Prompts are read at all of ``layers`` in one pass, when the first of them is asked for; where
    ``continues`` and it is one layer, calibration prompts are made ready to be continued in it.

    Attributes:
        model: the language model.
        prefixes: bank, calibration and held-out prompts.
        sizes: how much is measured, cut to the prefixes.
        seed: of every draw.
        layers: read in one pass.
        releases: T, positions of a prompt that are released.
        continues: whether something is fitted through the layers above.
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

    def __post_init__(self) -> None:
        self.sizes = self.sizes.within(self.prefixes)
        longest = int(self.prefixes.bank.shape[1])
        self.releases = integer("releases", self.releases, minimum=1, maximum=longest)

    def sweep(
        self, layers: Iterable[int], request: SweepRequest, run: SweepRun = HERE
    ) -> tuple[Point, ...]:
        """Return the points asked for, as the function ``sweep`` does.

        Args:
            layers: each 1 … L.
            request: mechanisms, at what they are measured, and who attacks them.
            run: where points are kept, and on how many processes they are measured.

        Raises:
            ValueError: as ``sweep``.
        """
        jobs = self._jobs(layers, request)
        table = PointTable(run.out)
        missing = list({job.key: job for job in jobs if job.key not in table}.values())
        wished = (*self.layers, *(job.settings["layer"] for job in missing))
        self.layers = tuple(dict.fromkeys(wished))
        self.continues |= any(job.mechanism.continues for job in missing)
        alone = run.workers is None and not goes_elsewhere(run.engine)
        # here a release stays at the bench from point to point, and an interruption loses one point
        items = [(job,) for job in missing] if alone else _by_release(missing)

        def announce() -> None:
            if run.progress is not None:
                label = next((job.label for job in missing if job.key not in table), "done")
                run.progress(label, sum(job.key in table for job in jobs), len(jobs))

        def keep(found: Sequence[tuple[str, Point]]) -> None:
            for key, point in found:
                table.add(key, point)
            announce()

        announce()
        parallel_map(
            _Measuring(self, uuid.uuid4().hex),
            items,
            workers=1 if alone else run.workers,
            engine=run.engine,
            threads=torch.get_num_threads(),
            each=keep,
        )
        return tuple(table[job.key] for job in jobs)

    def _jobs(self, layers: Iterable[int], request: SweepRequest) -> list[Job]:
        """Return every point that is asked for; nothing is measured where one cannot be."""
        values = read_mechanisms(request)
        names = [value.name for value in values]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"mechanisms: expected each once, got {twice[0]} {names.count(twice[0])} times"
            )
        given = USUAL if request.attackers is None else request.attackers
        attackers = tuple(read_attacker(attacker) for attacker in given)
        guessers = tuple(read_guesser(guesser) for guesser in request.guessers or ())
        shared = self._shared(attackers, guessers)
        public, vocabulary = len(self.prefixes.calibration), self.model.vocabulary
        jobs = []
        for layer in layers:
            level = integer("layers", layer, minimum=1, maximum=self.model.layers)
            for value in values:
                readings = value.readings(request)
                for setting in value.settings(request, calibration=public, vocabulary=vocabulary):
                    for reading, protocol in readings.items():
                        own = {"mechanism": value.name, "reading": reading, "protocol": protocol}
                        settings = {**shared, "layer": level, **asdict(setting), **own}
                        jobs.append(Job(value, setting, attackers, guessers, settings))
        if not jobs:
            raise ValueError("mechanisms: expected at least one mechanism with a budget, got none")
        if any(job.mechanism.takes_attackers for job in jobs) and not attackers:
            raise ValueError("attackers: expected at least one, got none")
        return jobs

    def _shared(
        self, attackers: tuple[Attacker, ...], guessers: tuple[Guesser, ...]
    ) -> dict[str, Any]:
        """Return what determines every point alike: model, prompts, sizes, seed and attackers."""
        prefixes, network = self.prefixes, self.model.network
        return {
            "model": self.model.name,
            "parameters": digest_of(network.state_dict()),
            "served": served_digest(network, self.model.tokenizer),
            "attackers": [attacker.name for attacker in attackers],
            "bank": _fingerprint(prefixes.bank),
            "calibration": _fingerprint(prefixes.calibration),
            "held_out": _fingerprint(prefixes.held_out),
            "sizes": _measured_sizes(self.sizes),
            "seed": self.seed,
            # left out for one and for none, so that the points of earlier sweeps are found again
            **({} if self.releases == 1 else {"releases": self.releases}),
            **({"guessers": [guesser.name for guesser in guessers]} if guessers else {}),
        }

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
        # fitted once for all readings of one release, whose draw they share
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
            **stated_numbers(self._proven[job.seed]),
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
            self._guessed[key] = (
                () if seen is None else run_guessers(laboratory, seen, job.guessers)
            )
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


def _by_release(jobs: Iterable[Job]) -> list[tuple[Job, ...]]:
    """Return the readings of one release together, for it is drawn and attacked once."""
    return [tuple(readings) for _, readings in groupby(jobs, key=lambda job: job.seed)]


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
        """Return the bench, unpickled once: bytes of whoever runs the sweep, as this object is."""
        if getattr(_left, "mark", None) != self.mark:
            _left.bench, _left.mark = cloudpickle.loads(self.content), self.mark
        found: Bench = _left.bench
        return found


def _use(laboratory: Laboratory, read: Tensor | RowPredictions) -> dict[str, Any]:
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


def draw_seed(rng: RandomSource) -> int:
    """Return a seed that a double holds exactly, as JSON readers may keep it."""
    return int(generator(rng).integers(2**53))


def read_mechanisms(request: SweepRequest) -> list[Mechanism]:
    """Return the mechanisms that are asked for, or the usual ones."""
    given = catalogue.USUAL if request.mechanisms is None else request.mechanisms
    return [catalogue.read_mechanism(mechanism) for mechanism in given]
