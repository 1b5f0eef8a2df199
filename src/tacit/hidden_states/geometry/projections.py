"""What a state's component in and outside the leading Fisher directions does to the prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    vector,
)
from tacit._ground.reprs import short_repr
from tacit.hidden_states.geometry.estimation import Geometry
from tacit.hidden_states.geometry.fisher import several_prompts
from tacit.hidden_states.geometry.utility import (
    Outcomes,
    PredictionChange,
    compare,
    outcomes,
    summarise,
)
from tacit.models.continuation import Continuation, batch_rows
from tacit.models.language import TOKENS_PER_BATCH, LanguageModel

PROTOCOLS = ("direct readout", "full forward", "substitution")
PROJECTORS = ("fisher", "complement", "random", "random complement")
ORTHONORMAL = 1e-6


@dataclass(frozen=True)
class Projection:
    """One projector under one protocol.

    Attributes:
        protocol: ``"direct readout"``: the output head reads the projected state, the layers
            above skipped, against its reading of the clean state; ``"full forward"``: the layers
            above run on it; ``"substitution"``: the same, with what the projector took away
            replaced by another prompt's.
        projector: ``"fisher"`` keeps P_B h, the k leading directions; ``"complement"`` keeps
            P_I h = h − P_B h; ``"random"`` and ``"random complement"`` do so with a fresh
            Haar-random subspace of dimension k for every prompt.
        utility: what it did.
    """

    protocol: str
    projector: str
    utility: PredictionChange


@short_repr
@dataclass(frozen=True)
class Projections:
    """The utility of projected states.

    Attributes:
        layer: 1 … L, 0 for the embeddings.
        rank: k.
        rows: every projector under every protocol.
    """

    layer: int
    rank: int
    rows: tuple[Projection, ...]

    def utility(self, protocol: str, projector: str) -> PredictionChange:
        """Return one row's utility."""
        for row in self.rows:
            if (row.protocol, row.projector) == (protocol, projector):
                return row.utility
        raise ValueError(
            f"projector: expected a protocol among {PROTOCOLS} and a projector among "
            f"{PROJECTORS}, got {protocol!r} and {projector!r}"
        )


def measure_projections(
    model: LanguageModel,
    layer: int,
    prefixes: ArrayLike,
    geometry: Geometry | Any,
    *,
    rank: int | None = None,
    confidence: float = 0.95,
    batch_size: int | None = None,
    rng: RandomSource = None,
) -> Projections:
    """Measure the prediction from projected states in the three protocols.

    Use prompts that the geometry was not measured on.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        prefixes: tokens, (n, T), n >= 2.
        geometry: of this layer, or orthonormal columns (d, k).
        rank: k; the geometry's own when left out.
        confidence: of the intervals.
        batch_size: prompts run at a time.
        rng: source of random subspaces and of the other prompt.

    Returns:
        A table of 3 protocols × 4 projectors. The interventions are not small: ½ΔᵀFΔ does not
        predict them, and the protocols may differ in sign.

    Raises:
        ValueError: an argument outside the model, or a geometry of another layer or width.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompts = torch.arange(24).reshape(4, 6)
        >>> found = measure_projections(model, 1, prompts, np.eye(16)[:, :4], rng=0)
        >>> len(found.rows), found.utility("full forward", "fisher").count
        (12, 4)

    Source: hidden-state, App. A.1, A.2 and E.
    """
    tokens, level, basis = _read(model, layer, prefixes, geometry, rank)
    sure = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    states = model.states(tokens, level, batch_size=batch_size)
    donors = states[_others(len(tokens), source)]
    size = batch_rows(batch_size, max(1, TOKENS_PER_BATCH // tokens.shape[1]))
    found: dict[tuple[str, str], list[Outcomes]] = {}
    for start in range(0, len(tokens), size):
        rows = slice(start, start + size)
        run = model.continuation(tokens[rows], level)
        for projector, keep in _projectors(basis, run.clean_states, source).items():
            kept = keep(run.clean_states)
            replaced = kept + donors[rows] - keep(donors[rows])
            for protocol, pair in _protocols(run, kept, replaced).items():
                before, after = (logits.double().cpu() for logits in pair)
                found.setdefault((protocol, projector), []).append(outcomes(before, after))
    table = (
        Projection(
            protocol,
            projector,
            summarise(Outcomes.join(found[protocol, projector]), confidence=sure),
        )
        for protocol in PROTOCOLS
        for projector in PROJECTORS
    )
    return Projections(level, basis.shape[1], tuple(table))


@dataclass(frozen=True)
class Transplant:
    """States with one component moved a share λ of the way to another prompt's.

    Attributes:
        component: ``"fisher"`` when P_B h was moved, ``"complement"`` when P_I h was.
        mix: λ.
        to_own: against the prediction of the prompt that kept the other component.
        to_donor: against the prediction of the prompt the component came from.
    """

    component: str
    mix: float
    to_own: PredictionChange
    to_donor: PredictionChange


def transplantation(
    model: LanguageModel,
    layer: int,
    prefixes: ArrayLike,
    geometry: Geometry | Any,
    *,
    rank: int | None = None,
    mixes: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> tuple[Transplant, ...]:
    """Move one component of the state to another prompt's, and see whose prediction follows.

    ``h(λ) = P_I h_A + (1 − λ) P_B h_A + λ P_B h_B`` and the same with P_B and P_I exchanged, run
    through the layers above at prompt A's last position.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        prefixes: tokens, (n, T), n >= 2; each is A once and B once.
        geometry: of this layer, or orthonormal columns (d, k).
        rank: k; the geometry's own when left out.
        mixes: shares λ in [0, 1].
        confidence: of the intervals.
        rng: source of the pairs.

    Returns:
        A row for each component and mix.

    Raises:
        ValueError: an argument outside the model, or a geometry of another layer or width.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompts = torch.arange(24).reshape(4, 6)
        >>> rows = transplantation(model, 1, prompts, np.eye(16)[:, :4], mixes=[0, 1], rng=0)
        >>> [(row.component, row.mix) for row in rows]
        [('fisher', 0.0), ('fisher', 1.0), ('complement', 0.0), ('complement', 1.0)]

    Source: hidden-state, App. L.1.
    """
    tokens, level, basis = _read(model, layer, prefixes, geometry, rank)
    sure = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    shares = [in_interval("mixes", share, 0.0, 1.0) for share in vector("mixes", mixes)]
    partners = _others(len(tokens), generator(rng))
    run = model.continuation(tokens, level)
    moves = run.clean_states[partners] - run.clean_states
    inside = moves @ basis @ basis.T
    rows = []
    for component, move in (("fisher", inside), ("complement", moves - inside)):
        for share in shares:
            with torch.no_grad():
                logits = run.logits(run.clean_states + share * move)
            own = compare(run.clean_logits, logits, confidence=sure)
            donor = compare(run.clean_logits[partners], logits, confidence=sure)
            rows.append(Transplant(component, share, own, donor))
    return tuple(rows)


def orthonormal_basis(geometry: Geometry | Any, layer: int, width: int, rank: int | None) -> Array:
    """Return the leading directions as columns (d, k), of a geometry or as they were given."""
    if isinstance(geometry, Geometry):
        if (geometry.layer, geometry.width) != (layer, width):
            raise ValueError(
                f"geometry: expected one of layer {layer} and width {width}, got layer "
                f"{geometry.layer} and width {geometry.width}"
            )
        kept = geometry.rank if rank is None else rank
        return geometry.basis(integer("rank", kept, minimum=1, maximum=width - 1))
    basis = matrix("geometry", geometry)
    if basis.shape[0] != width or basis.shape[1] >= width:
        raise ValueError(
            f"geometry: expected columns of shape ({width}, k), k < {width}, got {basis.shape}"
        )
    if float(np.abs(basis.T @ basis - np.eye(basis.shape[1])).max()) > ORTHONORMAL:
        raise ValueError("geometry: expected orthonormal columns, got some that are not")
    if rank is not None and integer("rank", rank) != basis.shape[1]:
        raise ValueError(f"rank: expected {basis.shape[1]}, the columns given, got {rank!r}")
    return basis


def _read(
    model: LanguageModel, layer: int, prefixes: Any, geometry: Geometry | Any, rank: int | None
) -> tuple[Tensor, int, Tensor]:
    tokens, level = several_prompts(model, prefixes), model.check_layer(layer)
    basis = orthonormal_basis(geometry, level, model.width, rank)
    return tokens, level, torch.tensor(basis, dtype=torch.float32, device=model.device)


def _others(count: int, source: np.random.Generator) -> Tensor:
    """For every prompt another one, each used once: a cycle through a random order."""
    order = source.permutation(count)
    partners = np.empty(count, dtype=np.int64)
    partners[order] = np.roll(order, 1)
    return torch.from_numpy(partners)


def _projectors(
    basis: Tensor, states: Tensor, source: np.random.Generator
) -> dict[str, Callable[[Tensor], Tensor]]:
    count, (width, rank) = len(states), basis.shape
    seed = int(source.integers(2**63))
    normal = torch.randn(count, width, rank, generator=torch.Generator().manual_seed(seed))
    frames = torch.linalg.qr(normal).Q.to(states)

    def own(rows: Tensor) -> Tensor:
        return rows @ basis @ basis.T

    def fresh(rows: Tensor) -> Tensor:
        projected: Tensor = frames @ (frames.mT @ rows[:, :, None])
        return projected[..., 0]

    return {
        "fisher": own,
        "complement": lambda rows: rows - own(rows),
        "random": fresh,
        "random complement": lambda rows: rows - fresh(rows),
    }


@torch.no_grad()
def _protocols(
    run: Continuation, kept: Tensor, replaced: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """Reference and changed logits of each protocol."""

    def read(states: Tensor) -> Tensor:
        logits: Tensor = run.anatomy.read_out(states)
        return logits

    return {
        "direct readout": (read(run.clean_states), read(kept)),
        "full forward": (run.clean_logits, run.logits(kept)),
        "substitution": (run.clean_logits, run.logits(replaced)),
    }
