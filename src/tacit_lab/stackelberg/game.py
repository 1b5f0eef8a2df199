"""The game of leader and follower: Monte Carlo SR-PAC in torch, float64, on one thread."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array
from tacit_lab.stackelberg.decoders import (
    CategoricalDecoder,
    FlowDecoder,
    GaussianDecoder,
    MixtureDensityDecoder,
    SecretDecoder,
    seed_weights,
)
from tacit_lab.stackelberg.leaders import Leader, make_leader
from tacit_lab.stackelberg.noise import StackelbergNoise

Rows = npt.NDArray[np.int64]

FOLLOWER_RATE, LEADER_RATE = 3e-3, 2e-2
MEMORY = 0.9
WEIGHT_DECAY = 0.5
STEEPEST, LONGEST_GRADIENT = 5.0, 10.0
AVERAGED_SHARE = 0.25
MOST_DRAWS = 1024
DENSITY_WORK = {"gaussian": 200, "mixture-density": 400, "flow": 1000}
TRACKING_ROUNDS = 6
TRACKING_TOLERANCE = 0.005
LARGEST_STEP = 0.7
SCORES_PER_BATCH, SCORES_PER_EVALUATION = 300_000, 20_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class StackelbergGame:
    """What is played: a secret uniform on N rows, in coordinates where the outputs are white.

    Attributes:
        points: (N, r) outputs, mean 0 and covariance I.
        secrets: (N, p) values of the secret, mean 0 and covariance I; None for a categorical one.
        groups: (N,) numbers of the secret's values, 0 …; None for a density.
        cost: (r, r), the cost F of noise in coordinates.
        start: (r, r) lower triangular, a factor of the covariance to start from.
        lift: (r, d), from coordinates to outputs.
        target: nats of ``H(X) − W(Q, π)`` to steer to.
        offset: ``H(X) − H_q`` in nats, H_q the cross-entropy of the rows asked under q.
        taught: rows the follower learns from.
        asked: rows the leader measures it on.
        one_sided: whether less than the target is as good.
    """

    points: Array
    secrets: Array | None
    groups: Array | None
    cost: Array
    start: Array
    lift: Array
    target: float
    offset: float
    taught: Rows
    asked: Rows
    one_sided: bool


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How it is played: families, iterations and penalty."""

    decoder: str
    noise: str
    steps: int
    period: int
    penalty_weight: float
    batch: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class GameOutcome:
    """What came of it: the noise, the information the decoder finds, and the way there."""

    noise: StackelbergNoise
    information: float
    standard_error: float
    costs: Array
    informations: Array


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run torch on one thread, where sums come out the same, and leave its global state alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


def with_offset(game: StackelbergGame, offset: float) -> StackelbergGame:
    """Return the game with another ``H(X) − H_q``."""
    return replace(game, offset=offset)


def play(
    game: StackelbergGame, rules: Rules, seed: int, advance: Callable[[int], None]
) -> GameOutcome:
    """Play the game to its end; the same seed gives the same noise."""
    with undisturbed():
        return _Match(game, rules, seed).run(advance)


def blind_information(game: StackelbergGame, rules: Rules, seed: int) -> float:
    """Return ``H_q − W`` of a decoder of the family that sees nothing, <= 0 up to its training.

    Its cross-entropy stands in for H(X) where nobody knows H(X).
    """
    with undisturbed():
        match = _Match(game, rules, seed)
        silent = torch.zeros_like(match.points)
        optimiser = _follower(match.decoder)
        for rate in _rates(rules.steps):
            _set_rate(optimiser, FOLLOWER_RATE * rate)
            optimiser.zero_grad()
            rows = match.rows(match.taught, min(match.half * 2, len(match.taught)))
            torch.autograd.backward(-match.decoder.gain(silent[rows], rows).mean())
            optimiser.step()
        match.decoder.eval()
        with torch.no_grad():
            return float(match.decoder.gain(silent[match.asked], match.asked).mean())


class _Match:
    """The state of one run."""

    def __init__(self, game: StackelbergGame, rules: Rules, seed: int) -> None:
        self.game, self.rules = game, rules
        self.source = torch.Generator().manual_seed(seed)
        self.points = torch.from_numpy(np.array(game.points))
        self.cost = torch.from_numpy(np.array(game.cost))
        self.taught = torch.from_numpy(np.array(game.taught))
        self.asked = torch.from_numpy(np.array(game.asked))
        start = torch.from_numpy(np.array(game.start))
        self.leader = make_leader(rules.noise, start, self.source)
        self.decoder = _decoder(game, rules.decoder, self.points, start @ start.T, self.source)
        scores = DENSITY_WORK.get(rules.decoder, len(self.points))
        fitting = max(256, min(MOST_DRAWS, SCORES_PER_BATCH // scores))
        self.half = (rules.batch or fitting) // 2 or 1
        self.evaluation = max(20_000, min(200_000, SCORES_PER_EVALUATION // scores))
        self.costs: list[float] = []
        self.informations: list[float] = []
        self.average = math.nan

    def run(self, advance: Callable[[int], None]) -> GameOutcome:
        rules = self.rules
        follower = _follower(self.decoder)
        mover = torch.optim.Adam(self.leader.parameters(), lr=LEADER_RATE, betas=(0.9, 0.99))
        warm_up = max(rules.period, rules.steps // 5)
        for _ in range(warm_up):
            self.follow(follower)
        averaged, weight = copy.deepcopy(self.leader.state_dict()), 0
        begin = int(rules.steps * (1.0 - AVERAGED_SHARE))
        for step, rate in enumerate(_rates(rules.steps)):
            _set_rate(follower, FOLLOWER_RATE * rate)
            _set_rate(mover, LEADER_RATE * rate)
            if step % rules.period == 0:
                for _ in range(rules.period):
                    self.follow(follower)
            self.lead(mover)
            if step >= begin:
                weight += 1
                _blend(averaged, self.leader, 1.0 / weight)
            advance(1)
        self.leader.load_state_dict(averaged)
        self.track(max(rules.period, warm_up // 2))
        information, error = self.evaluate()
        return GameOutcome(
            noise=self.leader.frozen(self.game.lift),
            information=information,
            standard_error=error,
            costs=np.asarray(self.costs),
            informations=np.asarray(self.informations),
        )

    def follow(self, optimiser: torch.optim.Optimizer) -> None:
        """Improve the decoder by one step on ``W(Q, π)`` (residual-pac, Alg. 2, lines 6-8)."""
        optimiser.zero_grad()
        with torch.no_grad():
            drawn = self.leader.draw(self.half, self.source)
        self.decoder.train()
        torch.autograd.backward(-self.information(drawn, self.taught))
        self.decoder.eval()
        nn.utils.clip_grad_norm_(self.decoder.parameters(), LONGEST_GRADIENT)
        optimiser.step()

    def lead(self, optimiser: torch.optim.Optimizer) -> None:
        """Move the noise by one step (residual-pac, Alg. 2, lines 12-15).

        With I = H(X) − H_c and the target τ, the loss is ``ln K + s ((I − τ)/τ)²``: the logarithm
        moves no equilibrium and makes s free of units. A running mean of I takes the place of the
        batch's in the factor of the gradient, or its error would be pushed down like the rest.
        """
        parameters = list(self.leader.parameters())
        information = self.information(self.leader.draw(self.half, self.source), self.asked)
        cost = (self.cost * self.leader.covariance()).sum()
        now = float(information.detach())
        first = math.isnan(self.average)
        self.average = now if first else MEMORY * self.average + (1.0 - MEMORY) * now
        target = self.game.target
        excess = (self.average - target) / target
        if self.game.one_sided:
            # residual-pac, Alg. 6, with (β̂_PAC − H_c)₊: (H_c − β̂_PAC)₊ as printed is 0 at B = 0.
            excess = max(excess, 0.0)
        slope = 2.0 * self.rules.penalty_weight * excess / target
        dearer = torch.autograd.grad(cost.log(), parameters, allow_unused=True)
        leakier = torch.autograd.grad(information, parameters)
        # Far from the budget the penalty must not drown the cost in the optimiser's memory.
        steepness = abs(slope) * _norm(leakier)
        if steepness > (limit := STEEPEST * _norm(dearer)):
            slope *= limit / steepness
        for parameter, price, leak in zip(parameters, dearer, leakier, strict=True):
            parameter.grad = slope * leak if price is None else price + slope * leak
        optimiser.step()
        self.costs.append(float(cost.detach()))
        self.informations.append(now)

    def track(self, training: int) -> None:
        """Scale the final noise until the decoder's best response meets the budget."""
        target, earlier = self.game.target, None
        for _ in range(TRACKING_ROUNDS):
            self.respond(training)
            information, error = self.evaluate()
            gap = information - target
            if abs(gap) <= max(TRACKING_TOLERANCE * target, error):
                return
            step = LARGEST_STEP if gap > 0 else -LARGEST_STEP
            if earlier is not None and (information - earlier[1]) * earlier[0] < 0:
                step = -gap * earlier[0] / (information - earlier[1])
            elif information > 0:
                step = math.log(information / target)
            step = min(max(step, -LARGEST_STEP), LARGEST_STEP)
            self.leader.rescale(math.exp(step))
            earlier = (step, information)
        self.respond(training)

    def respond(self, training: int) -> None:
        """Train the decoder on the noise as it stands."""
        optimiser = _follower(self.decoder)
        for rate in _rates(training):
            _set_rate(optimiser, FOLLOWER_RATE * rate)
            self.follow(optimiser)

    def information(self, drawn: tuple[Tensor, Tensor], among: Tensor) -> Tensor:
        """Return ``H(X) − H_c`` on a batch: offset + Σ_k w_k mean of the gain."""
        weights, noises = drawn
        count = noises.shape[1]
        rows = self.rows(among, count)
        noisy = (self.points[rows] + noises).reshape(-1, noises.shape[2])
        gains = self.decoder.gain(noisy, rows.repeat(len(weights)))
        return self.game.offset + weights @ gains.view(len(weights), count).mean(dim=1)

    def rows(self, among: Tensor, count: int) -> Tensor:
        """Return ``count`` of the rows, each as often as every other, in random order."""
        rounds = -(-count // len(among))
        orders = [torch.randperm(len(among), generator=self.source) for _ in range(rounds)]
        return among[torch.cat(orders)[:count]]

    def evaluate(self) -> tuple[float, float]:
        """Return ``H(X) − W(Q, π)`` on fresh draws, and its standard error."""
        rounds = max(8, self.evaluation // (2 * self.half))
        with torch.no_grad():
            found = [
                float(self.information(self.leader.draw(self.half, self.source), self.asked))
                for _ in range(rounds)
            ]
        return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(rounds))


def _decoder(
    game: StackelbergGame, family: str, points: Tensor, noise: Tensor, source: torch.Generator
) -> SecretDecoder:
    decoder: SecretDecoder
    if game.groups is not None:
        groups = torch.from_numpy(np.array(game.groups))
        decoder = CategoricalDecoder(points, groups, noise, source)
    else:
        secrets = torch.from_numpy(np.array(game.secrets))
        if family == "mixture-density":
            decoder = MixtureDensityDecoder(secrets, points, noise, source)
        elif family == "flow":
            decoder = FlowDecoder(secrets, points, noise, source)
        else:
            decoder = GaussianDecoder(secrets, points, noise)
    seed_weights(decoder, source)
    return decoder


def _follower(decoder: SecretDecoder) -> torch.optim.Optimizer:
    """Return an optimiser that keeps the networks, not the rest, from learning rows by heart."""
    networks = [value for name, value in decoder.named_parameters() if name.startswith("net")]
    rest = [value for name, value in decoder.named_parameters() if not name.startswith("net")]
    groups = [
        {"params": networks, "weight_decay": WEIGHT_DECAY},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=FOLLOWER_RATE)


def _rates(steps: int) -> Iterator[float]:
    """Yield the factors of the learning rate: a cosine from 1 to 0.05."""
    for step in range(steps):
        yield 0.05 + 0.475 * (1.0 + math.cos(math.pi * step / steps))


def _norm(gradients: tuple[Tensor | None, ...]) -> float:
    return math.sqrt(sum(float((part**2).sum()) for part in gradients if part is not None))


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def _blend(average: dict[str, Tensor], module: Leader, weight: float) -> None:
    """Move the average of the parameters by ``weight`` towards those of the module."""
    for name, value in module.state_dict().items():
        average[name].lerp_(value, weight)
