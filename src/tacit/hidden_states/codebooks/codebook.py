"""Release which of C codewords a state is nearest to: what it tells is bounded by counting."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import RandomSource, choice, generator, integer, non_negative
from tacit._ground.reprs import short_repr
from tacit.compute import progress_bar
from tacit.documents import check_known
from tacit.guarantees import MaximalLeakage
from tacit.hidden_states.codebooks.assignment import cheapest_cells, nearest_cells
from tacit.hidden_states.codebooks.certificates import (
    CodeCertificate,
    Codes,
    certify,
    checked_codes,
    codes_leakage,
    compose,
)
from tacit.hidden_states.codebooks.clustering import likeliest_codes
from tacit.hidden_states.codebooks.fitting import CODEWORDS, METRICS, Effort, Plan, fit_cells
from tacit.hidden_states.codebooks.least_cells import LEAST_CELL
from tacit.hidden_states.codebooks.response import RandomizedCodes, nearest_codes
from tacit.hidden_states.codebooks.shapes import (
    check_log_probabilities,
    check_matrix,
    check_network,
)
from tacit.hidden_states.codebooks.storage import (
    PREDICTOR,
    TENSORS,
    malformed,
    read_codebook,
    write_codebook,
)
from tacit.hidden_states.codebooks.training import (
    Predictor,
    Upper,
    train_predictor,
    try_codewords,
)
from tacit.hidden_states.origin import Origin, digest_of, origin_from, published
from tacit.models.behaviours import Behaviours, as_states


@short_repr
@dataclass(frozen=True, eq=False)
class Codebook:
    """C cells, a state that stands for each, and what the model does next in each.

    Consumer protocol A continues from ``decode(code)`` with the earlier positions clean; protocol
    B has the code alone and reads ``distributions(code)``.

    Attributes:
        metric: what makes two prompts near: ``"euclidean"``, ``"fisher"``, ``"behaviour"`` (KL of
            the model's output) or ``"argmax"`` (the code is the model's likeliest token).
        kind: ``"centroid"``, ``"medoid"`` or ``"trained"`` codewords.
        codewords: (C, d) of float32.
        table: (C, V) log-probabilities of the next token, or None.
        centres: (C, k) what states are assigned by, or None where behaviours decide.
        root: (d, k), the root of the Fisher information, or None.
        predictor: reads the code off a state alone, or None.
        calibration: prompts it was fitted on.
        decision_cost: λ >= 0 in nats, what a changed likeliest token counts besides KL.
        least_cell: calibration prompts that codewords, centres and table rows are averages of at
            least; 1 where some may be those of a single prompt.
        origin: model, layer and calibration prompts by digest; None where they are not known.
    """

    metric: str
    kind: str
    codewords: Tensor
    table: Tensor | None
    centres: Tensor | None
    root: Tensor | None
    predictor: Predictor | None
    calibration: int
    decision_cost: float = 0.0
    least_cell: int = 1
    origin: Origin | None = None

    def __post_init__(self) -> None:
        choice("metric", self.metric, METRICS)
        choice("kind", self.kind, CODEWORDS)
        for name in ("calibration", "least_cell"):
            integer(name, getattr(self, name), minimum=1)
        non_negative("decision_cost", self.decision_cost)
        check_matrix("codewords", self.codewords)
        by_state = self.metric in ("euclidean", "fisher")
        for name, needed in (("centres", by_state), ("root", self.metric == "fisher")):
            if (getattr(self, name) is not None) != needed:
                raise ValueError(
                    f"{name}: metric {self.metric!r} {'needs' if needed else 'has none'}"
                )
        if self.table is None and not by_state:
            raise ValueError(f"table: metric {self.metric!r} needs one, got None")
        mapped = self.width
        if self.root is not None:
            check_matrix("root", self.root, rows=self.width)
            mapped = int(self.root.shape[1])
        if self.centres is not None:
            check_matrix("centres", self.centres, rows=self.size, columns=mapped)
        if self.table is not None:
            tokens = self.size if self.metric == "argmax" else None
            check_matrix("table", self.table, rows=self.size, columns=tokens)
            check_log_probabilities("table", self.table)
        if self.predictor is not None:
            check_network("predictor", self.predictor)
            told = (len(self.predictor.mean), len(self.predictor.head.bias))
            if told != (self.width, self.size):
                raise ValueError(
                    f"predictor: expected {self.size} codes of {self.width} numbers, got {told[1]} "
                    f"of {told[0]}"
                )

    @property
    def size(self) -> int:
        """C."""
        return len(self.codewords)

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return what T codes multiply any attacker's chance of guessing anything right by: C^T.

        Source: Issa, Wagner and Kamath (2020), Theorem 1.
        """
        return codes_leakage(self.size, integer("releases", releases, minimum=1))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of every part of a code: C alone."""
        return (self.size,)

    @property
    def width(self) -> int:
        """d, numbers in a state."""
        return int(self.codewords.shape[1])

    @property
    def words(self) -> str:
        """What a code says, in a few words."""
        return f"which of {self.size:,} cells ({self.metric}) the state lies in"

    @property
    def digest(self) -> str:
        """SHA-256 of all that assigns and decodes."""
        held = self._tensors() if self.predictor is None else {
            **self._tensors(), **{PREDICTOR + k: v for k, v in self.predictor.state_dict().items()}
        }  # fmt: skip
        return digest_of(held, f"{self.metric} {self.decision_cost!r}")

    @classmethod
    def fit(
        cls,
        states: ArrayLike,
        *,
        size: int | None = None,
        metric: str = "euclidean",
        codewords: str = "centroid",
        behaviours: Any = None,
        fisher: ArrayLike | None = None,
        continuation: Upper | None = None,
        epochs: int = 4,
        rounds: int = 3,
        joint_rounds: int = 0,
        predictor_epochs: int = 0,
        decision_cost: float = 0.0,
        least_cell: int = LEAST_CELL,
        rng: RandomSource = None,
        progress: bool | None = None,
    ) -> Codebook:
        """Fit cells and codewords on public calibration prompts, disjoint from what is released.

        A cell of fewer than ``least_cell`` prompts is removed, its prompts going to the next best
        one, so that every codeword, centre and row of the table is an average of at least so many
        (a ``"trained"`` one learnt from as many). That is no guarantee for the calibration
        prompts: they are public. A ``"medoid"`` is one of their states as it is, and a predictor
        learns from all of them.

        Args:
            states: (n, d) clean states of the calibration prompts.
            size: C at most; the vocabulary with ``"argmax"``.
            metric: as the attribute.
            codewords: the mean state of a cell, the state nearest to it, or trained by KL through
                the layers above with the cells fixed.
            behaviours: (n, V) logits or log-probabilities, or ``Behaviours``; with the last two
                metrics and with trained codewords.
            fisher: (d, d) or (d,), with ``"fisher"``.
            continuation: of the first m <= n calibration prompts, with trained codewords.
            epochs: passes over them.
            rounds: rounds of assignment by KL.
            joint_rounds: times that cells are assigned anew by trial and codewords trained again.
            predictor_epochs: passes in which the predictor learns; 0 for none.
            decision_cost: λ >= 0, with ``"behaviour"``: cells, codewords and assignment minimise
                ``KL(p ‖ q) + λ·1[argmax p ≠ argmax q]``. A large one makes a product code: the
                likeliest token times cells of behaviour, as many of a token as are worth it.
            least_cell: prompts of a cell at least; tokens rarer than that, with ``"argmax"``, keep
                their code and share a codeword.
            rng: source of the choices.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The codebook.

        Raises:
            ValueError: a bad argument, or one that the metric does not need.

        Example:
            >>> rows = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
            >>> book = Codebook.fit(rows, size=16, rng=0)
            >>> found = book.certify(book.assign(rows))
            >>> found.leakage.factor, found.success.success
            (14.0, 0.028)
            >>> book = Codebook.fit(rows, size=8, rng=0)
            >>> book.certify(book.assign(rows)).success.success
            0.016

        Source: k-means++ (Arthur and Vassilvitskii, 2007); Bregman clustering (Banerjee et al.,
        2005) for cells of behaviour.
        """
        plan = Plan.check(
            states, size, metric, codewords, behaviours, fisher, continuation, decision_cost,
            least_cell,
        )  # fmt: skip
        effort = Effort.check(epochs, rounds, joint_rounds, predictor_epochs)
        source = generator(rng)
        steps = effort.steps(codewords)
        with progress_bar(steps, "codebook", shown=progress is not False) as advance:
            found = fit_cells(plan, effort, codewords, source, advance)
            predictor = None
            if effort.predictor_epochs:
                predictor = train_predictor(
                    plan.states,
                    found.cells,
                    len(found.codewords),
                    epochs=effort.predictor_epochs,
                    source=source,
                    advance=advance,
                )
        return cls(
            metric=metric,
            kind=codewords,
            codewords=found.codewords,
            table=found.table,
            centres=found.centres,
            root=plan.root,
            predictor=predictor,
            calibration=len(plan.states),
            decision_cost=plan.decision_cost,
            least_cell=plan.least_cell,
        )

    def assign(
        self,
        states: ArrayLike | None = None,
        *,
        behaviours: Any = None,
        continuation: Upper | None = None,
        tries: int = 1,
    ) -> Codes:
        """Return the code of every prompt, (n,).

        By the nearest centre where a metric of states was fitted; by the least cost, or the
        likeliest token, where behaviours decide. With ``tries`` > 1 the codewords of least cost in
        the table are run through the layers above and the one of least cost there is taken.

        Args:
            states: (n, d); nothing else is needed by ``"euclidean"`` and ``"fisher"``.
            behaviours: (n, V), as for ``fit``.
            continuation: of the same prompts, with ``tries`` > 1.
            tries: codewords tried for each prompt.

        Raises:
            ValueError: what the metric needs is missing, or a bad argument.
        """
        count = integer("tries", tries, minimum=1, maximum=self.size)
        if (count > 1) != (continuation is not None):
            raise ValueError("continuation: expected together with tries > 1")
        known = None if behaviours is None else self._behaviours(behaviours)
        if continuation is not None:
            return self._by_trial(known, continuation, count).numpy()
        if self.centres is not None:
            if states is None:
                raise ValueError(f"states: expected some with metric {self.metric!r}")
            return nearest_cells(self._mapped(states), self.centres)
        if known is None:
            raise ValueError(
                f"behaviours: expected some with metric {self.metric!r}; predict(states) reads "
                "codes off states alone"
            )
        if self.metric == "argmax":
            return known.argmax().numpy()
        assert self.table is not None
        return cheapest_cells(known, self.table, self.decision_cost)

    def _by_trial(self, known: Behaviours | None, continuation: Upper, tries: int) -> Tensor:
        if known is None or self.table is None:
            raise ValueError("behaviours: expected together with tries > 1, here and in fit")
        if len(known) != len(continuation):
            raise ValueError(
                f"continuation: expected {len(known)} prompts, got {len(continuation)}"
            )
        cost = self.decision_cost
        candidates = likeliest_codes(known, self.table, tries, cost)
        return try_codewords(continuation, known, self.codewords, candidates, cost)

    def predict(self, states: ArrayLike) -> Codes:
        """Read the code of every state off the state alone, (n,): the predictor's guess.

        Raises:
            ValueError: no predictor was fitted.
        """
        if self.predictor is None:
            raise ValueError("predictor: none was fitted; fit with predictor_epochs > 0")
        rows = as_states("states", states, width=self.codewords.shape[1])
        return self.predictor.codes(rows).numpy()

    def decode(self, codes: ArrayLike) -> Tensor:
        """Return the state that stands for each code, (n, d): consumer protocol A."""
        return self.codewords[self._checked(codes)]

    def distributions(self, codes: ArrayLike) -> Tensor:
        """Return log-probabilities of the next token for each code, (n, V): protocol B.

        Raises:
            ValueError: a bad code, or no behaviours were given to ``fit``.
        """
        if self.table is None:
            raise ValueError("table: none without behaviours in fit")
        return self.table[self._checked(codes)]

    def certify(self, codes: ArrayLike, *, weights: ArrayLike | None = None) -> CodeCertificate:
        """Bound what codes tell, by a factor and of this bank: see ``certificates.certify``."""
        return certify(codes, self.size, weights=weights)

    def compose(
        self, releases: int, candidates: int, *, weights: ArrayLike | None = None
    ) -> CodeCertificate:
        """Bound T releases without a bank: see ``certificates.compose``."""
        return compose(self.size, releases, candidates, weights=weights)

    def randomised(self, epsilon: float, *, near: int = 1) -> RandomizedCodes:
        """Return randomised response over the ``near`` codes most like the true one.

        Nearness is KL between rows of the table where behaviours decide, and distance of centres
        otherwise.
        """
        if self.size < 2:
            raise ValueError("epsilon: expected a codebook of at least 2 cells, got one of 1")
        if integer("near", near, minimum=1, maximum=self.size - 1) == 1:
            return RandomizedCodes(epsilon, np.arange(self.size)[:, None])
        if self.centres is not None:
            distance = torch.cdist(self.centres, self.centres)
        else:
            assert self.table is not None
            distance = -(self.table.exp() @ self.table.T)
        return RandomizedCodes(epsilon, nearest_codes(distance.numpy(), near))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the codebook as safetensors, whole or not at all.

        Raises:
            ValueError: the file cannot be written.
        """
        return write_codebook(path, self._tensors(), self.predictor, self._about())

    def _about(self) -> dict[str, Any]:
        names = ("metric", "kind", "calibration", "decision_cost", "least_cell")
        return {name: getattr(self, name) for name in names} | published(self.origin)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Codebook:
        """Read what ``save`` wrote.

        Raises:
            ValueError: no such file, or not a codebook.
        """
        tensors, predictor, about = read_codebook(path)
        with malformed(path):
            found = cls(
                metric=about["metric"],
                kind=about["kind"],
                calibration=about["calibration"],
                decision_cost=about.get("decision_cost", 0.0),
                least_cell=about.get("least_cell", 1),
                origin=origin_from(about.get("origin")),
                codewords=tensors["codewords"],
                table=tensors.get("table"),
                centres=tensors.get("centres"),
                root=tensors.get("root"),
                predictor=predictor,
            )
            check_known("path", about, found._about())
            return found

    def _tensors(self) -> dict[str, Tensor]:
        held = {name: getattr(self, name) for name in TENSORS}
        return {name: value for name, value in held.items() if isinstance(value, Tensor)}

    def _behaviours(self, value: Any) -> Behaviours:
        known = Behaviours.of(value)
        if self.table is not None and known.vocabulary != self.table.shape[1]:
            raise ValueError(
                f"behaviours: expected {self.table.shape[1]} columns, got {known.vocabulary}"
            )
        return known

    def _mapped(self, states: Any) -> Tensor:
        rows = as_states("states", states, width=self.codewords.shape[1])
        return rows if self.root is None else rows @ self.root

    def _checked(self, codes: Any) -> Tensor:
        found = checked_codes("codes", codes, self.size, least=1)
        if found.ndim != 1:
            raise ValueError(f"codes: expected shape (n,), got {found.shape}")
        return torch.from_numpy(found)
