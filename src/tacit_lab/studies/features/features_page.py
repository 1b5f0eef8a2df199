"""The section on features, from experiments/features."""

from __future__ import annotations

from typing import Any

from tacit_lab.studies.hidden.results import section
from tacit_lab.studies.reproductions.prose import filled, table

NAME = "features"
HOLDS, FAILS, PARTLY = "holds", "does not hold", "holds in part"
SHARE, CONSTANT = 0.95, 0.05
PLACES = {"mlp": "a transcoder of the MLP", "stream": "a sparse autoencoder of the state"}


def sections() -> list[str]:
    """Return the lines of the section, or that it was not run."""
    return section(NAME, "Scaffold and backbone features", lines)


def lines(result: dict[str, Any]) -> list[str]:
    """Return the story, the verdicts and the tables."""
    rows = result["rows"]
    verdicts = claims(rows[0], result)
    found = [filled(story(result)), "",
             *table(["claim", "found here", "verdict"],
                    [[claim, told, f"**{word}**"] for claim, told, word in verdicts])]  # fmt: skip
    for row in rows:
        found += _replaced(row)
    return [*found, *_flips(rows[0]), *_named(rows), filled(_end(rows)), ""]


def story(result: dict[str, Any]) -> str:
    """Return the scale and what is measured."""
    told = "; ".join(
        f"{PLACES[row['reads']]}, {row['features']:,} features, {row['trained']['active']:.0f} "
        f"active at a time, {row['trained']['explained']:.2f} of the variance explained"
        for row in result["rows"]
    )
    return f"""Layer {result["layer"]} of `{result["model"]}`: {told}. Trained on
{result["trained"]:,} prompts of {result["length"]} tokens. Every feature is scored on
{result["scored"]:,} others, at most {result["each"]} of those in which it is active, by taking it
out at the last position. All else is measured on a bank of {result["bank"]:,}. Backbone is a score
above τ =
{result["threshold"]:g} nats, declared before. The paper (App. M to P) has a cross-layer transcoder
of GPT-2 small, taken out at all layers that it writes to: this is one layer of a small model.
Verdicts are on the first."""


def claims(row: dict[str, Any], result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return claim, finding and verdict of the transcoder."""
    return [_zero(row), _share(row), _error(row), _flip_share(row), _margin(row, result),
            _fibre(row), _louder(row)]  # fmt: skip


def _zero(row: dict[str, Any]) -> tuple[str, str, str]:
    held = row["summary"]
    scored = held["backbone"] + held["scaffold"]
    return (
        "Scaffold features score exactly zero (App. O)",
        f"{held['exactly_zero']} of {scored:,} features, {held['zero_ablations']:,} of "
        f"{held['ablations']:,} ablations; {held['below_resolution']} below the resolution of "
        f"single precision (1.2e-7), the least {row['least']:.1e} nats, where two clean runs "
        f"differ by {held['floor']:.0e} at most; {held['silent']} never active, which a "
        "sample would call zero",
        FAILS if held["exactly_zero"] < held["scaffold"] / 2 else HOLDS,
    )


def _share(row: dict[str, Any]) -> tuple[str, str, str]:
    shares = {float(tau): share for tau, share in row["scaffold_at"]}
    told = ", ".join(f"{share:.3f} at {tau:g}" for tau, share in shares.items())
    held = row["summary"]
    spread = max(shares.values()) - min(shares.values())
    return (
        "95% of the features are scaffold (App. O)",
        f"{told} nats: the share is of the threshold; at the declared one {held['scaffold_told']} "
        f"scaffold and {held['backbone_told']} backbone hold beside all others at once",
        PARTLY if spread > CONSTANT else HOLDS,
    )


def _error(row: dict[str, Any]) -> tuple[str, str, str]:
    held = row["replaced"]
    five = ("full", "support", "amplitude", "backbone", "scaffold")
    best = min(five, key=lambda name: held[name]["error"])
    return (
        "Backbone alone has the lowest error of the five, with 13 times fewer features (App. P.4)",
        f"{held['backbone']['error']:.2f} with {held['backbone']['active']:.1f} features, "
        f"{held['scaffold']['error']:.2f} with {held['scaffold']['active']:.1f}, all "
        f"{held['full']['error']:.2f}, none {held['none']['error']:.2f}; as many at random "
        f"{held['random']['error']:.2f}, the largest {held['largest']['error']:.2f}",
        HOLDS if best == "backbone" else FAILS,
    )


def _flip_share(row: dict[str, Any]) -> tuple[str, str, str]:
    kinds = row["edits"]
    shares = [held["scaffold"] for held in kinds.values()]
    apart = [
        name for name, held in kinds.items() if abs(held["excess"]) > 3.0 * held["excess_error"]
    ]
    test = row["kruskal"]
    told = "" if test is None else f", Kruskal–Wallis p = {test[1]:.1g}"
    constant = max(shares) - min(shares) <= CONSTANT
    return (
        "The scaffold share of flips is constant across edits, so that scaffold carries the "
        "surface (App. N)",
        f"{min(shares):.3f} to {max(shares):.3f}{told}; but of active features "
        f"{min(held['base'] for held in kinds.values()):.3f} to "
        f"{max(held['base'] for held in kinds.values()):.3f} are scaffold, and the share of flips "
        f"is more than three errors from that for {len(apart)} of {len(kinds)} kinds"
        + (f" ({', '.join(apart)})" if apart else ""),
        (PARTLY if constant else FAILS) if len(apart) < len(kinds) else HOLDS,
    )


def _margin(row: dict[str, Any], result: dict[str, Any]) -> tuple[str, str, str]:
    told, wins = [], []
    for name, words in (("nearest", f"nearest of {result['bank']:,}"), ("step", "one step")):
        held = row["margins"][name]
        ratios = {one: held[one]["ratio"] for one in ("support", "state", "amplitude")}
        told.append(
            f"{words}: p90/p50 {ratios['support']:.2f}, state {ratios['state']:.2f}, amplitudes "
            f"{ratios['amplitude']:.2f}; above the state's in {held['raw']:.2f} of raw counts, "
            f"{held['ranked']:.2f} of ranks"
        )
        wins.append(ratios["support"] > max(ratios["state"], ratios["amplitude"]))
    return (
        "The margin of support codes has the heavier tail (App. M.1)",
        ". ".join(told),
        HOLDS if all(wins) else PARTLY if any(wins) else FAILS,
    )


def _fibre(row: dict[str, Any]) -> tuple[str, str, str]:
    close, random = row["fibres"]["close"], row["fibres"]["random"]
    claim = "Prompts of one prediction share backbone features more than scaffold (App. P.1)"
    if not close or not close["backbone"] or not close["scaffold"]:
        return claim, f"too few pairs within {row['fibres']['kl']} nats", "not told"
    gap = close["backbone"][0] - close["scaffold"][0]
    error = (close["backbone"][1] ** 2 + close["scaffold"][1] ** 2) ** 0.5
    return (
        claim,
        f"{close['backbone'][0]:.2f} ± {close['backbone'][1]:.2f} and {close['scaffold'][0]:.2f} ± "
        f"{close['scaffold'][1]:.2f} of {close['pairs']} pairs; at random "
        f"{random['backbone'][0]:.2f} and {random['scaffold'][0]:.2f}",
        HOLDS if gap > 2 * error else FAILS if gap < -2 * error else "not told",
    )


def _louder(row: dict[str, Any]) -> tuple[str, str, str]:
    held = row["summary"]
    scaffold, backbone = held["largest_scaffold"], held["largest_backbone"]
    if scaffold is None or backbone is None:
        return "Scaffold features fire more strongly (App. O)", "one class is empty", "not told"
    return (
        "Scaffold features fire more strongly (App. O)",
        f"median of the largest activation {scaffold:.2f}, backbone {backbone:.2f}",
        HOLDS if scaffold > backbone else FAILS,
    )


def _replaced(row: dict[str, Any]) -> list[str]:
    rows = [
        [held["words"], f"{held['active']:.1f}", f"{held['error']:.2f}",
         "" if held["unexplained"] is None else f"{held['unexplained']:.3f}",
         f"{held['kl']:.4f} ± {held['kl_error']:.4f}",
         f"{held['agreed'] / row['bank']:.3f}"]
        for held in row["replaced"].values()
    ]  # fmt: skip
    return [f"What stands for the output, {PLACES[row['reads']]}:", "",
            *table(["features", "active", "error", "unexplained", "KL, nats", "agreement"],
                   rows)]  # fmt: skip


def _flips(row: dict[str, Any]) -> list[str]:
    rows = [
        [name, str(held["pairs"]), f"{held['flips']:.1f}", f"{held['scaffold']:.3f}",
         f"{held['base']:.3f}", f"{held['excess']:+.3f} ± {held['excess_error']:.3f}"]
        for name, held in row["edits"].items()
    ]  # fmt: skip
    return ["Scaffold share of the features that an edit flips, and of all that are active:", "",
            *table(["edit", "pairs", "flips", "of flips", "of active", "apart"],
                   rows)]  # fmt: skip


def _named(rows: list[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        for name, held in row["named"].items():
            found.append([PLACES[row["reads"]], f"{name} code", _interval(held["top1"]),
                          f"{held['distinct']:,}"])  # fmt: skip
        for name, words in (("told", "knows the map"), ("blind", "holds clean states")):
            found.append([PLACES[row["reads"]], f"state without scaffold, {words}",
                          _interval(row["state"][name]), ""])  # fmt: skip
    return [f"Prompts of the bank of {rows[0]['bank']:,} named, without noise (95% intervals):", "",
            *table(["of", "from", "named", "distinct codes"], found)]  # fmt: skip


def _end(rows: list[dict[str, Any]]) -> str:
    row = rows[0]
    held = row["replaced"]["without scaffold"]
    return f"""Removing the scaffold features of this layer moves the prediction by
{held["kl"]:.3f} nats and leaves {row["state"]["told"][0]:.3f} of the prompts named. A linear
removal without noise certifies nothing."""


def _interval(held: list[float]) -> str:
    return f"{held[0]:.3f} [{held[1]:.3f}, {held[2]:.3f}]"
