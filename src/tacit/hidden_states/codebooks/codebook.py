"""Release which of C codewords a state is nearest to: what it tells is bounded by counting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import RandomSource, choice, generator, integer, non_negative
from tacit._ground.reprs import short_repr
from tacit._ground.values import field_kinds
from tacit.codec import APART
from tacit.compute import progress_bar
from tacit.hidden_states.codebooks.certificates import (
    CodeCertificate,
    Codes,
    certify,
    checked_codes,
)
from tacit.hidden_states.codebooks.clustering import (
    cheapest_cells,
    likeliest_codes,
    nearest_cells,
)
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.fitting import CalibrationSet, fit_cells, steps_of
from tacit.hidden_states.codebooks.methods import CodebookFit
from tacit.hidden_states.codebooks.response import RandomizedCodes, nearest_codes
from tacit.hidden_states.codebooks.training import (
    Predictor,
    Upper,
    train_predictor,
    try_codewords,
)
from tacit.hidden_states.origin import Origin, digest_of
from tacit.hidden_states.tensors import check_log_probabilities, check_matrix, check_network
from tacit.models.behaviours import Behaviours, as_states

METRICS, CODEWORDS = (
    get_args(field_kinds(CodebookFit)[name][0]) for name in ("metric", "codewords")
)
# tensors of its file, those of the predictor under its name
TENSORS = ("codewords", "table", "centres", "root")
PREDICTOR = "predictor."


@short_repr
@dataclass(frozen=True, eq=False)
class Codebook(Codec):
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

    form: ClassVar[str] = "tacit-codebook-2"

    metric: str
    kind: str
    codewords: Annotated[Tensor, APART]
    table: Annotated[Tensor | None, APART]
    centres: Annotated[Tensor | None, APART]
    root: Annotated[Tensor | None, APART]
    predictor: Annotated[Predictor | None, APART]
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
        # what assigns is either centres of states or a table of behaviours, never neither
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
            # a code of "argmax" is a token, so the table is square
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
    def sizes(self) -> tuple[int, ...]:
        """Cells of every part of a code: C alone."""
        return (len(self.codewords),)

    @property
    def width(self) -> int:
        """d, numbers in a state."""
        return int(self.codewords.shape[1])

    @property
    def words(self) -> str:
        return f"which of {self.size:,} cells ({self.metric}) the state lies in"

    @property
    def digest(self) -> str:
        return digest_of(self._tensors(), f"{self.metric} {self.decision_cost!r}")

    @property
    def centroids(self) -> tuple[Tensor, ...]:
        """The codewords."""
        return (self.codewords,)

    @classmethod
    def fit(
        cls,
        states: ArrayLike,
        how: CodebookFit,
        *,
        behaviours: Any = None,
        fisher: ArrayLike | None = None,
        continuation: Upper | None = None,
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
            how: cells, what stands for them, and the work that goes in.
            behaviours: (n, V) logits or log-probabilities, or ``Behaviours``; with the metrics
                ``"behaviour"`` and ``"argmax"`` and with trained codewords.
            fisher: (d, d) or (d,), with ``"fisher"``.
            continuation: of the first m <= n calibration prompts, with trained codewords.
            rng: source of the choices.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The codebook.

        Raises:
            ValueError: a bad argument, or one that the metric does not need.

        Example:
            >>> rows = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
            >>> book = Codebook.fit(rows, CodebookFit(size=16), rng=0)
            >>> found = book.certify(book.assign(rows))
            >>> found.leakage.factor, found.success.success
            (14.0, 0.028)
            >>> book = Codebook.fit(rows, CodebookFit(size=8), rng=0)
            >>> book.certify(book.assign(rows)).success.success
            0.016

        Source: k-means++ (Arthur and Vassilvitskii, 2007); Bregman clustering (Banerjee et al.,
        2005) for cells of behaviour.
        """
        public = CalibrationSet.checked(states, how, behaviours, fisher, continuation)
        source = generator(rng)
        with progress_bar(steps_of(how), "codebook", shown=progress is not False) as advance:
            found = fit_cells(public, source, advance)
            predictor = None
            if how.predictor_epochs:
                predictor = train_predictor(
                    public.states,
                    found.cells,
                    len(found.codewords),
                    epochs=how.predictor_epochs,
                    source=source,
                    advance=advance,
                )
        return cls(
            metric=how.metric,
            kind=how.codewords,
            codewords=found.codewords,
            table=found.table,
            centres=found.centres,
            root=public.root,
            predictor=predictor,
            calibration=len(public.states),
            decision_cost=how.decision_cost,
            least_cell=how.least_cell,
        )

    def encode(self, states: ArrayLike) -> Codes:
        """Return the codes of states alone, (n, 1).

        By the nearest centre, or by the predictor where behaviours decide and one was fitted.

        Raises:
            ValueError: behaviours decide and there is no predictor, or states of another width.
        """
        if self.centres is not None:
            return self.assign(states)[:, None]
        if self.predictor is None:
            raise ValueError(
                f"codebook: one of metric {self.metric!r} without a predictor needs the model's "
                "prediction: give prompts, or a codebook of metric 'euclidean' or 'fisher'"
            )
        return self.predict(states)[:, None]

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
            raise ValueError("continuation: expected a value exactly where tries is above 1")
        known = None if behaviours is None else self._behaviours(behaviours)
        if continuation is not None:
            return self._by_trial(known, continuation, count).numpy()
        if self.centres is not None:
            if states is None:
                raise ValueError(f"states: expected states with metric {self.metric!r}")
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
        # the table's cost is cheap and near; the layers above decide among the few best
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
        """Return the state that stands for each code, (n, d): consumer protocol A.

        Args:
            codes: (n,) or (n, 1).
        """
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
            # KL(q_c ‖ q_c') + H(q_c), which orders the codes c' of a row as KL does
            distance = -(self.table.exp() @ self.table.T)
        return RandomizedCodes(epsilon, nearest_codes(distance.numpy(), near))

    def _tensors(self) -> dict[str, Tensor]:
        held = {name: getattr(self, name) for name in TENSORS}
        learnt = {} if self.predictor is None else self.predictor.state_dict()
        held |= {PREDICTOR + name: value for name, value in learnt.items()}
        return {name: value for name, value in held.items() if isinstance(value, Tensor)}

    @classmethod
    def _apart(cls, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        parts = {
            name.removeprefix(PREDICTOR): value
            for name, value in tensors.items()
            if name.startswith(PREDICTOR)
        }
        if unknown := len(tensors) - len(parts) - len(set(tensors) & set(TENSORS)):
            raise ValueError(f"expected tensors of a codebook, got {unknown} others")
        return {
            **{name: tensors.get(name) for name in TENSORS},
            "predictor": Predictor.of(parts) if parts else None,
        }

    def _behaviours(self, value: Any) -> Behaviours:
        known = Behaviours.of(value)
        if self.table is not None and known.vocabulary != self.table.shape[1]:
            raise ValueError(
                f"behaviours: expected {self.table.shape[1]} columns, got {known.vocabulary}"
            )
        return known

    def _mapped(self, states: Any) -> Tensor:
        rows = as_states("states", states, width=self.codewords.shape[1])
        # F^½h: Euclidean there is Fisher distance here
        return rows if self.root is None else rows @ self.root

    def _checked(self, codes: Any) -> Tensor:
        found = checked_codes("codes", codes, self.size, least=1)
        if found.ndim != 1 and found.shape[1] != 1:
            raise ValueError(f"codes: expected shape (n,), got {found.shape}")
        return torch.from_numpy(found.reshape(-1))
