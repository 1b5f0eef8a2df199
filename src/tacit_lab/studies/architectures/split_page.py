"""The section on split memory: what was trained, what was found, and a verdict on each claim."""

from __future__ import annotations

from statistics import median
from typing import Any

from tacit_lab.studies.architectures.words import mean_range, verdict_table
from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME, LARGER = "split-memory", "split-memory-two-cores"
NAMES = {
    "split-memory": "split memory, λ = 0",
    "split-memory-jacobian": "split memory, λ = 10⁻³",
    "split-memory-depletion": "split memory, margin depletion",
    "gpt": "GPT of as many parameters",
    "trunk-only-gpt": "GPT as wide as the trunk",
    "gpt-depletion": "GPT, margin depletion",
}
# agreement and attack within which a release is in the middle, at K nats of noise
HALF = 0.5


def sections() -> list[str]:
    """Return the lines of both sections."""
    return [
        *section(NAME, "Hidden states: split memory", lines),
        *section(LARGER, "Hidden states: split memory of ten million parameters", lines),
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """Return opening, tables and verdicts of a result."""
    groups = grouped(result["rows"])
    return [
        filled(opening(result)), "",
        *geometry_table(groups),
        filled("G_Mah with unit differences and raw ones, k the trunk's width (half of it for the "
               "narrow GPT); C_u = tr F_uu/tr F; M* the least tr(S Σ⁻¹) at one nat. Means over "
               "seeds, lowest and highest in brackets."), "",
        *middle_table(groups), "",
        *verdict_table(verdicts(groups)), "",
    ]  # fmt: skip


def grouped(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every kind of model, by seed."""
    return {name: found for name in NAMES if (found := [r for r in rows if r["name"] == name])}


def opening(result: dict[str, Any]) -> str:
    """Return what was trained on what."""
    scale = result["scale"]
    tokens = result["rows"][0]["tokens"]
    return f"""The states (u, v) have a trunk u of {scale["trunk"]} numbers, from which alone
the logits are read, and a memory v of {scale["split_width"] - scale["trunk"]} numbers. They have
{scale["layers"]} layers, a vocabulary of {scale["vocabulary"]:,}, {scale["steps"]} steps on
{tokens:,} tokens ({result["text"]}), far from the paper's 90 million parameters and 164 million
tokens: `make experiments NAME={NAME}` with `--scale gpu` has its sizes. Beside it two
controls: a GPT of about as many parameters, and a GPT whose whole state is as wide as the
trunk. Loss and NLL are nats a token; prompts of the bank come from the text that was learned,
and the loss is measured on text that no model saw. Everything stands at the middle probe layer."""


def _middle(row: dict[str, Any]) -> dict[str, Any]:
    held: dict[str, Any] = row["layers"][len(row["layers"]) // 2]
    return held


def geometry_table(groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return loss, geometry and ablation of every kind."""
    heads = ("model", "seeds", "parameters", "loss", "M*", "G_Mah unit / raw", "E_k", "C_u",
             "v → mean, nats")  # fmt: skip
    body = []
    for name, rows in groups.items():
        at = [_middle(row) for row in rows]
        split = "trunk_share" in at[0]
        gain = [mean_range([r[key] for r in at], 1) for key in ("gain_unit", "gain_raw")]
        costs = [r["ablated_loss"] - row["loss"] for r, row in zip(at, rows, strict=True) if split]
        body.append((
            NAMES[name], str(len(rows)), f"{rows[0]['parameters']:,}",
            mean_range([row["loss"] for row in rows], 3),
            mean_range([r["least_signal"] for r in at], 1), " / ".join(gain),
            mean_range([r["energy"] for r in at], 2),
            mean_range([r["trunk_share"] for r in at], 4) if split else "–",
            mean_range(costs, 4) if split else "–",
        ))  # fmt: skip
    return table(heads, body)


def middle_table(groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return agreement, NLL and attack at one nat, read by Bayes."""
    heads = ("model", "noise", "K", "agreement", "NLL (clean)", "attack")
    body = []
    for name, rows in groups.items():
        for design in ("isotropic", "mahalanobis-optimal"):
            for budget in sorted({e["budget"] for e in _middle(rows[0])["middle"]}):
                found = entries(rows, design=design, budget=budget)
                body.append((
                    NAMES[name], design, f"{budget:g}",
                    mean_range([e["agreement"] for e in found], 2),
                    f"{mean_range([e['nll'] for e in found], 2)} "
                    f"({mean_range([e['nll_clean'] for e in found], 2)})",
                    mean_range([e["attack"] for e in found], 2),
                ))  # fmt: skip
    return [
        "How much prediction is left after noise of K = ½ tr(FΣ) nats, when the noisy state is "
        "decoded by Bayes' rule over public states, "
        "against the Bayes attacker:",
        "",
        *table(heads, body),
    ]


def entries(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Return what was measured of noise, read by Bayes."""
    return [
        entry
        for row in rows
        for entry in _middle(row)["middle"]
        if entry["reading"] == "posterior-mean"
        and all(entry[key] == value for key, value in wanted.items())
    ]


def verdicts(groups: dict[str, list[dict[str, Any]]]) -> list[tuple[str, str, str, str]]:
    """Return (claim, printed, found, verdict) for what the rows can say."""
    makers = (concentration, gain, units, worth, penalty, loss_price, seeds, depletion, inside)
    return [found for make in makers if (found := make(groups)) is not None]


def concentration(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Sec. 8: E_k ≥ .99 in the trunk."""
    rows = groups.get("split-memory", [])
    if not rows:
        return None
    low = min(_middle(row)["trunk_share"] for row in rows)
    return (
        "The trunk holds the Fisher information (Sec. 8; C_u left open in Z.3)",
        "E_k ≥ .99 at k = r",
        f"C_u ≥ {low:.4f}",
        "holds" if low >= 0.99 else "does not hold",
    )


def gain(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Sec. 8, Table 2: G_Mah ten times that of a GPT."""
    if not {"split-memory", "gpt"} <= set(groups):
        return None
    ours = [_middle(row)["gain_unit"] for row in groups["split-memory"]]
    theirs = [_middle(row)["gain_unit"] for row in groups["gpt"]]
    times = median(ours) / median(theirs)
    return (
        "G_Mah is an order of magnitude above a GPT's (Sec. 8, Z.1)",
        "6 to 24 times",
        f"{median(ours):.1f} against {median(theirs):.2f}, {times:.1f} times",
        "holds" if times >= 6.0 else "in direction alone" if times > 1.5 else "does not hold",
    )


def units(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Whether G_Mah is of the model or of its coordinates."""
    rows = groups.get("split-memory", [])
    if not rows:
        return None
    held = _middle(rows[0])["rescaled"]
    gains = [entry["gain_raw"] for entry in held]
    signals = [entry["least_signal"] for entry in held]
    moved = max(signals) / min(signals)
    return (
        "G_Mah measures the architecture (Sec. 8)",
        "a defence gain",
        "v × "
        + ", ".join(f"{entry['factor']:g}" for entry in held)
        + " (the model's function stays the same): G_Mah "
        + ", ".join(f"{g:.3g}" for g in gains)
        + f"; M* × {moved:.3f}",
        "does not hold" if max(gains) > 3 * min(gains) else "holds",
    )


def worth(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Whether the memory does something that a trunk alone does not."""
    if not {"split-memory", "trunk-only-gpt"} <= set(groups):
        return None
    rows, alone = groups["split-memory"], groups["trunk-only-gpt"]
    split_loss, alone_loss = (sum(r["loss"] for r in g) / len(g) for g in (rows, alone))
    costs = [_middle(row)["ablated_loss"] - row["loss"] for row in rows]
    signals = [sum(_middle(r)["least_signal"] for r in g) / len(g) for g in (rows, alone)]
    return (
        "A wide memory beside the trunk is what realises the regime (Sec. 8, 9)",
        "not compared with a trunk alone",
        f"loss {split_loss:.3f} against {alone_loss:.3f} of the narrow GPT, M* {signals[0]:.1f} "
        f"against {signals[1]:.1f}; replacing the memory by its mean costs at most "
        f"{max(costs):.3f} nats",
        "the memory is nearly dead" if max(costs) < 0.1 else "the memory is used",
    )


def penalty(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """App. Y.1: the Jacobian penalty matters only marginally."""
    if not {"split-memory", "split-memory-jacobian"} <= set(groups):
        return None
    seen = {row["seed"] for row in groups["split-memory-jacobian"]}
    pairs = [[r for r in groups[name] if r["seed"] in seen]
             for name in ("split-memory", "split-memory-jacobian")]  # fmt: skip
    without, with_it = (sum(_middle(r)["least_signal"] for r in p) / len(p) for p in pairs)
    near = abs(with_it / without - 1.0) < 0.1
    return (
        "The Jacobian penalty matters only marginally (Y.1)",
        "G_Mah is 11.9 without the penalty and about as much with it",
        f"M* {with_it:.1f} with λ = 10⁻³, {without:.1f} without, at the same seeds",
        "holds" if near else "does not hold",
    )


def loss_price(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Table 2, Z.6 against Y.2."""
    if not {"split-memory", "gpt"} <= set(groups):
        return None
    ours, theirs = (sum(r["loss"] for r in groups[n]) / len(groups[n])
                    for n in ("split-memory", "gpt"))  # fmt: skip
    return (
        "What it costs in loss at equal parameters",
        "+1.57 to +1.85 (Table 2); ~5.6 against 5.8–6.0 (Y.2): they disagree",
        f"{ours - theirs:+.2f} nats",
        "costs" if ours > theirs else "costs nothing here",
    )


def seeds(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Z.7: the gain varies with the seed."""
    rows = groups.get("split-memory", [])
    if len(rows) < 3:
        return None
    gains = [_middle(row)["gain_unit"] for row in rows]
    signals = [_middle(row)["least_signal"] for row in rows]
    spread, steady = max(gains) / min(gains), max(signals) / min(signals)
    return (
        "G_Mah varies much from seed to seed (Z.7)",
        "9.94, 16.5, 32.4",
        ", ".join(f"{g:.1f}" for g in gains) + "; M* " + ", ".join(f"{s:.1f}" for s in signals),
        f"a factor {spread:.2f} here, {steady:.2f} of M*",
    )


def depletion(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Z.7: a regulariser that lowers q_B would address the right variable."""
    if not {"split-memory", "split-memory-depletion"} <= set(groups):
        return None
    before, after = (_middle(groups[n][0]) for n in ("split-memory", "split-memory-depletion"))
    mass = f"q_B {before['margin_mass']:.3f} to {after['margin_mass']:.3f}"
    gains = f"G_Mah {before['gain_unit']:.1f} to {after['gain_unit']:.1f}"
    signal = f"M* {before['least_signal']:.1f} to {after['least_signal']:.1f}"
    price = groups["split-memory-depletion"][0]["loss"] - groups["split-memory"][0]["loss"]
    fell = after["least_signal"] < 0.9 * before["least_signal"]
    return (
        "A regulariser of q_B would address the right variable (Z.7, not run there)",
        "open",
        f"{mass}, {gains}, {signal}, loss {price:+.3f} (one seed)",
        "M* falls too" if fell else "it moves G_Mah and not M*",
    )


def inside(groups: dict[str, Any]) -> tuple[str, str, str, str] | None:
    """Sec. 8: the architecture enters the middle; by NLL beside agreement."""
    if not {"split-memory", "gpt"} <= set(groups):
        return None
    told = []
    best = {}
    for name in ("split-memory", "gpt", "trunk-only-gpt"):
        found = [e for e in entries(groups.get(name, [])) if e["attack"] <= HALF]
        if not found:
            continue
        agreeing, predicting = max(e["agreement"] for e in found), min(e["nll"] for e in found)
        best[name] = predicting
        told.append(f"{NAMES[name]}: agreement up to {agreeing:.2f}, NLL down to {predicting:.2f}")
    if len(best) < 2:
        return None
    least = min(best, key=lambda name: best[name])
    # few budgets, no interval, and no point of each model at the same attack
    near = [NAMES[name] for name in best if best[name] < best[least] + 0.1]
    return (
        "It enters the middle (agreement ≥ .5 at an attack ≤ .5) where GPTs do not (Sec. 8)",
        "G_Mah > 10 suggests it",
        "at an attack ≤ .5, " + "; ".join(told),
        f"least NLL on this grid of few budgets: {' and '.join(near)}, too near to tell apart"
        if len(near) > 1
        else f"least NLL on this grid of few budgets: {near[0]}",
    )
