"""One layer made ready for measurement: its states, its consumer and its attackers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from tacit._ground.checks import Array, integer
from tacit.accounting import renyi_over_adjacency
from tacit.attacks.intervals import mean_interval
from tacit.attacks.last_token.candidates import (
    Continued,
    LastTokenCandidates,
    candidate_states,
    list_candidates,
    predicted,
)
from tacit.attacks.last_token.tokens import CandidateTokens
from tacit.attacks.retrieval.attack import RetrievalAttack, retrieve
from tacit.attacks.retrieval.metrics import Euclidean, Metric
from tacit.covariance import Covariance
from tacit.guarantees import RenyiDP
from tacit.hidden_states.audit.points import ORDER, AttackPoint
from tacit.hidden_states.audit.request import Sizes
from tacit.hidden_states.geometry.estimation import Geometry, measure_geometry
from tacit.hidden_states.geometry.methods import GeometryFit
from tacit.hidden_states.geometry.spread import adjacency_differences
from tacit.hidden_states.geometry.utility import Outcomes, outcomes, summarise
from tacit.hidden_states.noise.preparing import ORDERS
from tacit.hidden_states.noise.shapes import Designs
from tacit.measured import Interval
from tacit.models.behaviours import Behaviours
from tacit.models.continuation import Continuation
from tacit.models.generation import Prefilled
from tacit.models.language import LanguageModel
from tacit.models.padding import PADDING, unpadded
from tacit.models.passes import KEPT_ENTRIES, Pass, Passes, seen
from tacit.models.texts.prefixes import Prefixes

# Held-out prompts whose keys and values are kept in one continuation.
PROMPTS_TOGETHER = 1000
# Tokens that are generated after a prompt.
STEPS = 8
# Of every interval of a point, each alone.
CONFIDENCE = 0.95
# Numbers of candidates at which the success of attacks is reported.
CURVE = (2, 10, 100, 1000, 10_000, 100_000)

Reader = Callable[[Continuation, slice], Tensor]


@dataclass(frozen=True, eq=False)
class Laboratory:
    """What the points of one layer share.

    Attributes:
        model: the language model.
        layer: 1 … L.
        prefixes: bank, calibration and held-out prompts.
        sizes: how much is measured.
        bank: states of the bank, (N, d) float32.
        bank_behaviours: what the model predicts for it.
        measured: states of the held-out prompts on which use is measured, (n, d) float32.
        measured_behaviours: what the model predicts for them.
        calibration: states of the calibration prompts, (M, d) float32.
        calibration_behaviours: what the model predicts for them.
        geometry: F and S, from calibration prompts.
        nearest: differences of nearest neighbours in the bank, (m, d).
        random: differences of random pairs of the bank, (m, d).
        readers: the layers above, ready for the held-out prompts.
        releases: T, positions of a prompt that are released, the last and those before it.
        ready: the calibration prompts codewords are trained on, where they were continued already.
    """

    model: LanguageModel
    layer: int
    prefixes: Prefixes
    sizes: Sizes
    bank: Tensor
    bank_behaviours: Behaviours
    measured: Tensor
    measured_behaviours: Behaviours
    calibration: Tensor
    calibration_behaviours: Behaviours
    geometry: Geometry
    nearest: Array
    random: Array
    readers: tuple[Continuation, ...] = field(repr=False)
    releases: int = 1
    ready: Continuation | None = field(default=None, repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def prepare(
        cls,
        model: LanguageModel,
        layer: int,
        prefixes: Prefixes,
        sizes: Sizes,
        *,
        seed: int,
        passes: Passes | None = None,
        releases: int = 1,
    ) -> Laboratory:
        """Measure the geometry of one layer, and read its states where they were not before."""
        shortest = int((prefixes.bank != PADDING).sum(dim=1).min())
        integer("releases", releases, minimum=1, maximum=shortest)
        kept = sizes.within(prefixes)
        level = integer("layer", layer, minimum=1, maximum=model.layers)
        longest = prefixes.held_out.shape[1]
        if kept.generated and longest + STEPS - 1 > model.context:
            raise ValueError(
                f"generated: expected prompts of at most {model.context - STEPS + 1} tokens to "
                f"continue, got {longest}"
            )
        read = Passes.of(model, prefixes, [level], kept.trained) if passes is None else passes
        readers = tuple(
            model.continuation(part, level)
            for part in torch.split(prefixes.held_out[: kept.prompts], PROMPTS_TOGETHER)
        )
        use = Pass.stored(model, kept.prompts, [level], seen(readers))
        bank = read.bank.states[level]
        # a stream of its own for every layer, so that one does not depend on which others are read
        source = np.random.default_rng([seed, level])
        run = None
        if read.learnt is not None and len(read.learnt) >= kept.geometry:
            run = read.learnt.select(slice(kept.geometry))
        measured = measure_geometry(
            model,
            level,
            prefixes.calibration[: kept.geometry],
            GeometryFit(difference_scale="raw"),
            run=run,
            rng=source,
        )
        rows = bank.double().cpu().numpy()
        return cls(
            model=model,
            layer=level,
            prefixes=prefixes,
            sizes=kept,
            bank=bank,
            bank_behaviours=read.bank.behaviours,
            measured=use.states[level],
            measured_behaviours=use.behaviours,
            calibration=read.calibration.states[level],
            calibration_behaviours=read.calibration.behaviours,
            geometry=measured,
            nearest=adjacency_differences(rows, kept.pairs, kind="nearest", rng=source),
            random=adjacency_differences(rows, kept.pairs, kind="random", rng=source),
            readers=readers,
            releases=releases,
            ready=read.learnt,
        )

    @cached_property
    def earlier(self) -> tuple[Pass, ...]:
        """The bank read at the positions before the last that are released, T − 1 of them."""
        # a causal model is at position t after a prompt what it is after its first t tokens
        length = self.prefixes.bank.shape[1]
        return tuple(
            Pass.of(
                self.model, self.prefixes.bank[:, : length - back], [self.layer], most=KEPT_ENTRIES
            )
            for back in range(1, self.releases)
        )

    @cached_property
    def learnt(self) -> Continuation:
        """The layers above, ready for the calibration prompts codewords are trained on."""
        if self.ready is not None:
            return self.ready
        tokens = self.prefixes.calibration[: self.sizes.trained]
        return self.model.continuation(tokens, self.layer)

    @cached_property
    def designs(self) -> Designs:
        """The Gaussian designs of this layer."""
        return Designs(self.geometry, self.nearest)

    @cached_property
    def last_tokens(self) -> Any:
        """The last token of every prompt of the bank, (N,)."""
        return self.prefixes.bank[:, -1].numpy()

    @cached_property
    def texts(self) -> tuple[list[str], list[str]] | None:
        """The prompts of the bank and the calibration as text, None without a tokenizer."""
        if self.model.tokenizer is None:
            return None
        sets = self.prefixes.bank, self.prefixes.calibration
        bank, public = ([self.model.decode(row) for row in unpadded(part)] for part in sets)
        return bank, public

    def continued(
        self, places: Array, candidates: int, predicts: bool
    ) -> tuple[list[LastTokenCandidates], Iterable[Continued]]:
        """Return prompts of the bank run with candidates in the last token's place.

        Predictions are kept in half precision, as those of the bank; where even so they would be
        too many to keep they are made anew for every release.
        """
        prompts, asked = self.prefixes.bank[places], (len(places), candidates)
        listed: list[LastTokenCandidates] = self.kept(
            ("candidates", *asked),
            lambda: list_candidates(
                self.model,
                prompts,
                CandidateTokens(count=candidates, public=self.prefixes.calibration[:, -1]),
            ),
        )

        states: Tensor = self.kept(
            ("states", *asked),
            lambda: candidate_states(self.model, self.layer, listed),
        )
        if not predicts:
            return listed, [Continued(states, None)]

        def rows() -> Iterator[Continued]:
            return predicted(self.model, self.layer, listed, states, precision=torch.float16)

        if self.model.vocabulary * len(states) > KEPT_ENTRIES:
            return listed, rows()
        return listed, self.kept(("rows", *asked), lambda: list(rows()))

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made under a key before, or make it: what several releases share."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @cached_property
    def clean_text(self) -> Tensor:
        """What the model itself generates after the first held-out prompts, (n, 8)."""
        return torch.cat([run.generate(self.layer, None, STEPS) for run in self._prefilled])

    @cached_property
    def _prefilled(self) -> list[Prefilled]:
        """The held-out prompts to be continued, read once but for their last token."""
        return self.model.prefilled(self.prefixes.held_out[: self.sizes.generated])

    @property
    def attacked(self) -> slice:
        """Rows of the bank whose releases are attacked, from the first."""
        return slice(0, self.sizes.queries)

    @property
    def tuned(self) -> slice:
        """Rows of the bank on whose releases attackers are tuned."""
        return slice(self.sizes.queries, self.sizes.queries + self.sizes.held_out)

    def renyi(self, covariance: Covariance) -> RenyiDP:
        """Rényi guarantee of one state over nearest neighbours of the bank."""
        return renyi_over_adjacency(self.nearest, covariance, ORDERS)

    def epsilon(self, differences: Array, covariance: Covariance) -> float:
        """Rényi ε of order 2 over an adjacency set, rounded up; inf where Σ is bare."""
        return renyi_over_adjacency(differences, covariance, (ORDER,)).epsilons[0]

    def reads_states(self, states: Tensor) -> Reader:
        """Return the consumer of protocol A: the layers above read these states, (n, d)."""
        return lambda run, rows: run.logits(states[rows]).log_softmax(dim=-1)

    @torch.no_grad()
    def utility(self, reader: Reader) -> dict[str, Interval | None]:
        """Measure what becomes of the predictions after held-out prompts.

        Returns:
            ``kl``, ``kl_median``, ``kl_95`` and ``jensen_shannon`` in nats, ``agreement`` and
            ``top5`` as shares; None for a quantile of more prompts than there are.
        """
        parts = [outcomes(run.clean_logits, reader(run, rows)) for run, rows in self.batches()]
        found = Outcomes.join(parts)
        use = summarise(found, confidence=CONFIDENCE)
        return {
            "kl": normal_mean(found.kl),
            "kl_median": _bounded(use.median, use.median_interval),
            "kl_95": _bounded(use.large, use.large_interval),
            "jensen_shannon": _bounded(use.jensen_shannon, use.jensen_shannon_interval),
            "agreement": Interval(use.agreement, *use.agreement_interval),
            "top5": _bounded(use.top5, use.top5_interval),
        }

    def generated(self, states: Tensor) -> Interval | None:
        """Measure the share of 8 greedily generated tokens that stay the same (protocol A)."""
        count = self.sizes.generated
        if not count:
            return None
        parts = torch.split(states[:count], [len(run) for run in self._prefilled])
        text = torch.cat(
            [
                run.generate(self.layer, own, STEPS)
                for run, own in zip(self._prefilled, parts, strict=True)
            ]
        )
        shares = (text == self.clean_text).double().mean(dim=1).cpu().numpy()
        low, high = mean_interval(shares, CONFIDENCE)
        return Interval(float(shares.mean()), low, high)

    def batches(self) -> Iterator[tuple[Continuation, slice]]:
        """Yield the layers above for some held-out prompts, and which rows those are."""
        start = 0
        for run in self.readers:
            yield run, slice(start, start + len(run))
            start += len(run)

    def retrieval(
        self,
        name: str,
        bank: Any,
        released: Any,
        *,
        metric: Metric | None = None,
        seed: int | None = None,
    ) -> AttackPoint:
        """Rank the bank for what was released of the attacked rows.

        Args:
            name: of the attacker.
            bank: (N, k) what the attacker holds of every candidate.
            released: (n, k) released of the first rows of the bank, those attacked or more.
            metric: the distance; plain when None.
            seed: of the attacker's own draws.
        """
        # row i of the release is of prompt i of the bank
        found = retrieve(
            bank,
            released[self.attacked],
            np.arange(self.sizes.queries),
            metric=Euclidean() if metric is None else metric,
            last_tokens=self.last_tokens,
            confidence=CONFIDENCE,
            rng=seed,
        )
        return _attack_point(name, found, len(self.bank))


def _bounded(value: float, interval: tuple[float, float]) -> Interval | None:
    low, high = interval
    # an infinite end: there are too few prompts for that quantile
    return None if math.isinf(high) else Interval(value, min(low, value), max(high, value))


def normal_mean(values: Array) -> Interval:
    """Return a mean with its normal interval, not below zero."""
    # z s/√n: by the normal law of a mean; the tail of KL is heavy, so its quantiles stand beside it
    error = float(-special.ndtri((1 - CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(values.size))
    mean = max(0.0, float(values.mean()))
    return Interval(mean, max(0.0, mean - error), mean + error)


def curve_sizes(bank: int) -> tuple[int, ...]:
    """Return the numbers of candidates at which attacks are reported, the whole bank last."""
    return (*(size for size in CURVE if size < bank), bank)


def _attack_point(name: str, found: RetrievalAttack, bank: int) -> AttackPoint:
    assert found.last_token is not None
    assert found.last_token_interval is not None
    return AttackPoint(
        name=name,
        top1=Interval(found.top1, *found.top1_interval),
        top10=Interval(found.top10, *found.top10_interval),
        top100=Interval(found.top100, *found.top100_interval),
        last_token=Interval(found.last_token, *found.last_token_interval),
        candidates=tuple(
            (point.size, min(1.0, point.success)) for point in found.among(curve_sizes(bank))
        ),
        floor=found.floor,
    )
