"""What the hidden-state paper says about Gaussian releases, held against what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit_lab.studies.hidden import published
from tacit_lab.studies.hidden.equal import gain
from tacit_lab.studies.hidden.rows import NoiseRow
from tacit_lab.studies.hidden.study import HiddenStudy

HOLDS, FAILS, RAW_ONLY, PARTLY = (
    "holds", "does not hold", "holds only for raw states", "holds in part"
)  # fmt: skip
NEAR = 0.05
FACTOR = 1.25
FLAT = 0.05
HALF = 0.5


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, the numbers printed for it, the numbers found, and what they make of it."""

    claim: str
    printed: str
    found: str
    word: str


def verdicts(result: dict[str, Any]) -> list[ClaimVerdict]:
    """Return the verdicts that the result has rows for."""
    study = HiddenStudy(result)
    makers = (
        empty_middle, diagonal_wins, exponent_of_the_signal, exponent_of_the_attack,
        mahalanobis_tracks, gain_predicts, weak_attacker, ordinary_gains, flat_cost,
        matched_epsilon, open_problem,
    )  # fmt: skip
    return [found for found in (make(study) for make in makers) if found is not None]


def empty_middle(study: HiddenStudy) -> ClaimVerdict:
    """Sec. 6, T.5."""
    raw, read = _inside(study.raw), _inside(study.denoised)
    word = FAILS if raw else RAW_ONLY if read else HOLDS
    theirs = published.rows()
    return ClaimVerdict(
        "No Gaussian release agrees ≥ 0.5 at an attack ≤ 0.5 (Sec. 6, T.5)",
        f"0 of 1,536; counted again in its rows: {len(published.inside())} of {len(theirs):,}",
        f"{raw} of {len(study.raw)} read raw; {read} of {len(study.denoised)} denoised",
        word,
    )


def diagonal_wins(study: HiddenStudy) -> ClaimVerdict | None:
    """Sec. 6, Table 27: compared at equal σ there, at equal measured KL here."""
    pairs = study.pairs("inverse-fisher-diagonal")
    if not pairs:
        return None
    better = sum(own.below(other) for _, _, own, other in pairs)
    worse = sum(other.below(own) for _, _, own, other in pairs)
    rows = published.rows("fisher_diag_inv", 5.0)
    theirs = published.at_equal_kl("fisher_diag_inv")
    layers = len({entry[:2] for entry in theirs})
    least = sum(entry[3] < entry[4] for entry in theirs)
    return ClaimVerdict(
        "The diagonal inverse Fisher release is the strongest Gaussian defence (Sec. 6, T.5)",
        f"attack ≤ {max(row.attack for row in rows):.4f} at all {len(rows)} points with σ = 5, "
        f"which costs {min(r.kl for r in rows):.1f} to {max(r.kl for r in rows):.1f} nats there "
        f"and leaves an agreement of {max(r.agreement for r in rows):.2f}. Its rows meet isotropic "
        f"noise at equal KL on {layers} of {len(published.FIGURES['sweep'])} points only: lower "
        f"in {least} of {len(theirs)} rows",
        f"at equal measured KL its attack is lower than isotropic noise's in {better}, higher in "
        f"{worse} of {len(pairs)} cases (intervals apart); median difference "
        f"{statistics.median(own.attack - other.attack for _, _, own, other in pairs):+.3f}",
        HOLDS if better == len(pairs) else PARTLY if better > worse else FAILS,
    )


def exponent_of_the_signal(study: HiddenStudy) -> ClaimVerdict | None:
    """Thm 15, Q.11.1: the worst pair at equal K."""
    best = [study.best_signal(facts["layer"]) for facts in study.layers]
    known = [alpha for alpha in best if alpha is not None]
    if not known:
        return None
    theirs = published.best_exponents("signal")
    high = sum(alpha >= HALF for alpha in known)
    return ClaimVerdict(
        "Of diag(F)^−α a high α ≥ ½ makes the worst realistic pair least distinguishable (Q.11.1)",
        f"{sum(a >= HALF for a in theirs)} of {len(theirs)} points, α = 1 itself at "
        f"{theirs.count(1.0)}",
        f"{high} of {len(known)} layers over nearest pairs of the bank, α = 1 itself at "
        f"{known.count(1.0)}; best α: {_list(known)}",
        HOLDS if high == len(known) else PARTLY if high > len(known) / 2 else FAILS,
    )


def exponent_of_the_attack(study: HiddenStudy) -> ClaimVerdict | None:
    """Q.11.1: the attack that is measured, at equal measured KL."""
    cases = [(facts["layer"], kl) for facts in study.layers for kl in study.result["targets"]]
    found = [best for best in (study.best_attack(*case) for case in cases) if best is not None]
    saved = [
        attacks[0.0].attack - min(equal.attack for equal in attacks.values())
        for attacks in (study.attacks(*case) for case in cases)
        if 0.0 in attacks
    ]
    if not found or not saved:
        return None
    theirs = published.best_exponents("attack")
    own = [e["attack"][0] - min(e["attack"]) for e in published.FIGURES["power"]]
    return ClaimVerdict(
        "α = 1 is the exponent to choose against retrieval (Q.11.1)",
        f"least attack at α = 1 on {theirs.count(1.0)} of {len(theirs)} points, at α = 0 on "
        f"{theirs.count(0.0)}; the best α saves {statistics.median(own):.4f} over α = 0 in the "
        "median, averaged over K",
        f"at equal measured KL: least attack at α = 1 in {found.count(1.0)} of {len(found)} cases, "
        f"at α = 0 in {found.count(0.0)}; the best α saves {statistics.median(saved):.3f} over α = "
        f"0 in the median, {max(saved):.3f} at most",
        HOLDS if found.count(1.0) > len(found) / 2 else FAILS,
    )


def mahalanobis_tracks(study: HiddenStudy) -> ClaimVerdict | None:
    """T.1, Table 25."""
    pairs = study.pairs("mahalanobis-optimal")
    if not pairs:
        return None
    differences = [own.attack - other.attack for _, _, own, other in pairs]
    better = sum(own.below(other) for _, _, own, other in pairs)
    worse = sum(other.below(own) for _, _, own, other in pairs)
    kept = statistics.median(own.agreement - other.agreement for _, _, own, other in pairs)
    return ClaimVerdict(
        "The Mahalanobis-optimal release is attacked as isotropic noise is, within a few per cent "
        "(T.1, Table 25)",
        "compared at equal σ",
        f"at equal measured KL from {min(differences):+.3f} to {max(differences):+.3f}; lower in "
        f"{better}, higher in {worse} of {len(pairs)} cases (intervals apart); agreement differs "
        f"by {kept:+.3f} in the median",
        HOLDS if max(map(abs, differences)) <= NEAR else FAILS,
    )


def gain_predicts(study: HiddenStudy) -> ClaimVerdict | None:
    """S.4: isotropic noise needs G_Mah times the budget for the same attack."""
    pairs = gains(study)
    known = [(predicted, found) for _, predicted, found, _ in pairs if found is not None]
    if not known:
        return None
    ratios = [found / predicted for predicted, found in known]
    good = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    low, high = published.gains("mahalanobis_gain")
    return ClaimVerdict(
        "G_Mah predicts the gain against an attacker who knows Σ (Eq. 22, T.1)",
        f'G_Mah = {low:.2f} … {high:.2f}: "the correct predictor", and "not realized"',
        f"budget K of isotropic noise over the Mahalanobis-optimal release's where the attack "
        f"falls to ½: {min(f for _, f in known):.2f} … {max(f for _, f in known):.2f}, predicted "
        f"{min(p for p, _ in known):.2f} … {max(p for p, _ in known):.2f}; within {FACTOR:g} times "
        f"on {good} of {len(known)} layers. The same ratio in measured KL: "
        f"{_spread(kl for *_, kl in pairs if kl is not None)}",
        HOLDS if good == len(known) else PARTLY if good else FAILS,
    )


def gains(study: HiddenStudy) -> list[tuple[int, float, float | None, float | None]]:
    """Return (layer, G_Mah, ratio of K, ratio of measured KL) where the attack falls to ½."""
    found = []
    for facts in study.layers:
        layer = facts["layer"]
        base, own = (study.curve(layer, name) for name in ("isotropic", "mahalanobis-optimal"))
        ratio = gain(base, own, HALF)
        nats = gain(base, own, HALF, along="kl")
        found.append((layer, facts["predicted_gain"]["mahalanobis-optimal"], ratio, nats))
    return found


def weak_attacker(study: HiddenStudy) -> ClaimVerdict | None:
    """Sec. 5, Prop. 9: noise in k directions is projected out."""
    rows = [row for row in study.raw if row.mechanism.startswith("generalized-eigen")]
    told = [row.mahalanobis for row in rows if row.mahalanobis is not None]
    blind = [row.euclidean for row in rows if row.euclidean is not None]
    if not told or not blind:
        return None
    theirs = published.rows("gen_eigen")
    gain_range = published.gains("euclidean_gain")
    own = [facts["euclidean_gain"] for facts in study.layers]
    return ClaimVerdict(
        "The generalised-eigen release fools the Euclidean attacker only (Sec. 4–6, Prop. 9)",
        f"attack {min(row.attack for row in theirs):.4f} at least at all {len(theirs)} rows; G_Euc "
        f"= {gain_range[0]:.0f} … {gain_range[1]:,.0f}",
        f"attack with Σ known {min(told):.3f} at least at all {len(told)} rows, without it down to "
        f"{min(blind):.3f}; G_Euc = {min(own):.1f} … {max(own):.1f}",
        HOLDS if min(told) >= 1.0 - NEAR else FAILS,
    )


def ordinary_gains(study: HiddenStudy) -> ClaimVerdict:
    """Sec. 8, Z: ordinary training does not enter G_Mah > 10."""
    own = [facts["mahalanobis_gain"] for facts in study.layers]
    low, high = published.gains("mahalanobis_gain")
    return ClaimVerdict(
        "G_Mah of ordinary models stays below 10 (Sec. 5, 8)",
        f"1.7 … 9.3; in its rows {low:.2f} … {high:.2f}",
        f"{min(own):.2f} … {max(own):.2f}",
        HOLDS if max(own) < 10.0 else FAILS,
    )


def flat_cost(study: HiddenStudy) -> ClaimVerdict | None:
    """T.4: the KL of diag(F)⁻¹ does not depend on the layer, at one K."""
    by_budget: dict[float, list[float]] = {}
    for row in study.raw:
        if row.mechanism == "inverse-fisher-diagonal":
            by_budget.setdefault(row.level, []).append(row.kl)
    full = {k: v for k, v in by_budget.items() if len(v) == len(study.layers) > 1}
    if not full:
        return None
    spreads = {k: (max(v) - min(v)) / statistics.mean(v) for k, v in full.items()}
    return ClaimVerdict(
        "The diagonal inverse Fisher release costs the same KL on every layer at one K (T.4)",
        "within 2.33% on concentrated models; not on GPT-2",
        "range over layers, relative to the mean: "
        + ", ".join(f"{spread:.0%} at K = {k:g}" for k, spread in sorted(spreads.items())),
        HOLDS if max(spreads.values()) <= FLAT else FAILS,
    )


def matched_epsilon(study: HiddenStudy) -> ClaimVerdict | None:
    """U.2, Table 29: at the loosest ε the diagonal release is attacked least."""
    rows = [row for row in study.rows if row.kind == "epsilon"]
    if not rows:
        return None
    epsilon = max(study.result["epsilons"])
    level = max(row.level for row in rows)
    least: dict[str, int] = {}
    cheapest: dict[str, int] = {}
    for facts in study.layers:
        own = [row for row in rows if row.layer == facts["layer"] and row.level == level]
        for row in own:
            least[row.mechanism] = least.get(row.mechanism, 0) + (
                row.attack == min(other.attack for other in own)
            )
        first = min(own, key=lambda row: row.kl)
        cheapest[first.mechanism] = cheapest.get(first.mechanism, 0) + 1
    count, name = len(study.layers), "inverse-fisher-diagonal"
    costs = [row.kl for row in rows if row.level == level]
    theirs = published.winners(epsilon) if epsilon in (1.0, 3.0, 8.0, 16.0) else {}
    return ClaimVerdict(
        f"At equal ε = {epsilon:g}, δ = 1e-6, the diagonal release is attacked least (U.2)",
        f"on {theirs.get('fisher_diag_inv', 0)} of 5 models, at 7.5 nats and more",
        f"least attack (ties shared) on {_counts(least, count)}; least KL on "
        f"{_counts(cheapest, count)}; KL {min(costs):.2f} … {max(costs):.2f}, attack at most "
        f"{max(row.attack for row in rows if row.level == level):.3f}",
        HOLDS if least.get(name, 0) == count else PARTLY if least.get(name, 0) else FAILS,
    )


def open_problem(study: HiddenStudy) -> ClaimVerdict | None:
    """App. X: learned bottlenecks do not fill the middle."""
    if not study.books:
        return None
    inside = [row for row in study.books if row.inside()]
    cells = published.FIGURES["bottlenecks"]
    theirs = sum(agreement >= HALF and attack <= HALF for agreement, attack in cells)
    best = max(inside, key=lambda row: row.agreement, default=None)
    said = "" if best is None else (
        f"; best {best.mechanism} on layer {best.layer}: agreement {best.agreement:.3f} under a "
        f"bound of {best.bound:.3f}"
    )  # fmt: skip
    return ClaimVerdict(
        "A release that fills the middle is an open problem (App. X.4)",
        f"{theirs} of {len(cells)} learned bottlenecks do, agreement up to "
        f"{max(agreement for agreement, _ in cells):.3f}",
        f"{len(inside)} of {len(study.books)} codebooks do, by proof and not by attack{said}",
        FAILS if inside else HOLDS,
    )


def _inside(rows: Iterable[NoiseRow], agreement: float = HALF) -> int:
    return sum(row.inside(agreement) for row in rows)


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _spread(values: Iterable[float]) -> str:
    found = list(values)
    return f"{min(found):.2f} … {max(found):.2f}" if found else "not reached"


def _counts(counts: dict[str, int], total: int) -> str:
    kept = [(name, n) for name, n in sorted(counts.items(), key=lambda e: -e[1]) if n]
    return ", ".join(f"{n} of {total} layers ({name})" for name, n in kept)
