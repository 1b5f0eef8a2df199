"""Each claim against what is known of the mechanism: holds, false, not shown, not checkable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

from flint import acb, arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, Number, half_square_tail, largest, require, said
from tacit_check.composing import Composed, Worst
from tacit_check.mechanisms import FEW, NOT_NEGATIVE, RATE, Known, Reader
from tacit_check.projections import integral
from tacit_check.reading import NONE, Field, Fields, Proof, fields, kind_of, sentence, within

HOLDS, FALSE, NOT_SHOWN, NOT_CHECKABLE = "holds", "false", "not shown", "not checkable"
# The fields of a claim.
Claim = Mapping[str, Any]


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
    def word(self) -> str:
        """The verdict of all: the worst; it holds where all that can be checked do."""
        found = {one.verdict for one in self.verdicts}
        return next((one for one in (FALSE, NOT_SHOWN, HOLDS) if one in found), NOT_CHECKABLE)


class Bounds(NamedTuple):
    """What the mechanism gives is at most ``upper`` and at least ``lower``, by a theorem."""

    upper: Number | None = None
    lower: Number | None = None
    theorem: str = ""


NOTHING = Bounds()
EVIDENCE = Bounds(theorem="statistical evidence: believed or repeated, not proved")


class Form(NamedTuple):
    """A form of claim.

    Attributes:
        rule: bounds of what it speaks of, told the claim, what is known and it composed.
        bounded: which of the fields is claimed to bound it.
        words: the claim in words.
        needed: the fields that it needs.
        optional: those that it may have.
    """

    rule: Callable[[Claim, Known, Composed], Bounds]
    bounded: str
    words: str
    needed: Fields
    optional: Fields = NONE


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
    require(reader.used >= set(reader.measured), "--data: no node of the file names its digest")
    read = [kind_of(node, "claims", CLAIMS) for node in proof.claims]
    claims = [(kind, fields(rest, kind, *CLAIMS[kind][3:])) for kind, rest in read]
    # lattices are built for the least δ that is asked for
    least = min((one["delta"] for _, one in claims if one.get("delta")), default=fmpq(1, 10**10))
    parts = known.choices[0] if known.choices else ()
    composed = Worst(known.choices, least) if known.choices[1:] else Composed(parts, least)
    verdicts = []
    for (kind, claim), (_, written) in zip(claims, read, strict=True):
        words = CLAIMS[kind].words.format(**written)
        words += "".join(f", {one} {written[one]}" for one in CLAIMS[kind].optional if one in claim)
        if known.unknown:
            verdicts.append(Checked(words, NOT_CHECKABLE, why=known.unknown))
            continue
        # δ = 0 bounds the loss itself
        rule, bounded, *_ = CLAIMS["pure-dp" if claim.get("delta") == 0 else kind]
        bounds = rule(claim, known, composed)
        reader.theorems[bounds.theorem] = None
        verdicts.append(verdict(words, claim.get(bounded), bounds))
    theorems = tuple(filter(None, dict.fromkeys([*reader.theorems, *composed.theorems])))
    return Result(tuple(verdicts), tuple(reader.given), theorems, tuple(reader.notes))


def verdict(words: str, bound: fmpq | None, bounds: Bounds) -> Checked:
    """Compare a claimed bound with an upper and a lower bound of what the mechanism gives."""
    upper, lower, why = bounds
    if bound is None and bounds != EVIDENCE:
        return Checked(words, HOLDS, why="it claims nothing")
    if bound is None:
        return Checked(words, NOT_CHECKABLE, why=why)
    if upper is None and lower is None:
        # of a claim that could be proved, and is not, a verdict of the whole says so
        return Checked(words, NOT_SHOWN, why="no theorem leads from the mechanism to it")
    ends = ["" if end is None else said(end) for end in (upper, lower)]
    # certain comparisons alone: a ball that straddles the claim shows nothing
    if upper is not None and upper <= bound:
        return Checked(words, HOLDS, *ends)
    return Checked(words, FALSE if lower is not None and lower > bound else NOT_SHOWN, *ends)


def _sharp(value: Number, composed: Composed, theorem: str) -> Bounds:
    # a lower bound too where some pair of inputs attains it
    return Bounds(value, value if composed.attained else None, theorem)


def _approximate(claim: Claim, known: Known, composed: Composed) -> Bounds:
    epsilon = claim["epsilon"]
    if not known.choices:
        return NOTHING
    if epsilon is None:
        # δ at an ε of ∞: what gives itself away
        return Bounds(composed.infinite())
    # at ε = 0 γ = 1 is a fraction: δ is the total variation, exactly
    return Bounds(*composed.at(None if epsilon else fmpq(1), arb(epsilon), claim["delta"]))


def _pure(_: Claim, __: Known, composed: Composed) -> Bounds:
    # no bound of the loss: at no ε is δ = 0
    found = arb.pos_inf() if composed.pure is None else composed.pure
    sharp = composed.attained and isinstance(found, fmpq)
    theorem = "losses of releases about one record add up at most"
    return Bounds(found, found if sharp else None, theorem)


def _gaussian(_: Claim, __: Known, composed: Composed) -> Bounds:
    square = composed.summed(lambda one: one.under if one.gaussian is None else one.gaussian)
    if square is None:
        return NOTHING
    root: Number = arb(square).sqrt()
    if isinstance(square, fmpq):
        # exactly where it can be said exactly: a claim may be the truth itself
        exact = fmpq(isqrt(int(square.p)), isqrt(int(square.q)))
        root = exact if exact * exact == square else root
    bounds = _sharp(root, composed, "Dong, Roth and Su (2022), Corollary 3.3: squares of μ add up")
    return bounds._replace(lower=None) if composed.gaussian is None else bounds


def _renyi(claim: Claim, _: Known, composed: Composed) -> Bounds:
    moment, theorem = composed.moment(claim["order"]), "Proposition 1: Rényi divergences add up"
    if moment is None:
        return NOTHING
    return _sharp(moment / arb(claim["order"] - 1), composed, f"Mironov (2017), {theorem}")


def _success(claim: Claim, known: Known, composed: Composed) -> Bounds:
    prior, success = claim["prior"], claim["success"]
    if prior == 1 or success == 1:
        return Bounds(fmpq(1), fmpq(1))
    if not known.choices:
        return _guess(success, known, prior)
    # 1 − p + p H(ε), ε = ln((1 − p)/p): as δ at an ε
    odds, blind = (1 - prior) / prior, 1 - prior
    ends = composed.at(odds, arb(odds).log(), (success - blind) / prior)
    upper, lower = (None if end is None else end * prior + blind for end in ends)
    return Bounds(upper, lower, "Neyman and Pearson: success is 1 − p + p H(ln((1 − p)/p))")


def _guess(success: fmpq, known: Known, prior: fmpq) -> Bounds:
    """Bounds of a guess that is right with probability ``prior`` blind, by counting or by nats."""
    # a prior as a decimal: 1/3 as .3333 to six digits
    if known.cells is not None and abs(prior * known.cells[1] - 1) * 10**6 <= 1:
        value = fmpq(*known.cells[:2])
        return Bounds(value, value if known.cells[2] else None, "Bayes' rule")
    if known.factor is not None:
        return Bounds(min(fmpq(1), known.factor * prior), None, "maximal leakage")
    if known.nats is None or success <= prior:
        return NOTHING
    # holds where kl(s ‖ q) >= nats; said as s itself where it does
    s, q = arb(success), arb(prior)
    told = s * (s / q).log() + (ONE - s) * ((ONE - s) / (ONE - q)).log()
    theorem = "residual-pac, Eq. 17: kl(success ‖ prior) <= I(X; Y)"
    return Bounds(success if told >= known.nats else fmpq(1), None, theorem)


def _naming(claim: Claim, known: Known, composed: Composed) -> Bounds:
    candidates, square = claim["candidates"], composed.gaussian
    named = known.cells is not None and known.cells[1] == candidates
    if named or (known.factor is not None and not known.choices):
        return _guess(claim["success"], known, fmpq(1, candidates))
    if square is None or candidates > MOST_NAMED:
        return NOTHING
    theorem = "k Gaussians at most μ apart are told apart best as a regular simplex of side μ"
    return _sharp(simplex(arb(square).sqrt(), candidates), composed, theorem)


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
    told = known.nats if known.factor is None else arb(known.factor).log()
    # of a pair under every law on two inputs: ln 2, and the capacity at the variance μ²/4
    many = claim.get("candidates", 2 if known.choices else None)
    if told is None and not known.choices:
        return NOTHING
    bounds = [arb.pos_inf() if told is None else told, arb(many).log() if many else arb.pos_inf()]
    if composed.gaussian is not None and "candidates" not in claim:
        bounds.append((ONE + arb(composed.gaussian) / 4).log() * HALF)
    theorem = "I(X; Y) <= ln of what there is; Shannon's capacity"
    return Bounds(-largest(-bound for bound in bounds), None, theorem)


def _factor(_: Claim, known: Known, composed: Composed) -> Bounds:
    if known.factor is not None:
        return Bounds(known.factor)
    if composed.pure is None:
        return NOTHING
    # ln of the factor is at most ε under every prior
    return Bounds(arb(composed.pure).exp(), None, "maximal leakage is at most ε")


def or_nothing(field: Field) -> Field:
    """Return what reads a number, or the word for a bound that claims nothing."""
    return lambda value, name: None if value == "Infinity" else field(value, name)


# What a naming is worked out for.
MOST_NAMED = 100_000
LOSS, ABOVE, ORDER = or_nothing(NOT_NEGATIVE), within(0, 1, above=True), within(1, above=True)
ORDERED: Fields = {"order": ORDER, "epsilon": LOSS}
GUESS: Fields = {"prior": ABOVE, "success": RATE}
NAMED: Fields = {"candidates": FEW, "success": RATE}
GROWTH: Fields = {"factor": or_nothing(within(1))}
SAID: Fields = {"statement": sentence, "confidence": RATE}
BOTH: Fields = {"epsilon": LOSS, "delta": RATE}
MANY: Fields = {"candidates": FEW}
CLAIMS: dict[str, Form] = {
    "approximate-dp": Form(_approximate, "delta", "ε <= {epsilon} at δ = {delta}", BOTH),
    "pure-dp": Form(_pure, "epsilon", "ε <= {epsilon} at δ = 0", {"epsilon": LOSS}),
    "gaussian-dp": Form(_gaussian, "mu", "μ <= {mu}", {"mu": LOSS}),
    "renyi": Form(_renyi, "epsilon", "Rényi of order {order} <= {epsilon} nats", ORDERED),
    "success": Form(_success, "success", "success <= {success}, prior {prior}", GUESS),
    "naming": Form(_naming, "success", "success <= {success} in naming one of {candidates}", NAMED),
    "information": Form(_information, "nats", "information <= {nats} nats", {"nats": LOSS}, MANY),
    "factor": Form(_factor, "factor", "every chance grows by a factor <= {factor}", GROWTH),
    "statistical": Form(lambda *_: EVIDENCE, "", "{statement} (confidence {confidence})", SAID),
}
