"""The sweep: every mechanism at every budget, what it leaves of the model, what it gives away."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from tacit._ground.checks import RandomSource, choice, generator, integer, positive
from tacit.documents import dumps
from tacit.guarantees import InformationBound, RenyiDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.attackers import USUAL, Attacker, read_attacker
from tacit.hidden_states.audit.catalogue import read_mechanism
from tacit.hidden_states.audit.laboratory import ORDER, Laboratory, Sizes
from tacit.hidden_states.audit.mechanisms import Asked, Mechanism, Rows, Setting, Trial
from tacit.hidden_states.audit.points import (
    DEFAULT_READINGS,
    NOISE_READINGS,
    Point,
    Table,
)
from tacit.measured import Interval
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
        settings: all that determines the point; its key is their digest.
    """

    mechanism: Mechanism
    setting: Setting
    attackers: tuple[Attacker, ...]
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
    out: str | os.PathLike[str] | None = None,
    rng: RandomSource = None,
    progress: Announce | None = None,
    bench: Bench | None = None,
) -> tuple[Point, ...]:
    """Measure releases of the last state: agreement and KL against the strongest attacker.

    A mechanism of noise stands at every KL budget ``K = ½ tr(FΣ)`` and, scaled to it, at every
    Rényi ε of order 2 over nearest neighbours of the bank; one of codes at every C. Each is read
    under protocol A (the earlier positions stay clean) and B (the release alone).

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
        out: JSON lines to write and to resume from; a point whose settings stand there is not
            measured again.
        rng: source of every draw. An integer makes points repeatable, and a run resumable.
        progress: called with a label, points done and points in all.
        bench: what keeps the layer last measured, made with the same arguments; None for a new one.

    Returns:
        The points asked for, in order, whether measured now or read from ``out``.

    Raises:
        ValueError: an unknown name, a budget that is not positive, or prompts too few.

    Source: hidden-state, Sec. 6, App. S, T and U.
    """
    kept = (Sizes() if sizes is None else sizes).within(prefixes)
    values = [read_mechanism(mechanism) for mechanism in mechanisms]
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
    named = tuple(read_attacker(attacker) for attacker in attackers)
    shared = {
        "model": model.name,
        "attackers": [attacker.name for attacker in named],
        "bank": _fingerprint(prefixes.bank),
        "calibration": _fingerprint(prefixes.calibration),
        "sizes": asdict(kept),
        "seed": seed,
    }
    jobs = list(_jobs(levels, values, asked, named, shared))
    if not jobs:
        raise ValueError("mechanisms: expected at least one mechanism with a budget, got none")
    if any(job.mechanism.takes_attackers for job in jobs) and not named:
        raise ValueError("attackers: expected at least one, got none")
    table = Table(out)
    wished = tuple(dict.fromkeys(job.settings["layer"] for job in jobs if job.key not in table))
    place = Bench(model, prefixes, kept, seed, wished) if bench is None else bench
    for done, job in enumerate(jobs):
        if progress is not None:
            progress(job.label, done, len(jobs))
        if job.key not in table:
            table.add(job.key, place.measure(job))
    if progress is not None:
        progress("done", len(jobs), len(jobs))
    return tuple(table[job.key] for job in jobs)


def _jobs(
    layers: Sequence[int],
    mechanisms: Sequence[Mechanism],
    asked: Asked,
    attackers: tuple[Attacker, ...],
    shared: Mapping[str, Any],
) -> Iterator[Job]:
    for layer in layers:
        for mechanism in mechanisms:
            for setting in mechanism.settings(asked):
                for reading, protocol in mechanism.readings(asked).items():
                    own = {"mechanism": mechanism.name, "reading": reading, "protocol": protocol}
                    settings = {**shared, "layer": layer, **asdict(setting), **own}
                    yield Job(mechanism, setting, attackers, settings)


@dataclass
class Bench:
    """Keeps what neighbouring points share, so that each is computed once.

    Prompts are read at all of ``layers`` in one pass, when the first of them is asked for.
    """

    model: LanguageModel
    prefixes: Prefixes
    sizes: Sizes
    seed: int
    layers: Sequence[int] = ()
    _passes: Passes | None = field(default=None, repr=False)
    _laboratory: Laboratory | None = None
    _trial: tuple[int, Trial] | None = field(default=None, repr=False)
    _proven: dict[int, tuple[Guarantee, ...]] = field(default_factory=dict, repr=False)

    def measure(self, job: Job) -> Point:
        """Measure one point."""
        start = time.perf_counter()
        laboratory = self.at(job.settings["layer"])
        trial = self._fitted(laboratory, job.mechanism, job.setting, job.seed)
        kl, agreement, generated = _use(laboratory, trial.read(job.settings["reading"]))
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
            predicted_kl=trial.predicted_kl,
            kl=kl,
            agreement=agreement,
            generated=generated,
            attacks=attacks,
            **_proven(self._proven[job.seed]),
            epsilon_random=trial.epsilon_random,
            bank=len(laboratory.bank),
            prompts=self.sizes.prompts,
            seed=self.seed,
            draw=job.seed,
            seconds=round(time.perf_counter() - start, 3),
        )

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
                self._passes = Passes.of(self.model, self.prefixes, layers)
            self._laboratory = Laboratory.prepare(
                self.model, layer, self.prefixes, self.sizes, seed=self.seed,
                passes=self._passes,
            )  # fmt: skip
        return self._laboratory


def _use(laboratory: Laboratory, read: Tensor | Rows) -> tuple[Interval, Interval, Interval | None]:
    """Measure KL and agreement, and what is generated where the layers above go on from states."""
    if isinstance(read, Tensor):
        utility = laboratory.utility(laboratory.reads_states(read))
        return *utility, laboratory.generated(read)
    return *laboratory.utility(lambda _, rows: read(rows)), None


def _proven(guarantees: Sequence[Guarantee]) -> dict[str, float | None]:
    """Return what a point says of guarantees: the bound, the nats, ε of order 2 over neighbours."""
    found: dict[str, float | None] = dict.fromkeys(("bound", "information", "epsilon_nearest"))
    for held in guarantees:
        if isinstance(held, SuccessBound):
            found["bound"] = held.success
        if isinstance(held, InformationBound):
            found["information"] = held.nats
        if isinstance(held, RenyiDP) and ORDER in held.orders:
            found["epsilon_nearest"] = held.epsilons[held.orders.index(ORDER)]
    return found


def _fingerprint(tokens: Any) -> str:
    rows = np.ascontiguousarray(np.asarray(tokens, dtype=np.int64))
    return f"{len(rows)}:{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}"


def _seed(rng: RandomSource) -> int:
    return int(generator(rng).integers(2**53))
