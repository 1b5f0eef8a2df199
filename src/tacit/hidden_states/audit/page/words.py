"""What an audit of hidden states says, in words a manager can repeat."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.guarantees import MaximalLeakage
from tacit.guarantees.leakage import factor_words
from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.audit.release import Audit
from tacit.measured import Interval
from tacit.releases import Release
from tacit.text import in_nats, number_up, percent, share_up, significant

READ = {
    "raw": "read as it comes",
    "posterior-mean": "denoised by public states",
    "wiener": "denoised linearly",
    "trained": "denoised by a small network",
    "posterior-behaviour": "decoded alone by public states",
    "states": "read as a state",
    "table": "looked up in a table",
}


@dataclass(frozen=True)
class AuditVerdict:
    """What is said first.

    Attributes:
        kind: "bounded", "measured" or "none".
        lead: what to store and what that promises.
        rest: what follows from it, and what is left of the prediction; may be empty.
    """

    kind: str
    lead: str
    rest: str = ""

    @property
    def sentence(self) -> str:
        """Both in one line."""
        return f"{self.lead} {self.rest}".strip()


def audit_verdict(audit: Release[Audit]) -> AuditVerdict:
    """Return the verdict on a layer: what to store, what it gives away, what it keeps."""
    recommendation = audit.details.recommendation
    chosen, times = recommendation.point, audit.details.wish.releases
    if chosen is None:
        reason = recommendation.reasons[0].rstrip(".")
        reason = reason[:1].lower() + reason[1:]
        return AuditVerdict("none", f"Store none of these releases: {reason}.")
    stored, keeps = mechanism_of(chosen).stored(chosen), _kept(chosen)
    if chosen.bound is not None:
        leakage = audit.leakage
        factor = "" if leakage is None else f": {_factor(leakage)}"
        seen = "one release" if times == 1 else f"{times} releases"
        return AuditVerdict(
            "bounded",
            f"Store {stored}{factor}.",
            f"An attacker who knows no more than that it is one of {chosen.bank:,} prompts, all "
            f"equally likely, names it from {seen} at most {share_up(chosen.bound)} of the time; "
            f"{keeps}.",
        )
    return AuditVerdict(
        "measured",
        f"Store {stored}: the strongest attack we ran on one release names the prompt among "
        f"{chosen.bank:,} equally likely ones {percent(chosen.best_attack.top1.value)} of the "
        "time. Nothing proves that a better attack does no better.",
        f"{keeps[:1].upper()}{keeps[1:]}.",
    )


def _factor(leakage: MaximalLeakage) -> str:
    """Say what holds for every prior, and for how many codes about one prompt."""
    told = "one code per prompt, ever, multiplies"
    if leakage.releases > 1:
        told = f"{leakage.releases} codes per prompt, ever, together multiply"
    return (
        f"{told} any attacker’s chance of guessing anything about the prompt right by at most "
        f"{factor_words(leakage)} ({in_nats(number_up(leakage.nats))})"
    )


def _kept(chosen: Point) -> str:
    """Say what is left of the prediction, and in which protocol that was measured."""
    kept = percent(chosen.agreement.value)
    lost = f"forward KL {significant(chosen.kl.value)} nats on average"
    if chosen.kl_median is not None and chosen.kl_95 is not None:
        median, tail = significant(chosen.kl_median.value), significant(chosen.kl_95.value)
        lost += f", median {median}, 95% quantile {tail}"
    if chosen.protocol == "B":
        return (
            f"the release alone gives the model’s next token for {kept} of prompts (protocol B; "
            f"{lost})"
        )
    return (
        f"the model’s next token stays the same for {kept} of prompts (protocol A: the earlier "
        f"positions are clean; {lost})"
    )


def words(point: Point) -> str:
    """Say what is released."""
    return mechanism_of(point).words(point)


def setting(point: Point) -> str:
    """Return C, what was asked for and how many codes occur where they differ; or K or ε."""
    if point.cells is not None:
        occur = "" if point.rank == point.cells else f", {point.rank:,} occur"
        return f"{point.setting}{occur}"
    return size_of_noise(point) or "–"


def size_of_noise(point: Point) -> str:
    """Return K or ε, which words leave open; empty where nothing of the kind was set."""
    if point.target_epsilon is not None:
        return f"ε = {point.target_epsilon:g}"
    return "" if point.kl_budget is None else f"K = {point.kl_budget:.3g}"


def divergence(point: Point) -> str:
    """Return the mean KL, its median and 95% quantile where they were measured."""
    mean = significant(point.kl.value)
    if point.kl_median is None or point.kl_95 is None:
        return mean
    return f"{mean} ({significant(point.kl_median.value)}; {significant(point.kl_95.value)})"


def use_of(point: Point) -> str:
    """Say what is left of the prediction besides what the verdict says."""
    parts = []
    if point.jensen_shannon is not None:
        parts.append(f"Jensen–Shannon {significant(point.jensen_shannon.value)} nats")
    if point.top5 is not None:
        parts.append(f"{percent(point.top5.value)} of the 5 likeliest tokens stay among them")
    return "; ".join([*parts, f"measured on {point.prompts:,} held-out prompts"])


def share(found: Interval | None) -> str:
    """Return a measured share with its interval."""
    if found is None:
        return "–"
    if found.low == found.high:
        return percent(found.value)
    return f"{percent(found.value)} [{percent(found.low)[:-1]}, {percent(found.high)[:-1]}]"
