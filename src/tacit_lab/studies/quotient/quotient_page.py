"""The section on quotients and on DP-SGD, from experiments/quotient."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.places import IMAGES
from tacit_lab.studies.quotient.study import (
    NAMES,
    Released,
    at_attack,
    certified_at,
    groups,
    releases,
)
from tacit_lab.studies.reproductions.prose import filled, rounded_up, table

NAME = "quotient"
HOLDS, FAILS, PARTLY = "holds", "does not hold", "holds in part"
EQUAL_ATTACK = 0.1


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Predictive quotients, and DP-SGD against activations", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return figure, story, the comparisons and the verdicts."""
    found = releases(result["rows"])
    shown = (
        [f"![Attack over KL](../images/{NAME}.svg)", ""]
        if (IMAGES / f"{NAME}.svg").is_file()
        else []
    )
    verdicts = [*_claims(found, result), *_private_claims(result["private"])]
    return [
        *shown, filled(story(result)), "",
        *table(["claim", "found here", "verdict"],
               [[claim, told, f"**{word}**"] for claim, told, word in verdicts]),
        *_equal_nats(found, result), *_equal_attack(found),
        *_estimates(result["estimates"]), *_private(result["private"]),
    ]  # fmt: skip


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is compared."""
    return f"""Layer {result["layer"]} of `{result["model"]}`, prompts of {result["length"]} tokens,
{result["calibration"]:,} public ones to fit on, a bank of {result["bank"]:,} of which
{result["queries"]:,} are attacked, {result["prompts"]} held-out ones to measure use on. A quotient
has two hidden layers of 256 units and {result["epochs"]} passes. The attacker knows encoder or
codebook and bank, and is Bayes': exact for codes, with a 95% interval where noise was drawn. Use
is that of the better reader under each protocol. Protocol A goes on from the mean public state
given the
release with the earlier positions clean. Protocol B has the release alone (the decoder, the table,
or
Bayes' rule over public prompts). The paper's encoder has two layers at GPT-2 small and 50,000
steps; this is a small model and minutes of training."""


def _equal_nats(found: list[Released], result: dict[str, Any]) -> list[str]:
    rows = []
    for held in certified_at(found, result["nats"]):
        attack, low, high = held.attack
        span = "" if low == high else f" [{low:.3f}, {high:.3f}]"
        rows.append([
            held.title, _nats(held.information), _nats(held.factor_nats),
            "–" if held.bound is None else rounded_up(held.bound, 3), f"{attack:.3f}{span}",
            *(f"{held.agreement(p)[0]:.3f} / {held.kl(p)[0]:.2f}" for p in "AB"),
        ])  # fmt: skip
    return [
        f"At {result['nats']:g} certified nats, of information or of the factor on every "
        "attacker's chance:", "",
        *table(["release", "I ≤", "ln factor ≤", "named ≤", "named", "A: agreement / KL",
                "B: agreement / KL"], rows),
    ]  # fmt: skip


def _equal_attack(found: list[Released]) -> list[str]:
    rows = []
    for held in groups(found).values():
        reached = [at_attack(held, EQUAL_ATTACK, protocol) for protocol in "AB"]
        use = [one for one in reached if one]
        if len(use) == len(reached):
            size = f", k = {held[0].numbers[0]:g}" if len(held[0].numbers) > 1 else ""
            told = [f"{one['agreement']:.3f} / {one['kl']:.2f}" for one in use]
            rows.append([NAMES[held[0].kind] + size, *told])
    return [
        f"Where the attack names {EQUAL_ATTACK:.0%} of the prompts, between the levels measured:",
        "", *table(["release", "A: agreement / KL", "B: agreement / KL"], rows),
    ]  # fmt: skip


def _estimates(told: dict[str, Any]) -> list[str]:
    return [filled(f"""Estimates of one quotient of 16 numbers: {told["log_det"]:.2f} nats by
Thm 19's log-det of the bank's covariance and {told["rate"]:.2f} by App. X's rate. Certified are
{told["certified"]:.2f} nats of information and a factor of e^{told["factor_nats"]:.2f}. With a
fifth of the noise that the rate was worked out for, the attack names
{told["attack_less_noise"][0]:.3f} of the same means instead of {told["attack"][0]:.3f}: a rate
holds only for the noise that it was worked out for."""), ""]  # fmt: skip


def _private(private: dict[str, Any] | None) -> list[str]:
    if private is None:
        return []
    ratios = list(private["rows"][0]["retrieval"])
    columns = ["training", "held-out loss", *(f"r = {float(ratio):g}" for ratio in ratios),
               "tokens read back", "permuted"]  # fmt: skip
    rows = [
        [_training(row["epsilon"]), f"{row['loss']:.3f}",
         *(_interval(row["retrieval"][ratio]) for ratio in ratios),
         _interval(row["tokens"]), f"{row['permuted']:.3f}"]
        for row in private["rows"]
    ]  # fmt: skip
    return [filled(f"""DP-SGD (App. U.3): all linear layers trained on {private["records"]:,}
windows of Shakespeare, {private["steps"]} steps of {private["batch"]} expected records, for adding
or removing one window at δ = 1e-5. Then {private["bank"]:,} windows that no training saw are named
by the nearest state. Their own states have noise of r deviations of the states in every direction,
so that the
attack can fail. And {private["inverted"]} windows of {private["inverted_length"]} tokens are read
back from the states of all positions, noisy by {private["inverted_ratio"]:g} deviations."""), "",
        *table(columns, rows)]  # fmt: skip


def _claims(found: list[Released], result: dict[str, Any]) -> list[tuple[str, str, str]]:
    quotients = [held for held in found if held.kind.startswith("quotient")]
    return [
        _middle(quotients), _dimension(found, result["nats"]), _trained(found, result["rows"]),
        _books(found, result["nats"]), _factor(found, result["nats"]),
    ]  # fmt: skip


def _middle(quotients: list[Released]) -> tuple[str, str, str]:
    """App. X.2: 0 of 44."""
    inside = [
        held for held in quotients
        if held.attack[0] <= 0.5 and max(held.agreement(p)[0] for p in "AB") >= 0.5
    ]  # fmt: skip
    best = max(quotients, key=lambda held: max(held.agreement(p)[0] for p in "AB"))
    most = max(best.agreement(p)[0] for p in "AB")
    return (
        "No quotient agrees ≥ 0.5 at an attack ≤ 0.5 (App. X.2, 0 of 44)",
        f"{len(inside)} of {len(quotients)}; the most is {most:.3f} at {best.attack[0]:.3f}",
        FAILS if inside else HOLDS,
    )


def _dimension(found: list[Released], nats: float) -> tuple[str, str, str]:
    """R.2: the bound scales with k, not with d."""
    whole = next(held for held in found if held.kind == "clipped-state")
    few = _one(found, 16, nats)
    better = few.kl("B")[2] < whole.kl("B")[1]
    return (
        "At equal certified information few learnt numbers keep more than the whole state (R.2)",
        f"KL {few.kl('B')[0]:.2f} of 16 numbers, {whole.kl('B')[0]:.2f} of the state (B)",
        HOLDS if better else FAILS,
    )


def _trained(found: list[Released], rows: list[dict[str, Any]]) -> tuple[str, str, str]:
    told, wins = [], []
    for kind in ("quotient", "quotient-behaviour"):
        quiet = next(held for held in found if held.kind == f"{kind}-quiet")
        name = quiet.mechanism.replace("-quiet", "")
        noisy = next(held for held in found if held.mechanism == name)
        decoded = {row["mechanism"]: row["kl"] for row in rows if row["reading"] == "decoder"}
        own, late = decoded[noisy.mechanism], decoded[quiet.mechanism]
        told.append(
            f"{own[0]:.2f} against {late[0]:.2f} by the decoder, {noisy.kl('B')[0]:.2f} against "
            f"{quiet.kl('B')[0]:.2f} by the better reader, named {noisy.attack[0]:.3f} against "
            f"{quiet.attack[0]:.3f}"
        )
        wins += [own[2] < late[1], noisy.kl("B")[0] < quiet.kl("B")[0],
                 noisy.attack[2] < quiet.attack[1]]  # fmt: skip
    return (
        "Training with the release noise costs less than noise at the release alone",
        f"KL (B), state: {told[0]}; behaviours: {told[1]}",
        HOLDS if all(wins) else PARTLY if any(wins) else FAILS,
    )


def _books(found: list[Released], nats: float) -> tuple[str, str, str]:
    book = min((held for held in certified_at(found, nats) if held.kind.startswith("codebook")),
               key=lambda held: held.kl("B")[0])  # fmt: skip
    best = min((held for held in certified_at(found, nats) if held.kind.startswith("quotient")),
               key=lambda held: held.kl("B")[0])  # fmt: skip
    return (
        "At equal certified nats a quotient keeps as much as a codebook",
        f"KL {best.kl('B')[0]:.2f} ({best.title}), {book.kl('B')[0]:.2f} ({book.title}); named "
        f"{best.attack[0]:.3f} and {book.attack[0]:.3f}",
        HOLDS if best.kl("B")[1] <= book.kl("B")[2] else FAILS,
    )


def _factor(found: list[Released], nats: float) -> tuple[str, str, str]:
    held = _one(found, 16, nats)
    small = next(one for one in found if one.kind == "quotient-leakage" and one.numbers[1] == nats)
    assert held.factor_nats is not None
    return (
        "Nats of information say how often a prompt is named (R.2, Fano)",
        f"16 numbers of {nats:g} nats have a factor of e^{held.factor_nats:.1f} and at most "
        f"{rounded_up(held.bound or 1.0, 2)} is proven; {small.numbers[0]:g} numbers with that "
        f"much factor, at most {rounded_up(small.bound or 1.0, 2)}",
        PARTLY,
    )


def _private_claims(private: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    if private is None:
        return []
    by_name = {row["epsilon"]: row for row in private["rows"]}
    before = by_name[None]
    clean = [row["retrieval"]["0.0"][0] for row in private["rows"]]
    # the noise at which the attack on the untouched model is nearest a half
    ratio = min(before["retrieval"], key=lambda name: abs(before["retrieval"][name][0] - 0.5))
    told = [
        f"{_interval(row['retrieval'][ratio])} ({_training(epsilon)})"
        for epsilon, row in by_name.items()
    ]
    control = by_name.get("inf", before)["retrieval"][ratio]
    trained = [row for epsilon, row in by_name.items() if epsilon not in (None, "inf")]
    if not trained:
        return []
    protected = [row for row in trained if row["retrieval"][ratio][2] < control[1]]
    return [
        (
            "DP-SGD does not bound what activations of new prompts give away (U.3: 1.000 clean)",
            f"clean, at least {min(clean):.3f} of the prompts named; at r = {float(ratio):g}: "
            + "; ".join(told),
            FAILS if len(protected) == len(trained) else PARTLY if protected else HOLDS,
        )
    ]


def _one(found: list[Released], size: int, nats: float) -> Released:
    """Return the quotient of the state of so many numbers, by information."""
    named = (held for held in found if held.kind == "quotient")
    return next(held for held in named if held.numbers[:2] == [size, nats])


def _training(epsilon: Any) -> str:
    if epsilon is None:
        return "none"
    return "without noise" if epsilon == "inf" else f"DP-SGD, ε = {float(epsilon):g}"


def _interval(held: list[float]) -> str:
    return f"{held[0]:.3f} [{held[1]:.3f}, {held[2]:.3f}]"


def _nats(value: float | None) -> str:
    return "–" if value is None else rounded_up(value, 2)
