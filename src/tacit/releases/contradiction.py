"""What every attack reached against what every guarantee about the same game allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy.special import ndtri, rel_entr

from tacit._ground.numbers import EPS
from tacit.attacks.intervals import proportion_interval
from tacit.conversions import fano_information, success_from_dp, success_from_information
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Indistinguishability,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.guarantees.base import Guarantee
from tacit.measured import Interval
from tacit.releases.release import Attack, Release
from tacit.releases.strength import delta_of, success_of
from tacit.text import percent, share_up

if TYPE_CHECKING:
    from tacit.attacks import BayesAttack

# What a product of doubles may lose.
SLACK, LARGEST_EXPONENT = 1e-12, 700.0
# Where a curve is read: any of its points bounds, the least of them most.
DELTAS = tuple(10.0**-power for power in range(1, 11))
EPSILONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
NAMES: dict[type[Guarantee], str] = {
    ApproximateDP: "ε and δ",
    GaussianDP: "μ",
    Indistinguishability: "the distance from a reference",
    InformationBound: "the information in nats",
    MaximalLeakage: "the factor",
    RenyiDP: "the Rényi curve",
    SuccessBound: "the success",
}
# A measured accuracy stops a release only where chance explains it once in a billion, and a stored
# attack refutes a stored guarantee once in a million: an honest file has few attacks, and a bound
# that is met exactly would be refuted by one interval of 95% in forty.
FALSE_ALARM, CHANCE = 1e-9, 1e-6
# Between the end of an interval as it was stored and as it is worked out again.
ROUNDING = 1e-6
BISECTIONS = 60
# How a game between two inputs is named: whoever guesses blind is right half of the time at least.
TWO = "which of two neighbouring inputs"


class ContradictionError(RuntimeError):
    """What was measured cannot be true of a release that keeps its certified bound."""


@dataclass(frozen=True)
class Named:
    """How often something was named right, of how many that could be named."""

    task: str
    hits: int
    trials: int
    choices: int
    entropy: float

    @staticmethod
    def by(attack: BayesAttack, task: str, entropy: float) -> Named:
        """Return what an attack on ``task`` reached, for an answer of the entropy given."""
        hits = round(attack.success * attack.trials)
        return Named(task, hits, attack.trials, attack.classes, entropy)

    def information(self, guarantee: InformationBound, confidence: float) -> float:
        """Return the nats it takes by Fano's inequality; raise where they refute the guarantee."""
        surely = proportion_interval(self.hits, self.trials, 1.0 - FALSE_ALARM)[0]
        needed = fano_information(surely, self.choices, self.entropy)
        if needed > guarantee.nats:
            raise ContradictionError(
                f"{self.task} was named right {self.hits} times in {self.trials}, which takes at "
                f"least {needed:.6g} nats, but {guarantee.nats:.6g} were certified; nothing is "
                "released"
            )
        lower = proportion_interval(self.hits, self.trials, confidence)[0]
        return fano_information(lower, self.choices, self.entropy)


def surely(measured: Interval, trials: int | None = None) -> float:
    """Return a success that an attack falls short of once in a million, rounded down.

    Where the interval is that of a share of the trials, the exact end of this level. Else: an
    interval of level γ around a share p of n has ``n kl(p ‖ low) >= z²/2``, z the normal quantile
    of γ, and the end returned has ``n kl(p ‖ end) >= ln 10⁶``, by Chernoff.

    Args:
        measured: the success, with the interval that it came with.
        trials: n, where it is a share of so many; None where that is not known.
    """
    if measured.confidence is None or measured.low <= 0.0:
        return measured.low
    found = 0.0
    hits = None if trials is None else round(measured.value * trials)
    if trials is not None and hits is not None and math.isclose(hits, measured.value * trials):
        usual = proportion_interval(hits, trials, measured.confidence)[0]
        if math.isclose(usual, measured.low, rel_tol=ROUNDING):
            found = proportion_interval(hits, trials, 1.0 - 2.0 * CHANCE)[0]
    if measured.low == measured.value:
        return max(found, measured.low)
    # kl is convex: bisection keeps an end whose distance is at least the one asked for
    level = 0.5 * float(ndtri(0.5 + 0.5 * measured.confidence)) ** 2
    # an interval of no level says nothing
    factor = max(math.log(1.0 / CHANCE) / level, 1.0) if level > 0.0 else math.inf
    needed = factor * _kl(measured.value, measured.low)
    low, high = 0.0, measured.low
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _kl(measured.value, middle) >= needed else (low, middle)
    return max(found, low)


def _kl(share: float, other: float) -> float:
    """Return kl(share ‖ other) of two coins."""
    if not 0.0 < other < 1.0:
        return 0.0 if share == other else math.inf
    return float(rel_entr(share, other) + rel_entr(1.0 - share, 1.0 - other))


def refuted(release: Release[Any]) -> str | None:
    """Say which stored attack surely did better than a stored guarantee allows; None for none.

    Every attack is held against every guarantee about the same game.
    """
    for attack in release.attacks:
        low = surely(attack.success, attack.trials)
        if attack.worst is not None:
            # of so many trials as only its record had
            low = max(low, surely(attack.worst))
        for held in release.guarantees:
            most = allowed(release, held, attack)
            if most is not None and low > most:
                return (
                    f"an attack on {attack.task} got at least {percent(low)}, and {_named(held)} "
                    f"that is certified allows {share_up(most)}"
                )
    return None


def standing(release: Release[Any], attack: Attack) -> str:
    """Say how an attack stands to the guarantees where that is not plain; empty where it is.

    It is about another game than all of them, or it succeeded more often than they allow: in too
    few trials to contradict them, or in enough.
    """
    limits = [allowed(release, held, attack) for held in release.guarantees]
    known = [most for most in limits if most is not None]
    if limits and not known:
        return "about another game than the guarantees, and not held against them"
    if not known or attack.success.value <= min(known):
        return ""
    said = f"above the {share_up(min(known))} allowed"
    if surely(attack.success, attack.trials) > min(known):
        return f"{said}: something assumed does not hold"
    return f"{said}, in too few trials to contradict it"


def allowed(release: Release[Any], guarantee: Guarantee, attack: Attack) -> float | None:
    """Return the largest success that a guarantee allows an attack, rounded up.

    None where it says nothing about the attack's game: a bound on success is about its own task, a
    factor and information about every task with a blind success, a statement about neighbours
    about which of them it was.
    """
    if isinstance(guarantee, SuccessBound):
        return release.success(guarantee) if attack.task == guarantee.task else None
    if isinstance(guarantee, MaximalLeakage):
        # P(right with Y) ≤ factor · P(right without Y) (Issa, Wagner and Kamath, Definition 1)
        return min(1.0, guarantee.factor * _blind(release, attack) * (1.0 + SLACK))
    if isinstance(guarantee, InformationBound):
        # kl(s ‖ p) ≤ I (Fano, residual-pac Eq. 17); it grows with p
        blind = _blind(release, attack)
        return success_from_information(guarantee.nats, blind) if blind < 1.0 else 1.0
    if isinstance(guarantee, RenyiDP):
        if not _of_neighbours(release, guarantee.adjacency, attack):
            return None
        curves = [guarantee.approximate(delta) for delta in DELTAS]
        return min(_allowed_by(held.epsilon, held.delta, release, attack) for held in curves)
    if isinstance(guarantee, ApproximateDP):
        if not _of_neighbours(release, guarantee.adjacency, attack):
            return None
        return _allowed_by(guarantee.epsilon, guarantee.delta, release, attack)
    if isinstance(guarantee, GaussianDP):
        if not _of_neighbours(release, guarantee.adjacency, attack):
            return None
        if _is_pair(release, attack):
            # of two neighbours exactly, below what any point of the curve gives
            return success_of(guarantee.mu, min(_blind(release, attack), 1.0 - EPS))
        points = [(epsilon, delta_of(guarantee.mu, epsilon)) for epsilon in EPSILONS]
        return min(_allowed_by(epsilon, delta, release, attack) for epsilon, delta in points)
    if isinstance(guarantee, Indistinguishability):
        headline = release.headline
        same = headline is None or attack.task == headline.task
        same = same and _is_pair(release, attack)
        return _allowed_beside(guarantee) if same else None
    return None


def _blind(release: Release[Any], attack: Attack) -> float:
    """Return a blind success that the attack's surely does not exceed.

    One that was measured as 0 of n may be as large as chance explains once in a billion; one that
    is not stored is that of a bound on the same task, or of the least prior that any bound has, for
    a certificate that cannot be held against what stands beside it certifies nothing.
    """
    if attack.task.startswith(TWO):
        return max(0.5, attack.prior or 0.0)
    if attack.prior:
        return attack.prior
    if attack.prior == 0.0:
        return float(1.0 - FALSE_ALARM ** (1.0 / attack.trials))
    told = [held for held in release.guarantees if isinstance(held, SuccessBound)]
    same = [held.prior for held in told if held.task == attack.task]
    return max(same) if same else max((held.prior for held in told), default=0.5)


def _is_pair(release: Release[Any], attack: Attack) -> bool:
    return _blind(release, attack) >= 0.5


def _of_neighbours(release: Release[Any], adjacency: str, attack: Attack) -> bool:
    """Whether an attack guesses which of two neighbours it was, or which of several was.

    Its task says so, or is that of a bound on success that stands beside the statement; where any
    two secrets are neighbours every task about the secret is.
    """
    told = [held.task for held in release.guarantees if isinstance(held, SuccessBound)]
    own = f"{TWO} ({adjacency}) was used"
    return attack.task in (own, *told) or adjacency.startswith("any two") or not told


def _allowed_by(epsilon: float, delta: float, release: Release[Any], attack: Attack) -> float:
    """Return the success that (ε, δ) allows against this blind success.

    Of two neighbours by the testing region (residual-pac, Eq. 16). Of N that are neighbours of each
    other, each against the mixture of the others: ``P_i(A_i) <= e^ε Q_i(A_i) + δ``, and with
    ``π_i/(1 − π_i) <= r = p/(1 − p)`` the sum over i is ``s <= e^ε r (1 − s) + δ``. So odds grow by
    e^ε at most, and no prior just below one half makes a bound of it that says nothing.
    """
    blind = min(_blind(release, attack), 1.0 - EPS)
    if _is_pair(release, attack):
        return success_from_dp(epsilon, delta, blind)
    # s <= (e^ε p + δ (1 − p))/(e^ε p + 1 − p), rounded up
    gain = math.exp(min(epsilon, LARGEST_EXPONENT)) * blind
    return min(1.0, (gain + delta * (1.0 - blind)) / (gain + 1.0 - blind) * (1.0 + SLACK))


def _allowed_beside(guarantee: Indistinguishability) -> float | None:
    """Return (1 + TV)/2 of the loosest reference, by the bounds that its divergence gives."""
    loosest, kind = max(guarantee.bounds), guarantee.divergence
    if math.isinf(loosest):
        return 1.0
    if kind == "tv":
        return _advantage(loosest)
    if kind == "hellinger":
        # TV² <= 1 − BC², BC = 1 − H² (Le Cam)
        return _advantage(math.sqrt(1.0 - (1.0 - min(loosest, 1.0)) ** 2))
    if kind == "chi2":
        # data processing to two outcomes: 4 TV² up to TV = ½, TV/(1 − TV) beyond
        half = 0.5 * math.sqrt(loosest)
        return _advantage(half if loosest <= 1.0 else loosest / (1.0 + loosest))
    if kind == "kl" or (not isinstance(kind, str) and kind[0] == "renyi" and kind[1] >= 1.0):
        # Pinsker, and Bretagnolle and Huber where that says more; D_α grows with α
        return _advantage(min(math.sqrt(loosest / 2.0), math.sqrt(-math.expm1(-loosest))))
    if isinstance(kind, str):
        return None
    if kind[0] == "renyi":
        # D_α >= 2 α TV² for α <= 1 (Gilardoni)
        return _advantage(math.sqrt(loosest / (2.0 * kind[1])))
    return success_from_dp(float(kind[1]), min(loosest, 1.0))


def _advantage(distance: float) -> float:
    """Return the success of telling two laws apart that are so far in total variation, up."""
    return min(1.0, 0.5 * (1.0 + min(distance, 1.0)) * (1.0 + SLACK))


def _named(guarantee: Guarantee) -> str:
    return NAMES.get(type(guarantee), type(guarantee).__name__)
