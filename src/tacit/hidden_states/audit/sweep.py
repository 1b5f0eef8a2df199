"""The sweep: every mechanism at every budget, what it leaves of the model, what it gives away."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource, choice, generator, integer, positive
from tacit.design import Design
from tacit.hidden_states.audit.cell_points import CodebookReleases
from tacit.hidden_states.audit.laboratory import ATTACKERS, Laboratory, Sizes
from tacit.hidden_states.audit.mechanisms import check_mechanism, is_gaussian, scaled_design
from tacit.hidden_states.audit.noise_points import DEFAULT_READINGS, NOISE_READINGS, NoiseRelease
from tacit.hidden_states.audit.points import PROTOCOLS, Point, Table
from tacit.hidden_states.codebooks.certificates import CodeCertificate
from tacit.models.language import LanguageModel
from tacit.models.readings import Readings
from tacit.models.texts.prefixes import Prefixes

Announce = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Job:
    """One point that is to be measured; ``settings`` determine it and are its key."""

    settings: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A digest of the settings."""
        text = json.dumps(self.settings, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def seed(self) -> int:
        """Seed of the point's draws, the same for every reading of one release."""
        names = ("model", "layer", "mechanism", "kl_budget", "target_epsilon", "codewords", "seed")
        text = json.dumps([self.settings[name] for name in names], allow_nan=False)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def sweep(
    model: LanguageModel,
    layers: Iterable[int],
    mechanisms: Iterable[str],
    budgets: Iterable[float],
    attackers: Sequence[str] = ("euclidean", "mahalanobis"),
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

    Every Gaussian mechanism stands at every KL budget ``K = ½ tr(FΣ)`` and, scaled to it, at every
    Rényi ε of order 2 over nearest neighbours of the bank. Every codebook stands at every C. Both
    are read under protocol A (the earlier positions stay clean) and B (the release alone).

    Args:
        model: the language model.
        layers: each 1 … L.
        mechanisms: Gaussian ones, such as ``"isotropic"``, ``"inverse-fisher"``,
            ``"inverse-fisher-diagonal"``, ``"mahalanobis-optimal"``, ``"power(0.5)"``,
            ``"generalized-eigen(1)"``, ``"complement"``, ``"worst-case"``; and codebooks:
            ``"codebook-euclidean"``, ``"codebook-fisher"``, ``"codebook-behaviour"``,
            ``"codebook-decision"``, ``"argmax"``.
        budgets: K > 0 in nats, for the Gaussian mechanisms.
        attackers: of ``"euclidean"``, ``"complement"``, ``"weighted"``, ``"mahalanobis"``; against
            a codebook the one attacker is exact and needs no list.
        prefixes: bank (the secrets), calibration (public); disjoint.
        codewords: C, 2 … the calibration prompts, for the codebooks.
        epsilons: ε > 0, for the Gaussian mechanisms at equal ε.
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
    wanted = Sizes() if sizes is None else sizes
    kept = wanted.within(prefixes)
    names = [check_mechanism(name) for name in mechanisms]
    seed = integer("rng", rng, minimum=0) if isinstance(rng, int) else _seed(rng)
    jobs = list(
        _jobs(
            model,
            [integer("layers", layer, minimum=1, maximum=model.layers) for layer in layers],
            names,
            [positive("budgets", budget) for budget in budgets],
            [positive("epsilons", epsilon) for epsilon in epsilons],
            _cells(codewords, names, len(prefixes.calibration)),
            [choice("readings", reading, NOISE_READINGS) for reading in readings],
            {
                "attackers": [choice("attackers", name, ATTACKERS) for name in attackers],
                "bank": _fingerprint(prefixes.bank),
                "calibration": _fingerprint(prefixes.calibration),
                "sizes": asdict(kept),
                "seed": seed,
            },
        )
    )
    if not jobs:
        raise ValueError("mechanisms: expected at least one mechanism with a budget, got none")
    if any(is_gaussian(job.settings["mechanism"]) for job in jobs) and not attackers:
        raise ValueError("attackers: expected at least one, got none")
    table = Table(out)
    wished = tuple(dict.fromkeys(job.settings["layer"] for job in jobs if job.key not in table))
    place = Bench(model, prefixes, kept, seed, wished) if bench is None else bench
    for done, job in enumerate(jobs):
        if progress is not None:
            progress(_label(job.settings), done, len(jobs))
        if job.key not in table:
            table.add(job.key, place.measure(job))
    if progress is not None:
        progress("done", len(jobs), len(jobs))
    return tuple(table[job.key] for job in jobs)


def _cells(codewords: Iterable[int], names: list[str], most: int) -> list[int]:
    """Return C of every codebook asked for, none where none is; argmax has its own."""
    if not any(name.startswith("codebook") for name in names):
        return []
    return [integer("codewords", size, minimum=2, maximum=most) for size in codewords]


def _jobs(
    model: LanguageModel,
    layers: list[int],
    names: list[str],
    budgets: list[float],
    epsilons: list[float],
    codewords: list[int],
    readings: list[str],
    shared: Mapping[str, Any],
) -> Iterator[Job]:
    blank = {"kl_budget": None, "target_epsilon": None, "codewords": None}
    for layer in layers:
        for name in names:
            base = {"model": model.name, "layer": layer, "mechanism": name, **shared, **blank}
            if is_gaussian(name):
                levels = [{"kl_budget": budget} for budget in budgets]
                levels += [{"target_epsilon": epsilon} for epsilon in epsilons]
                read: Sequence[str] = readings
            else:
                # an argmax has as many codewords as there are tokens
                sizes = [model.vocabulary] if name == "argmax" else codewords
                levels = [{"codewords": size} for size in sizes]
                read = ("states", "table")
            for level in levels:
                for reading in read:
                    held = {"reading": reading, "protocol": PROTOCOLS[reading]}
                    yield Job({**base, **level, **held})


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
    _readings: Readings | None = field(default=None, repr=False)
    _laboratory: Laboratory | None = None
    _noise: NoiseRelease | None = None
    _codebooks: CodebookReleases | None = field(default=None, repr=False)

    def measure(self, job: Job) -> Point:
        """Measure one point."""
        start = time.perf_counter()
        settings = job.settings
        laboratory = self.at(settings["layer"])
        point = self._point(laboratory, job)
        return Point(
            model=self.model.name,
            layer=laboratory.layer,
            mechanism=settings["mechanism"],
            reading=settings["reading"],
            protocol=settings["protocol"],
            bank=len(laboratory.bank),
            prompts=self.sizes.prompts,
            seed=self.seed,
            draw=job.seed,
            seconds=round(time.perf_counter() - start, 3),
            **point,
        )

    def _point(self, laboratory: Laboratory, job: Job) -> dict[str, Any]:
        settings = job.settings
        if is_gaussian(settings["mechanism"]):
            if self._noise is None or self._noise.seed != job.seed:
                design = design_at(
                    laboratory,
                    settings["mechanism"],
                    kl_budget=settings["kl_budget"],
                    epsilon=settings["target_epsilon"],
                )
                self._noise = NoiseRelease(laboratory, design.covariance, job.seed)
            return {
                **self._noise.point(settings["reading"], settings["attackers"]),
                "target_epsilon": settings["target_epsilon"],
                **({} if settings["kl_budget"] is None else {"kl_budget": settings["kl_budget"]}),
            }
        if self._codebooks is None:
            self._codebooks = CodebookReleases(laboratory)
        return self._codebooks.point(
            settings["mechanism"], settings["codewords"], settings["reading"], job.seed
        )

    def certificate(self, laboratory: Laboratory, point: Point) -> CodeCertificate:
        """Return the theorems about a codebook's point, fitting it where it was not before."""
        if self._codebooks is None:
            self._codebooks = CodebookReleases(laboratory)
        return self._codebooks.certificate(point.mechanism, point.codewords or 0, point.draw)

    def at(self, layer: int) -> Laboratory:
        """Return the layer made ready."""
        if self._laboratory is None or self._laboratory.layer != layer:
            self._noise = self._codebooks = self._laboratory = None
            if self._readings is None or layer not in self._readings.bank.states:
                layers = {layer, *self.layers}
                self._readings = Readings.of(self.model, self.prefixes, layers)
            self._laboratory = Laboratory.prepare(
                self.model, layer, self.prefixes, self.sizes, seed=self.seed,
                readings=self._readings,
            )  # fmt: skip
        return self._laboratory


def design_at(
    laboratory: Laboratory, name: str, *, kl_budget: float | None, epsilon: float | None
) -> Design:
    """Return a named design that costs K, or scaled to ε over the bank's nearest neighbours.

    Raises:
        ValueError: a design that leaves a difference bare, which no scale brings to a finite ε.
    """
    differences = laboratory.nearest
    if epsilon is None:
        return laboratory.designs.named(name, kl_budget or 0.0)
    design = laboratory.designs.named(name, 1.0)
    reached = laboratory.epsilon(differences, design.covariance)
    if not np.isfinite(reached):
        raise ValueError(
            f"epsilons: {name} leaves directions without noise, so no scale reaches ε = {epsilon:g}"
        )
    # ε is linear in Σ⁻¹
    return scaled_design(design, reached / epsilon)


def _label(settings: Mapping[str, Any]) -> str:
    level = next(
        f"{sign} = {settings[name]:g}"
        for name, sign in (("kl_budget", "K"), ("target_epsilon", "ε"), ("codewords", "C"))
        if settings[name] is not None
    )
    return f"layer {settings['layer']}, {settings['mechanism']}, {level}, {settings['reading']}"


def _fingerprint(tokens: Any) -> str:
    rows = np.ascontiguousarray(np.asarray(tokens, dtype=np.int64))
    return f"{len(rows)}:{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}"


def _seed(rng: RandomSource) -> int:
    return int(generator(rng).integers(2**53))
