"""Each claim against what is known of the mechanism: holds, false, not shown, not checkable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flint import acb, arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, RefusedFileError, half_square_tail, largest, said
from tacit_check.composing import Composed, Worst
from tacit_check.mechanisms import Known, Reader
from tacit_check.projections import integral
from tacit_check.reading import Proof, count, number, only, sentence_of

HOLDS, FALSE, NOT_SHOWN, NOT_CHECKABLE = "holds", "false", "not shown", "not checkable"
KL_SOURCE = "residual-pac, Eq. 17: kl(success ‖ prior) <= I(X; Y)"
NEYMAN = "Neyman and Pearson: success is 1 − p + p H(ln((1 − p)/p))"


@dataclass(frozen=True)
class Checked:
    """What was found of a claim.

    Attributes:
        claim: in words.
        verdict: one of the four.
        upper: what the mechanism gives is at most this; empty where nothing was computed.
        lower: and at least this.
        why: in words.
        theorems: beside those of the mechanism.
    """

    claim: str
    verdict: str
    upper: str = ""
    lower: str = ""
    why: str = ""
    theorems: tuple[str, ...] = ()


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
    notes: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether every claim that can be checked holds, and at least one can."""
        found = {one.verdict for one in self.verdicts}
        return HOLDS in found and found <= {HOLDS, NOT_CHECKABLE}

    @property
    def word(self) -> str:
        """The verdict of all: the worst."""
        found = {one.verdict for one in self.verdicts}
        return next((one for one in (FALSE, NOT_SHOWN, HOLDS) if one in found), NOT_CHECKABLE)


def check(proof: Proof, measured: Mapping[str, Any] | None = None) -> Result:
    """Check every claim of a proof node.

    Args:
        proof: as read.
        measured: numbers that the holder's data gave, by digest.

    Raises:
        RefusedFileError: The node is not of the format.
    """
    mechanism = Reader(proof, measured).read(proof.mechanism)
    claims = [read_claim(claim) for claim in proof.claims]
    deltas = [one["delta"] for one in claims if one["kind"] == "approximate-dp" and one["delta"]]
    least = min(deltas, default=fmpq(1, 10**10))
    choices = mechanism.choices
    composed = Worst(choices, least) if choices else Composed(mechanism.parts, least)
    if mechanism.unknown:
        verdicts = tuple(
            Checked(sentence(one), NOT_CHECKABLE, why=mechanism.unknown) for one in claims
        )
        return Result(verdicts, given=proof.given)
    verdicts = tuple(CHECKS[one["kind"]](one, mechanism, composed) for one in claims)
    theorems = [line for one in verdicts for line in one.theorems]
    return Result(
        verdicts,
        given=(*proof.given, *mechanism.given),
        theorems=tuple(dict.fromkeys((*mechanism.theorems, *composed.theorems, *theorems))),
        notes=mechanism.notes,
    )


def read_claim(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim with exact numbers; ``said`` holds them as written."""
    kind = node["kind"]
    if kind not in CLAIMS:
        raise RefusedFileError(f"claims: no kind {kind[:40]!r}")
    needed, optional = CLAIMS[kind]
    only(node, kind, ("kind", *needed), optional)
    found: dict[str, Any] = {"kind": kind, "said": {}}
    for name in (*needed, *(one for one in optional if one in node)):
        found["said"][name] = node[name]
        if name == "statement":
            found[name] = sentence_of(node[name], name)
        elif name == "candidates":
            found[name] = count(node, name, low=2)
        elif node[name] == "Infinity" and name in ("epsilon", "mu", "nats", "factor"):
            found[name] = None
        else:
            low, high, above = RANGES[name]
            found[name] = number(node, name, low=low, high=high, above=above)
    return found


# The names a claim needs, and those it may have.
CLAIMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "approximate-dp": (("epsilon", "delta"), ()),
    "pure-dp": (("epsilon",), ()),
    "gaussian-dp": (("mu",), ()),
    "renyi": (("order", "epsilon"), ()),
    "success": (("prior", "success"), ()),
    "naming": (("candidates", "success"), ()),
    "information": (("nats",), ("candidates",)),
    "factor": (("factor",), ()),
    "statistical": (("statement", "confidence"), ()),
}
RANGES: dict[str, tuple[int | None, int | None, bool]] = {
    "epsilon": (0, None, False),
    "delta": (0, 1, False),
    "mu": (0, None, False),
    "order": (1, None, True),
    "prior": (0, 1, True),
    "success": (0, 1, False),
    "nats": (0, None, False),
    "factor": (1, None, False),
    "confidence": (0, 1, False),
}
Claim = Mapping[str, Any]


def verdict(
    claim: Claim, bound: fmpq | None, upper: arb | None, lower: arb | None, *theorems: str
) -> Checked:
    """Compare a claimed bound with an upper and a lower bound of what the mechanism gives."""
    words = sentence(claim)
    if bound is None:
        return Checked(words, HOLDS, why="it claims nothing", theorems=theorems)
    if upper is None and lower is None:
        return Checked(words, NOT_CHECKABLE, why="no theorem leads from the mechanism to it")
    limit = arb(bound)
    ends = {
        "upper": "" if upper is None else said(arb(upper.upper())),
        "lower": "" if lower is None else said(arb(lower.lower())),
    }
    # certain comparisons alone: a ball that straddles the claim shows nothing
    if upper is not None and upper <= limit:
        return Checked(words, HOLDS, **ends, theorems=theorems)
    if lower is not None and lower > limit:
        return Checked(words, FALSE, **ends, theorems=theorems)
    return Checked(words, NOT_SHOWN, **ends, theorems=theorems)


def exactly(claim: Claim, bound: fmpq | None, value: fmpq, attained: bool, *names: str) -> Checked:
    """Compare with a bound that is known exactly."""
    words, number_said = sentence(claim), said(arb(value))
    if bound is None or value <= bound:
        return Checked(words, HOLDS, number_said, number_said if attained else "", theorems=names)
    if attained:
        return Checked(words, FALSE, number_said, number_said, theorems=names)
    return Checked(words, NOT_SHOWN, number_said, theorems=names)


def sentence(claim: Claim) -> str:
    """Return a claim in words."""
    told = claim["said"]
    return {
        "approximate-dp": "ε <= {epsilon} at δ = {delta}",
        "pure-dp": "ε <= {epsilon} at δ = 0",
        "gaussian-dp": "μ <= {mu}",
        "renyi": "Rényi divergence of order {order} <= {epsilon} nats",
        "success": "success <= {success}, prior {prior}",
        "naming": "success <= {success} in naming one of {candidates}",
        "information": "information <= {nats} nats",
        "factor": "every chance grows by a factor <= {factor}",
        "statistical": "{statement} (confidence {confidence})",
    }[claim["kind"]].format(**told)


def _approximate(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    if not mechanism.paired:
        return verdict(claim, claim["delta"], None, None)
    if claim["delta"] == 0:
        return _pure(claim, mechanism, composed)
    epsilon = claim["epsilon"]
    if epsilon is None:
        # δ at an ε of ∞: what gives itself away
        return verdict(claim, claim["delta"], composed.infinite(), None)
    exact = composed.exact(fmpq(1)) if epsilon == 0 else None
    if exact is not None:
        return exactly(claim, claim["delta"], exact, composed.attained)
    upper, lower = composed.delta(epsilon, claim["delta"])
    return verdict(claim, claim["delta"], upper, lower)


def _pure(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    if not mechanism.paired:
        return verdict(claim, claim["epsilon"], None, None)
    exact = composed.pure
    source = "losses of releases about one record add up at most"
    if exact is not None:
        return exactly(claim, claim["epsilon"], exact, composed.attained, source)
    most = composed.most
    if most is None:
        # no bound of the loss: at no ε is δ = 0
        return verdict(claim, claim["epsilon"], arb.pos_inf(), None, source)
    return verdict(claim, claim["epsilon"], most, None, source)


def _gaussian(claim: Claim, _: Known, composed: Composed) -> Checked:
    square, mu = composed.gaussian, claim["mu"]
    if square is None:
        return verdict(claim, mu, None, None)
    source = "Dong, Roth and Su (2022), Corollary 3.3: squares of μ add up"
    bound = None if mu is None else mu * mu
    found = exactly(claim, bound, square, composed.attained, source)
    root = said(arb(square).sqrt())
    return replace(found, upper=root, lower=root if found.lower else "")


def _renyi(claim: Claim, _: Known, composed: Composed) -> Checked:
    order = claim["order"]
    moment = composed.moment(order)
    if moment is None:
        return verdict(claim, claim["epsilon"], None, None)
    value = moment / arb(order - 1)
    source = "Mironov (2017), Proposition 1: Rényi divergences add up"
    return verdict(claim, claim["epsilon"], value, value if composed.attained else None, source)


def _success(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    prior, success = claim["prior"], claim["success"]
    if prior == 1 or success == 1:
        return exactly(claim, success, fmpq(1) if prior == 1 else fmpq(0), True)
    if mechanism.paired:
        source = "finite laws: fractions"
        exact = composed.exact((1 - prior) / prior)
        if exact is not None:
            value = 1 - prior + prior * exact
            return exactly(claim, success, value, composed.attained, NEYMAN, source)
        # 1 − p + p H(ε), ε = ln((1 − p)/p): as δ at an ε
        share = arb(prior)
        epsilon = ((ONE - share) / share).log()
        claimed = (success - (1 - prior)) / prior
        upper, lower = composed.at(epsilon, claimed)
        return verdict(
            claim,
            success,
            ONE - share + share * upper,
            None if lower is None else ONE - share + share * lower,
            NEYMAN,
        )
    return _guess(claim, mechanism, prior)


def _guess(claim: Claim, mechanism: Known, prior: fmpq) -> Checked:
    """Bounds of a guess that is right with probability ``prior`` blind, by counting or by nats."""
    success = claim["success"]
    if mechanism.cells is not None and _near(prior, fmpq(1, mechanism.cells[1])):
        return exactly(claim, success, fmpq(*mechanism.cells), not mechanism.given, "Bayes' rule")
    if mechanism.factor is not None:
        value = min(fmpq(1), mechanism.factor * prior)
        return exactly(claim, success, value, False, "maximal leakage")
    if mechanism.nats is not None and success > prior:
        # holds where kl(s ‖ q) >= nats; said as s itself where it does
        s, q = arb(success), arb(prior)
        told = s * (s / q).log() + (ONE - s) * ((ONE - s) / (ONE - q)).log()
        # below s by less than a ball is wide: s itself is bounded
        upper = s.lower() if told >= mechanism.nats else ONE
        return verdict(claim, success, upper, None, KL_SOURCE)
    return verdict(claim, success, None, None)


def _near(one: fmpq, other: fmpq) -> bool:
    # a prior as a decimal: 1/3 as .3333 to six digits
    return abs(one - other) * 10**6 <= other


def _naming(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    candidates, success = claim["candidates"], claim["success"]
    square = composed.gaussian
    named = mechanism.cells is not None and mechanism.cells[1] == candidates
    if named or (mechanism.factor is not None and not mechanism.paired):
        return _guess(claim, mechanism, fmpq(1, candidates))
    if square is None or candidates > 100_000:
        return verdict(claim, success, None, None)
    value = simplex(arb(square).sqrt(), candidates)
    source = "k Gaussians at most μ apart are told apart best as a regular simplex of side μ"
    return verdict(claim, success, value, value if composed.attained else None, source)


def simplex(mu: arb, candidates: int) -> arb:
    """Return ∫ φ(x) Φ(x + μ/√2)^{k−1} dx, naming one of k corners of a simplex of side μ."""
    shift = acb(mu / arb(2).sqrt())

    def integrand(x: acb, _: bool) -> acb:
        below = (-(x + shift) / acb(2).sqrt()).erfc() / 2
        return (-x * x / 2).exp() * below ** (candidates - 1) / (2 * acb.pi()).sqrt()

    # beyond 14 lies less than 2e-44
    return integral(integrand, arb(-14), arb(14), -80) + ZERO.union(half_square_tail(arb(14)) * 2)


def _information(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    nats, candidates = claim["nats"], claim.get("candidates")
    bounds: list[arb] = []
    if mechanism.nats is not None:
        bounds.append(mechanism.nats)
    if mechanism.paired and candidates is None:
        # under every law on two inputs: ln 2, and the capacity at the variance μ²/4
        bounds.append(arb(2).log())
        if composed.gaussian is not None:
            bounds.append((ONE + arb(composed.gaussian) / 4).log() * HALF)
    if candidates is not None and (bounds or mechanism.parts):
        bounds.append(arb(candidates).log())
    if not bounds:
        return verdict(claim, nats, None, None)
    upper = -largest(-bound for bound in bounds)
    return verdict(claim, nats, upper, None, "I(X; Y) <= ln of what there is; Shannon's capacity")


def _factor(claim: Claim, mechanism: Known, composed: Composed) -> Checked:
    if mechanism.factor is not None:
        return exactly(claim, claim["factor"], mechanism.factor, False)
    if mechanism.paired and composed.pure is not None:
        # ln of the factor is at most ε under every prior
        value = arb(composed.pure).exp()
        return verdict(claim, claim["factor"], value, None, "maximal leakage is at most ε")
    return verdict(claim, claim["factor"], None, None)


def _statistical(claim: Claim, _: Known, __: Composed) -> Checked:
    return Checked(
        sentence(claim), NOT_CHECKABLE, why="statistical evidence: believed or repeated, not proved"
    )


CHECKS: dict[str, Callable[[Claim, Known, Composed], Checked]] = {
    "approximate-dp": _approximate,
    "pure-dp": _pure,
    "gaussian-dp": _gaussian,
    "renyi": _renyi,
    "success": _success,
    "naming": _naming,
    "information": _information,
    "factor": _factor,
    "statistical": _statistical,
}
