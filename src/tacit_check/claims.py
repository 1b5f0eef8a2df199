"""Each claim against what is known of the mechanism: holds, false, not shown, not checkable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple, TypeAlias

from flint import acb, arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, Number, half_square_tail, largest, said
from tacit_check.composing import Composed, Worst
from tacit_check.mechanisms import NOT_NEGATIVE, RATE, Known, Reader
from tacit_check.projections import integral
from tacit_check.reading import Field, Fields, Proof, count, fields, kind_of, sentence, within

HOLDS, FALSE, NOT_SHOWN, NOT_CHECKABLE = "holds", "false", "not shown", "not checkable"


@dataclass(frozen=True)
class Checked:
    """What was found of a claim.

    Attributes:
        claim: in words.
        verdict: one of the four.
        upper: what the mechanism gives is at most this; empty where nothing was computed.
        lower: and at least this.
        why: in words.
    """

    claim: str
    verdict: str
    upper: str = ""
    lower: str = ""
    why: str = ""


@dataclass(frozen=True)
class Result:
    """What was found of a file.

    Attributes:
        verdicts: one of each claim.
        given: what must be believed.
        theorems: what was used.
        notes: what is true up to something.
    """

    verdicts: tuple[Checked, ...]
    given: tuple[str, ...] = ()
    theorems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every claim that can be checked holds, and at least one can."""
        return self.word == HOLDS

    @property
    def word(self) -> str:
        """The verdict of all: the worst."""
        found = {one.verdict for one in self.verdicts}
        return next((one for one in (FALSE, NOT_SHOWN, HOLDS) if one in found), NOT_CHECKABLE)


class Bounds(NamedTuple):
    """What the mechanism gives is at most ``upper`` and at least ``lower``, by a theorem."""

    upper: Number | None = None
    lower: Number | None = None
    theorem: str = ""


NOTHING = Bounds()
Claim: TypeAlias = Mapping[str, Any]


def check(proof: Proof, measured: Mapping[str, Any] | None = None) -> Result:
    """Check every claim of a proof node.

    Args:
        proof: as read.
        measured: numbers that the holder's data gave, by digest.

    Raises:
        RefusedFileError: The node is not of the format.
    """
    reader = Reader(proof, measured)
    known = reader.read(proof.mechanism)
    claims = [kind_of(node, "claims", CLAIMS) for node in proof.claims]
    found = [fields(rest, kind, *CLAIMS[kind][:2]) for kind, rest in claims]
    # lattices are built for the least δ that is asked for
    deltas = [one["delta"] for one in found if one.get("delta")]
    least = min(deltas, default=fmpq(1, 10**10))
    parts = known.choices[0] if known.choices else ()
    composed = Worst(known.choices, least) if known.choices[1:] else Composed(parts, least)
    verdicts = []
    for (kind, written), claim in zip(claims, found, strict=True):
        words = CLAIMS[kind][3].format(**written)
        if known.unknown:
            verdicts.append(Checked(words, NOT_CHECKABLE, why=known.unknown))
            continue
        # δ = 0 bounds the loss itself
        kind = "pure-dp" if claim.get("delta") == 0 else kind
        _, _, bounded, _, rule = CLAIMS[kind]
        bounds = rule(claim, known, composed)
        reader.theorems[bounds.theorem] = None
        verdicts.append(verdict(words, claim.get(bounded), bounds))
    reader.theorems.update(dict.fromkeys(composed.theorems))
    theorems = tuple(filter(None, reader.theorems))
    return Result(tuple(verdicts), tuple(reader.given), theorems, tuple(reader.notes))


def verdict(words: str, bound: fmpq | None, bounds: Bounds) -> Checked:
    """Compare a claimed bound with an upper and a lower bound of what the mechanism gives."""
    upper, lower, why = bounds
    if bound is None and bounds != EVIDENCE:
        return Checked(words, HOLDS, why="it claims nothing")
    if bound is None or (upper is None and lower is None):
        why = why or "no theorem leads from the mechanism to it"
        return Checked(words, NOT_CHECKABLE, why=why)
    ends = ["" if end is None else said(end) for end in (upper, lower)]
    # certain comparisons alone: a ball that straddles the claim shows nothing
    if upper is not None and upper <= bound:
        return Checked(words, HOLDS, *ends)
    return Checked(words, FALSE if lower is not None and lower > bound else NOT_SHOWN, *ends)


def _approximate(claim: Claim, known: Known, composed: Composed) -> Bounds:
    epsilon = claim["epsilon"]
    if not known.choices:
        return NOTHING
    if epsilon is None:
        # δ at an ε of ∞: what gives itself away
        return Bounds(composed.infinite())
    # at ε = 0 γ = 1 is a fraction: δ is the total variation, exactly
    exact = composed.exact(fmpq(1)) if epsilon == 0 else None
    if exact is not None:
        return Bounds(exact, exact if composed.attained else None)
    if composed.pure is not None and composed.pure <= epsilon:
        return Bounds(ZERO, ZERO)
    return Bounds(*composed.at(arb(epsilon), claim["delta"]))


def _pure(_: Claim, known: Known, composed: Composed) -> Bounds:
    if not known.choices:
        return NOTHING
    # no bound of the loss: at no ε is δ = 0
    found = arb.pos_inf() if composed.pure is None else composed.pure
    sharp = composed.attained and isinstance(found, fmpq)
    source = "losses of releases about one record add up at most"
    return Bounds(found, found if sharp else None, source)


def _gaussian(_: Claim, __: Known, composed: Composed) -> Bounds:
    square = composed.gaussian
    if square is None:
        return NOTHING
    # exactly where it can be said exactly: a claim may be the truth itself
    root: Number = fmpq(isqrt(int(square.p)), isqrt(int(square.q)))
    root = root if root * root == square else arb(square).sqrt()
    source = "Dong, Roth and Su (2022), Corollary 3.3: squares of μ add up"
    return Bounds(root, root if composed.attained else None, source)


def _renyi(claim: Claim, _: Known, composed: Composed) -> Bounds:
    moment = composed.moment(claim["order"])
    if moment is None:
        return NOTHING
    value = moment / arb(claim["order"] - 1)
    source = "Mironov (2017), Proposition 1: Rényi divergences add up"
    return Bounds(value, value if composed.attained else None, source)


def _success(claim: Claim, known: Known, composed: Composed) -> Bounds:
    prior, success = claim["prior"], claim["success"]
    if prior == 1 or success == 1:
        return Bounds(fmpq(1), fmpq(1))
    if not known.choices:
        return _guess(claim, known, prior)
    # 1 − p + p H(ε), ε = ln((1 − p)/p): as δ at an ε
    source = "Neyman and Pearson: success is 1 − p + p H(ln((1 − p)/p))"
    odds = (1 - prior) / prior
    exact = composed.exact(odds)
    upper: Number | None = exact
    lower: Number | None = exact if composed.attained else None
    if exact is None:
        upper, lower = composed.at(arb(odds).log(), (success - (1 - prior)) / prior)

    def right(height: Number | None) -> Number | None:
        return None if height is None else height * prior + (1 - prior)

    return Bounds(right(upper), right(lower), source)


def _guess(claim: Claim, known: Known, prior: fmpq) -> Bounds:
    """Bounds of a guess that is right with probability ``prior`` blind, by counting or by nats."""
    success = claim["success"]
    if known.cells is not None:
        occupied, candidates, counted = known.cells
        # a prior as a decimal: 1/3 as .3333 to six digits
        if abs(prior * candidates - 1) * 10**6 <= 1:
            value = fmpq(occupied, candidates)
            return Bounds(value, value if counted else None, "Bayes' rule")
    if known.factor is not None:
        return Bounds(min(fmpq(1), known.factor * prior), None, "maximal leakage")
    if known.nats is not None and success > prior:
        # holds where kl(s ‖ q) >= nats; said as s itself where it does
        s, q = arb(success), arb(prior)
        told = s * (s / q).log() + (ONE - s) * ((ONE - s) / (ONE - q)).log()
        source = "residual-pac, Eq. 17: kl(success ‖ prior) <= I(X; Y)"
        return Bounds(success if told >= known.nats else fmpq(1), None, source)
    return NOTHING


def _naming(claim: Claim, known: Known, composed: Composed) -> Bounds:
    candidates, square = claim["candidates"], composed.gaussian
    named = known.cells is not None and known.cells[1] == candidates
    if named or (known.factor is not None and not known.choices):
        return _guess(claim, known, fmpq(1, candidates))
    if square is None or candidates > 100_000:
        return NOTHING
    value = simplex(arb(square).sqrt(), candidates)
    source = "k Gaussians at most μ apart are told apart best as a regular simplex of side μ"
    return Bounds(value, value if composed.attained else None, source)


def simplex(mu: arb, candidates: int) -> arb:
    """Return ∫ φ(x) Φ(x + μ/√2)^{k−1} dx, naming one of k corners of a simplex of side μ."""
    shift = acb(mu / arb(2).sqrt())

    def integrand(x: acb, _: bool) -> acb:
        # Φ(x + μ/√2): the named corner's noise is above that of each of k − 1 others
        below = (-(x + shift) / acb(2).sqrt()).erfc() / 2
        return (-x * x / 2).exp() * below ** (candidates - 1) / (2 * acb.pi()).sqrt()

    # beyond 14 lies less than 2e-44
    return integral(integrand, arb(-14), arb(14), -80) + ZERO.union(half_square_tail(arb(14)) * 2)


def _information(claim: Claim, known: Known, composed: Composed) -> Bounds:
    candidates = claim.get("candidates")
    bounds: list[arb] = [] if known.nats is None else [known.nats]
    if known.choices and candidates is None:
        # under every law on two inputs: ln 2, and the capacity at the variance μ²/4
        bounds.append(arb(2).log())
        if composed.gaussian is not None:
            bounds.append((ONE + arb(composed.gaussian) / 4).log() * HALF)
    if candidates is not None and (bounds or known.choices):
        bounds.append(arb(candidates).log())
    if not bounds:
        return NOTHING
    least = -largest(-bound for bound in bounds)
    return Bounds(least, None, "I(X; Y) <= ln of what there is; Shannon's capacity")


def _factor(_: Claim, known: Known, composed: Composed) -> Bounds:
    if known.factor is not None:
        return Bounds(known.factor)
    if known.choices and composed.pure is not None:
        # ln of the factor is at most ε under every prior
        return Bounds(arb(composed.pure).exp(), None, "maximal leakage is at most ε")
    return NOTHING


EVIDENCE = Bounds(theorem="statistical evidence: believed or repeated, not proved")


def or_nothing(field: Field) -> Field:
    """Return what reads a number, or the word for a bound that claims nothing."""
    return lambda value, name: None if value == "Infinity" else field(value, name)


Rule: TypeAlias = Callable[[Claim, Known, Composed], Bounds]
LOSS, FEW = or_nothing(NOT_NEGATIVE), count(2)
# kind: the fields it needs, those it may have, which of them is the bound, the words, and the rule.
CLAIMS: dict[str, tuple[Fields, Fields, str, str, Rule]] = {
    "approximate-dp": (
        *({"epsilon": LOSS, "delta": RATE}, {}, "delta"),
        *("ε <= {epsilon} at δ = {delta}", _approximate),
    ),
    "pure-dp": ({"epsilon": LOSS}, {}, "epsilon", "ε <= {epsilon} at δ = 0", _pure),
    "gaussian-dp": ({"mu": LOSS}, {}, "mu", "μ <= {mu}", _gaussian),
    "renyi": (
        *({"order": within(1, above=True), "epsilon": LOSS}, {}, "epsilon"),
        *("Rényi divergence of order {order} <= {epsilon} nats", _renyi),
    ),
    "success": (
        *({"prior": within(0, 1, above=True), "success": RATE}, {}, "success"),
        *("success <= {success}, prior {prior}", _success),
    ),
    "naming": (
        *({"candidates": FEW, "success": RATE}, {}, "success"),
        *("success <= {success} in naming one of {candidates}", _naming),
    ),
    "information": (
        *({"nats": LOSS}, {"candidates": FEW}, "nats"),
        *("information <= {nats} nats", _information),
    ),
    "factor": (
        *({"factor": or_nothing(within(1))}, {}, "factor"),
        *("every chance grows by a factor <= {factor}", _factor),
    ),
    "statistical": (
        *({"statement": sentence, "confidence": RATE}, {}, ""),
        *("{statement} (confidence {confidence})", lambda *_: EVIDENCE),
    ),
}
