"""How far apart the states of two next tokens are, before and after projection and rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource, generator, integer, matrix
from tacit._ground.frozen import array_value, frozen
from tacit._ground.values import value
from tacit.hidden_states.geometry.estimation import Geometry
from tacit.hidden_states.geometry.projections import orthonormal_basis
from tacit.models.language import LanguageModel
from tacit.models.next_states import next_states, single_tokens

RANGE_QUANTILE = 0.995
ROUNDING = 1e-12
PROJECTIONS = ("full", "fisher", "complement", "random")


@dataclass(frozen=True, eq=False)
class QuantisedMargin:
    """Margins after projection and rounding of every coordinate to b bits.

    Attributes:
        projection: ``"full"``, ``"fisher"``, ``"complement"`` or ``"random"``.
        bits: b.
        rounding: ε_b = ½ √(Σ α_j²), the farthest that rounding moves a state within range.
        margins: (n,).
        bounds: what the margins are at least, (n,): m − 2 ε_b, less where a state was clipped.
        clipped: share of prompts with a state beyond the range.
    """

    projection: str
    bits: int
    rounding: float
    margins: Array
    bounds: Array
    clipped: float


@array_value()
class Margins:
    """One-step margins ``m(x) = min_{v ≠ y} ‖P h(x ⊕ y) − P h(x ⊕ v)‖`` of n prompts.

    Attributes:
        rank: k, dimension of P_B and of the random subspace.
        width: d.
        full: with P = I, (n,).
        leading: with P_B, (n,).
        complement: with P_I, (n,).
        random: with one Haar-random subspace of dimension k, (n,).
        angles: between the difference to the nearest token and the leading directions, (n,), rad.
        quantised: after rounding, for each projection and each number of bits.
    """

    rank: int
    width: int
    full: Array
    leading: Array
    complement: Array
    random: Array
    angles: Array
    quantised: tuple[QuantisedMargin, ...]

    @property
    def pythagorean_ratio(self) -> Array:
        """(m_B² + m_I²)/m², (n,), at most 1; 1 where m = 0."""
        ratios: Array = _ratio(self.leading**2 + self.complement**2, self.full**2)
        return ratios

    @property
    def expected_fraction(self) -> float:
        """√(k/d)."""
        return float(np.sqrt(self.rank / self.width))


@value
class NextTokens:
    """Prompts with the token that truly follows each, and the tokens it is told from.

    Args:
        prefixes: Tokens, (n, T).
        next_tokens: y, (n,).
        candidates: Tokens v, (m,); the whole vocabulary when left out, at V positions through the
            lower layers a prompt.
    """

    prefixes: Any
    next_tokens: Any
    candidates: Any = None


@value
class MarginRounding:
    """How coordinates are rounded.

    Args:
        calibration: States that set the ranges, (c, d).
        bits: Numbers of bits, each 2 … 16.

    Raises:
        ValueError: bits that are no such numbers.
    """

    calibration: Any
    bits: tuple[int, ...] = (4, 6, 8, 16)

    def _together(self) -> None:
        if not isinstance(self.bits, Sequence):
            raise ValueError(f"bits: expected a sequence of integers, got {self.bits!r}")
        for depth in self.bits:
            integer("bits", depth, minimum=2, maximum=16)


def measure_margins(
    model: LanguageModel,
    layer: int,
    prompts: NextTokens,
    geometry: Geometry | Any,
    rounding: MarginRounding,
    *,
    rank: int | None = None,
    batch_size: int | None = None,
    rng: RandomSource = None,
) -> Margins:
    """Measure the distance from the state of the true next token to the nearest other's.

    Rounding is symmetric and uniform, ``α_j = s_j/(2^{b−1} − 1)`` with s_j the 99.5% quantile of
    |coordinate j| over projected calibration states, clipped beyond. The bound holds for clipped
    states too: there the excess over s_j takes the place of α_j/2.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        prompts: the earlier tokens, the true next one, and the others it is told from.
        geometry: of this layer, or orthonormal columns (d, k).
        rounding: to how many bits, and the states that set the ranges.
        rank: k; the geometry's own when left out.
        batch_size: candidates run at a time.
        rng: source of the random subspace.

    Returns:
        The margins, quantised ones beside their deterministic bound.

    Raises:
        ValueError: an argument outside the model, or no candidate besides y.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> tokens = torch.arange(24).reshape(4, 6)
        >>> prompts = NextTokens(prefixes=tokens, next_tokens=[7, 8, 9, 10])
        >>> rounding = MarginRounding(calibration=model.states(tokens, 1))
        >>> found = measure_margins(model, 1, prompts, np.eye(16)[:, :4], rounding, rng=0)
        >>> bool((found.pythagorean_ratio <= 1 + 1e-9).all()), len(found.quantised)
        (True, 16)

    Source: hidden-state, App. B.6, B.7, Prop. 2, 4–6, Cor. 3.
    """
    for name, held, kind in (
        ("prompts", prompts, NextTokens),
        ("rounding", rounding, MarginRounding),
    ):
        if not isinstance(held, kind):
            raise ValueError(f"{name}: expected {kind.__name__}, got {type(held).__name__}")
    tokens, level = model.check_tokens(prompts.prefixes), model.check_layer(layer)
    truth = single_tokens(model, "next_tokens", prompts.next_tokens, count=len(tokens))
    width = model.width
    basis = orthonormal_basis(geometry, level, width, rank)
    known = matrix("calibration", rounding.calibration, columns=width)
    normal = generator(rng).standard_normal(basis.shape)
    frame = np.linalg.qr(normal)[0]
    spaces = [
        _Space("full", np.eye(width)),
        _Space("fisher", basis @ basis.T),
        _Space("complement", np.eye(width) - basis @ basis.T),
        _Space("random", frame @ frame.T),
    ]
    rounders = [_Rounder(space, depth, known) for space in spaces for depth in rounding.bits]
    pool = range(model.vocabulary) if prompts.candidates is None else prompts.candidates
    choices = single_tokens(model, "candidates", pool)
    meter = _Meter(model, level, spaces, rounders, basis, batch_size)
    rows = []
    for prompt, follower in zip(tokens, truth, strict=True):
        others = choices[choices != follower]
        if len(others) == 0:
            raise ValueError(f"candidates: expected a token besides {int(follower)}, got none")
        rows.append(meter.of_prompt(prompt, follower, others))
    return _collect(rows, rounders, basis)


class _Space:
    def __init__(self, name: str, projector: Array) -> None:
        self.name, self.projector = name, projector


class _Rounder:
    """Q_b after P: rounds to steps α_j and clips at ±s_j."""

    def __init__(self, space: _Space, bits: int, calibration: Array) -> None:
        self.space, self.bits = space, bits
        self.levels = 2 ** (bits - 1) - 1
        self.reach = np.quantile(np.abs(calibration @ space.projector), RANGE_QUANTILE, axis=0)
        self.steps = self.reach / self.levels
        self.rounding = 0.5 * float(np.linalg.norm(self.steps))

    def __call__(self, projected: Array) -> Array:
        steps = np.where(self.steps > 0, self.steps, 1.0)
        rounded: Array = self.steps * np.clip(np.rint(projected / steps), -self.levels, self.levels)
        return rounded

    def excess(self, projected: Array) -> Array:
        """Return ‖Q(x) − x‖ at most: max(α_j/2, |x_j| − s_j) in every coordinate."""
        beyond = np.maximum(np.abs(projected) - self.reach, self.steps / 2)
        bound: Array = np.linalg.norm(beyond, axis=-1)
        return bound


@dataclass(frozen=True, eq=False)
class _Meter:
    """What every prompt is measured by: a model up to a layer, projections and roundings."""

    model: LanguageModel
    layer: int
    spaces: list[_Space]
    rounders: list[_Rounder]
    basis: Array
    batch_size: int | None

    def of_prompt(
        self, prompt: Any, follower: Any, others: Any
    ) -> tuple[Array, float, Array, Array, Array]:
        """Return margins by space, the angle, and by rounder the margin, the moves, if clipped."""
        ((own,),) = next_states(self.model, prompt, follower[None], [self.layer])
        state = own[0].double().cpu().numpy()
        plain, angle = np.full(len(self.spaces), np.inf), 0.0
        rounded, moved = np.full(len(self.rounders), np.inf), np.zeros(len(self.rounders))
        clipped = np.zeros(len(self.rounders))
        for (batch,) in next_states(
            self.model, prompt, others, [self.layer], batch_size=self.batch_size
        ):
            found = batch.double().cpu().numpy()
            for i, space in enumerate(self.spaces):
                differences = (found - state) @ space.projector
                lengths = np.linalg.norm(differences, axis=1)
                nearest = int(lengths.argmin())
                if space.name == "full" and lengths[nearest] < plain[i]:
                    inside = np.linalg.norm(differences[nearest] @ self.basis)
                    angle = float(np.arccos(min(1.0, _ratio(inside, lengths[nearest]))))
                plain[i] = min(plain[i], lengths[nearest])
            for i, rounder in enumerate(self.rounders):
                projected, mine = found @ rounder.space.projector, state @ rounder.space.projector
                lengths = np.linalg.norm(rounder(projected) - rounder(mine), axis=1)
                rounded[i] = min(rounded[i], lengths.min())
                moves = rounder.excess(projected).max() + rounder.excess(mine)
                moved[i] = max(moved[i], moves)
                beyond = (np.abs(projected) > rounder.reach).any() or (
                    np.abs(mine) > rounder.reach
                ).any()
                clipped[i] = max(clipped[i], float(beyond))
        return plain, angle, rounded, moved, clipped


def _collect(
    rows: list[tuple[Array, float, Array, Array, Array]],
    rounders: list[_Rounder],
    basis: Array,
) -> Margins:
    plain, angles, rounded, moved, clipped = (np.array(part) for part in zip(*rows, strict=True))
    places = {name: i for i, name in enumerate(PROJECTIONS)}
    quantised = tuple(
        QuantisedMargin(
            projection=rounder.space.name,
            bits=rounder.bits,
            rounding=rounder.rounding,
            margins=frozen(rounded[:, i]),
            bounds=frozen(_at_least(plain[:, places[rounder.space.name]], moved[:, i])),
            clipped=float(clipped[:, i].mean()),
        )
        for i, rounder in enumerate(rounders)
    )
    full, leading, complement, random = (frozen(column) for column in plain.T)
    width, rank = basis.shape
    return Margins(rank, width, full, leading, complement, random, frozen(angles), quantised)


def _at_least(margins: Array, moved: Array) -> Array:
    """m − 2 ε_b (hidden-state, Prop. 4), less the rounding of m itself."""
    bounds: Array = np.maximum(0.0, margins * (1.0 - ROUNDING) - moved)
    return bounds


def _ratio(part: Any, whole: Any) -> Any:
    """part/whole, and 1 where both vanish."""
    safe = np.where(np.asarray(whole) > 0, whole, 1.0)
    return np.where(np.asarray(whole) > 0, part / safe, 1.0)
