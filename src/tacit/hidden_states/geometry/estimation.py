"""The geometry of a layer: where a change of the state costs, and where prompts differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, integer
from tacit._ground.frozen import array_value, frozen
from tacit.hidden_states.geometry.fisher import FisherInformation, fisher_information
from tacit.hidden_states.geometry.least_signal import least_signal
from tacit.hidden_states.geometry.methods import GEOMETRY, GeometryFit
from tacit.hidden_states.geometry.spread import spread_of_differences, spread_of_directions
from tacit.linalg import bures_fidelity, default_tolerance, eigh_psd, generalized_eigh
from tacit.models.continuation import Continuation
from tacit.models.language import LanguageModel

STABLE_SHARE = 0.8
ENERGY = 0.95


@array_value()
class Geometry:
    """Fisher information F and spread S of the last state at a layer, and what they say.

    With P the projector on the k leading eigenvectors of F, and ``F_λ, S_λ`` with the ridge:

    Attributes:
        layer: 1 … L, 0 for the embeddings.
        prefixes: n, prompts measured.
        label_source: where the labels of F came from.
        fisher: F, (d, d), or (d,) when only the diagonal was measured.
        fisher_rank: numerical rank of F.
        spectrum: eigenvalues of F, largest first, (d,).
        vectors: eigenvectors as columns, (d, d).
        spread: S, second moment of prompt differences, (d, d).
        difference_scale: ``"unit"`` or ``"raw"``, the differences of S.
        directions: second moment of unit differences S_δ, (d, d).
        rank: k.
        energy: E_k, share of tr F in its k leading directions.
        coupling: κ = tr(P S_δ)/((k/d) tr S_δ), 1 for a random P.
        effective_rank: r95, the least k with E_k >= 0.95.
        isotropy_error: ε_iso = ‖d S_δ − I‖.
        projected_trace: tr(P S_δ), k/d for a random P.
        projected_deviation: standard deviation of tr(P S_δ) over random P.
        split_half_energy: E_k within a half of the prompts, mean of both.
        crossed_energy: the share of the other half's tr F that a half's P holds, mean of both.
        euclidean_gain: G_Euc,k, noise against a Euclidean attacker per nat, isotropic noise = 1.
        euclidean_gain_top: the same with one direction.
        mahalanobis_gain: G_Mah = 1/fidelity², the least tr(S Σ⁻¹) relative to isotropic noise's.
        fidelity: ``tr (ρ_F^½ ρ_S ρ_F^½)^½`` of F_λ and S_λ at trace 1.
        projector_bound: what G_Mah is at least, by E_k and tr(P S) alone.
        least_signal: M* = ``(tr (F^½ S F^½)^½)²/2``, the least tr(S Σ⁻¹) at one nat, of F without
            the ridge and of raw differences, whatever ``difference_scale`` is: with the whole F it
            is the same in all coordinates, as G_Mah is not.
        least_signal_ridged: M* where no direction is free to noise; at least ``least_signal``.
        ridge: λ, relative to the mean eigenvalue, on both F and S.
        notes: where n is too small for what is asked.

    Source: hidden-state, Sec. 3, App. A.5, G, H, Prop. 7, 8, 24, Thm 16, 17, Eq. 3, 21, 22.
    """

    layer: int
    prefixes: int
    label_source: str
    fisher: Array
    fisher_rank: int
    spectrum: Array
    vectors: Array
    spread: Array
    difference_scale: str
    directions: Array
    rank: int
    energy: float
    coupling: float
    effective_rank: int
    isotropy_error: float
    projected_trace: float
    projected_deviation: float
    split_half_energy: float
    crossed_energy: float
    euclidean_gain: float
    euclidean_gain_top: float
    mahalanobis_gain: float
    fidelity: float
    projector_bound: float
    least_signal: float
    least_signal_ridged: float
    ridge: float
    notes: tuple[str, ...]

    @property
    def width(self) -> int:
        """Numbers in a state, d."""
        return len(self.spectrum)

    @property
    def dense_fisher(self) -> Array:
        """F as a (d, d) array."""
        return self.fisher if self.fisher.ndim == 2 else np.diag(self.fisher)

    @property
    def ridged_fisher(self) -> Array:
        """F_λ = F + λ (tr F/d) I, (d, d)."""
        return _ridged(self.dense_fisher, self.ridge)

    @property
    def energy_curve(self) -> Array:
        """E_1 … E_d, (d,)."""
        return _energies(self.spectrum)

    def basis(self, rank: int | None = None) -> Array:
        """Return the leading eigenvectors of F as columns, (d, k)."""
        kept = self.rank if rank is None else integer("rank", rank, minimum=1, maximum=self.width)
        return self.vectors[:, :kept]


def measure_geometry(
    model: LanguageModel,
    layer: int,
    prefixes: ArrayLike,
    how: GeometryFit = GEOMETRY,
    *,
    run: Continuation | None = None,
    rng: RandomSource = None,
) -> Geometry:
    """Measure where a layer's last state carries the prediction and where prompts differ.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        prefixes: tokens, (n, T), n >= 2.
        how: where the labels of F come from, of which differences S is, and k.
        run: these prompts run before, as for ``fisher_information``.
        rng: source of labels and pairs.

    Returns:
        The geometry; ``notes`` says what n prompts are too few for.

    Raises:
        ValueError: an argument outside the model, an unknown choice, a Fisher information of
            zero, or states that never differ.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> from tacit.hidden_states import GeometryFit
        >>> prompts = torch.arange(48).reshape(8, 6)
        >>> found = measure_geometry(model, 1, prompts, GeometryFit(rank=4), rng=0)
        >>> found.fisher.shape, found.mahalanobis_gain >= found.projector_bound
        ((16, 16), True)

    Source: hidden-state, Sec. 3.
    """
    kept = _rank(how.rank, model.width)
    source = generator(rng)
    measured = fisher_information(model, layer, prefixes, how, run=run, rng=source)
    if not np.trace(measured.dense) > 0.0:
        raise ValueError("model: expected a prediction that depends on the state, got F = 0")
    directions, equal = spread_of_directions(measured.states, how.pairs, rng=source)
    unit = how.difference_scale == "unit"
    spread = directions if unit else spread_of_differences(measured.states)
    return _summary(
        measured,
        layer,
        spread,
        how.difference_scale,
        directions,
        kept,
        how.ridge,
        equal_pairs=equal,
    )


def _rank(rank: int | None, width: int) -> int:
    if width < 2:
        raise ValueError(f"model: expected states of at least 2 numbers, got {width}")
    if rank is None:
        return min(128, width // 2)
    return integer("rank", rank, minimum=1, maximum=width - 1)


def _summary(
    measured: FisherInformation,
    layer: int,
    spread: Array,
    difference_scale: str,
    directions: Array,
    rank: int,
    ridge: float,
    equal_pairs: int,
) -> Geometry:
    ascending, vectors = eigh_psd("fisher", measured.dense)
    spectrum, vectors = ascending[::-1].copy(), vectors[:, ::-1].copy()
    width = spectrum.size
    fisher_rank = int((spectrum > default_tolerance(width) * spectrum[0]).sum())
    energies = _energies(spectrum)
    basis = vectors[:, :rank]
    anisotropy = directions - np.eye(width) / width
    projected = _share(basis, directions)
    own, crossed = _split_half(measured.halves, rank)
    ridged, ridged_spread = _ridged(measured.dense, ridge), _ridged(spread, ridge)
    gains, _ = generalized_eigh(ridged_spread, ridged)
    level = np.trace(ridged_spread) / np.trace(ridged)
    fidelity = bures_fidelity(ridged / np.trace(ridged), ridged_spread / np.trace(ridged_spread))
    effective = int(np.searchsorted(energies, ENERGY)) + 1
    raw = spread if difference_scale == "raw" else spread_of_differences(measured.states)
    signal = least_signal(measured.dense, raw, ridge=ridge)
    return Geometry(
        layer=layer,
        prefixes=len(measured.states),
        label_source=measured.label_source,
        fisher=measured.matrix,
        fisher_rank=fisher_rank,
        spectrum=frozen(spectrum),
        vectors=frozen(vectors),
        spread=frozen(spread),
        difference_scale=difference_scale,
        directions=frozen(directions),
        rank=rank,
        energy=float(energies[rank - 1]),
        coupling=projected * width / rank,
        effective_rank=min(effective, width),
        isotropy_error=float(np.abs(np.linalg.eigvalsh(width * anisotropy)).max()),
        projected_trace=projected,
        projected_deviation=_haar_deviation(anisotropy, rank),
        split_half_energy=own,
        crossed_energy=crossed,
        euclidean_gain=float(gains[:rank].mean() / level),
        euclidean_gain_top=float(gains[0] / level),
        mahalanobis_gain=fidelity**-2,
        fidelity=fidelity,
        projector_bound=_projector_bound(_share(basis, ridged), _share(basis, ridged_spread)),
        least_signal=signal.value,
        least_signal_ridged=signal.ridged,
        ridge=ridge,
        notes=_notes(measured, fisher_rank, rank, own, crossed, equal_pairs),
    )


def _energies(spectrum: Array) -> Array:
    sums = np.cumsum(spectrum)
    energies: Array = sums / sums[-1]
    return energies


def _share(basis: Array, second_moment: Array) -> float:
    """tr(P M)/tr M for the projector on the columns of ``basis``."""
    return float(np.vdot(basis, second_moment @ basis) / np.trace(second_moment))


def _ridged(values: Array, ridge: float) -> Array:
    width = len(values)
    ridged: Array = values + ridge * np.trace(values) / width * np.eye(width)
    return ridged


def _haar_deviation(anisotropy: Array, rank: int) -> float:
    """Var tr(P S_δ) = 2k(d − k)/(d(d − 1)(d + 2)) ‖S_δ − I/d‖² (hidden-state, Prop. 8)."""
    width = len(anisotropy)
    factor = 2 * rank * (width - rank) / (width * (width - 1) * (width + 2))
    return float(np.sqrt(factor) * np.linalg.norm(anisotropy))


def _projector_bound(energy: float, mass: float) -> float:
    """G_Mah >= (√(E_k q) + √((1 − E_k)(1 − q)))⁻² (hidden-state, Thm 17)."""
    rest = max(0.0, 1.0 - energy) * max(0.0, 1.0 - mass)
    return float((np.sqrt(energy * mass) + np.sqrt(rest)) ** -2)


def _split_half(halves: tuple[Array, Array], rank: int) -> tuple[float, float]:
    """Mean share of tr F in the k leading directions of the same half and of the other half."""
    dense = [half if half.ndim == 2 else np.diag(half) for half in halves]
    bases = [eigh_psd("fisher", half)[1][:, -rank:] for half in dense]
    own = [_share(bases[i], dense[i]) for i in (0, 1)]
    crossed = [_share(bases[i], dense[1 - i]) for i in (0, 1)]
    return float(np.mean(own)), float(np.mean(crossed))


def _notes(
    measured: FisherInformation,
    fisher_rank: int,
    rank: int,
    own: float,
    crossed: float,
    equal_pairs: int,
) -> tuple[str, ...]:
    count, width = measured.states.shape
    notes = []
    if fisher_rank < width and measured.full:
        cause = f", for it sums {measured.terms} gradients" if measured.terms < width else ""
        notes.append(
            f"F has rank {fisher_rank} of {width}{cause}: along the rest it puts no price on "
            "noise. Designs that invert F use the ridge. M* takes noise there as free, so "
            "least_signal may be too small; least_signal_ridged takes none as free"
        )
    if measured.full and count < 10 * width:
        notes.append(
            f"{count} prompts for a {width} × {width} F: E_k and r95 describe this sample; "
            f"{10 * width} would say more"
        )
    if crossed < STABLE_SHARE * own:
        notes.append(
            f"the {rank} leading directions of one half of the prompts hold {own:.0%} of its own "
            f"energy and {crossed:.0%} of the other half's: they are not a stable subspace"
        )
    if count - 1 < width:
        notes.append(
            f"{count} states span {count - 1} of {width} directions of differences at most: the "
            "isotropy error and the gains are those of the sample"
        )
    if equal_pairs:
        notes.append(f"{equal_pairs} pairs of prompts with equal states were left out")
    if measured.label_source == "true":
        notes.append("labels from the text: the empirical Fisher, not the second order of the KL")
    if measured.label_source == "top-k":
        notes.append(f"tokens put into one class had probability {measured.tail:.2g} on average")
    return tuple(notes)
