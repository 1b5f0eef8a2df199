"""A fitted quotient: the encoder, its ball, its decoder, and everything that may be said of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit import codec
from tacit._ground.checks import Array, RandomSource, generator, integer, matrix, non_negative
from tacit._ground.reprs import short_repr
from tacit.codec import APART
from tacit.compute import progress_bar
from tacit.guarantees import InformationBound, MaximalLeakage
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.noise.posterior import PosteriorBehaviour
from tacit.hidden_states.origin import Origin, digest_of
from tacit.hidden_states.quotient.ball import Ball
from tacit.hidden_states.quotient.estimates import InformationEstimate, estimate_log_det
from tacit.hidden_states.quotient.methods import Recipe
from tacit.hidden_states.quotient.training import QuotientNetwork, Seen, train
from tacit.hidden_states.tensors import check_network, malformed, read_tensors, write_tensors
from tacit.models.behaviours import Behaviours, as_states, logarithms

ROWS_TOGETHER = 4096
# a held-out tenth of fewer says nothing
FEWEST = 20
# radii that vectors of float32 come near to in training
RADII = (1e-6, 1e6)
USUAL = Recipe()


@short_repr
@dataclass(frozen=True, eq=False)
class PredictiveQuotient:
    """``z = clip_R(q(h)) + N(0, σ²I)``: a few numbers learnt to carry the prediction.

    What is proven of z rests on the ball alone, whatever the encoder learnt and whatever state it
    is given.

    Attributes:
        network: encoder q and decoder.
        ball: k, R and σ.
        recipe: what the encoder is given, and how it was trained.
        calibration: public prompts it was trained on.
        held_out: mean KL on a tenth of them, nats, read by the decoder.
        origin: model, layer and prompts by digest; None where nobody said.
    """

    form: ClassVar[str] = "tacit-quotient-2"

    network: Annotated[QuotientNetwork, APART] = field(repr=False)
    ball: Ball
    recipe: Recipe
    calibration: int
    held_out: float
    origin: Origin | None = None

    def __post_init__(self) -> None:
        integer("calibration", self.calibration, minimum=1)
        non_negative("held_out", self.held_out)

    @classmethod
    def fit(
        cls,
        states: ArrayLike | None,
        behaviours: Any,
        ball: Ball,
        recipe: Recipe = USUAL,
        *,
        rng: RandomSource = None,
        device: str | torch.device | None = None,
        progress: bool | None = None,
    ) -> PredictiveQuotient:
        """Train encoder and decoder on public prompts, with the noise that will be released.

        Args:
            states: (n, d) clean states of public prompts, n >= 20, disjoint from what is released;
                not looked at where behaviours are read, None then.
            behaviours: (n, V) logits or log-probabilities after them, or ``Behaviours``.
            ball: k, R and σ; ``Ball.at`` gives the one of so many certified nats.
            recipe: what the encoder is given, its size, and what is minimised.
            rng: source of weights, order and noise.
            device: where to train; that of ``states`` when left out, else the CPU.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Returns:
            The quotient, on the CPU.

        Raises:
            ValueError: a bad argument, or not one behaviour a state.

        Example:
            >>> rows = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
            >>> ball, recipe = Ball.at(2, nats=3.0), Recipe(epochs=2)
            >>> quotient = PredictiveQuotient.fit(rows, rows[:, :4], ball, recipe, rng=0)
            >>> quotient.encode(rows).shape, round(quotient.information().nats, 6)
            ((300, 2), 3.0)

        Source: hidden-state, App. R and X.
        """
        for name, given, kind in (("ball", ball, Ball), ("recipe", recipe, Recipe)):
            if not isinstance(given, kind):
                raise ValueError(f"{name}: expected a {kind.__name__}, got {type(given).__name__}")
        # the bounds know R/σ alone, the network also R
        if not RADII[0] <= ball.radius <= RADII[1]:
            raise ValueError(
                f"ball: expected a radius in {RADII[0]:g} … {RADII[1]:g}, which a network of "
                f"float32 reaches, got {ball.radius:g}; only the ratio of radius and noise matters"
            )
        known = Behaviours.of(behaviours)
        if len(known) < FEWEST:
            raise ValueError(f"behaviours: expected at least {FEWEST} rows, got {len(known)}")
        place = states.device if device is None and isinstance(states, Tensor) else device
        target = torch.device("cpu" if place is None else place)
        seen = _seen(recipe.reads, states, known, target)
        source = generator(rng)
        network = _made(seen, known, ball, recipe, source).to(target)
        with progress_bar(recipe.epochs, "quotient", shown=progress is not False) as advance:
            reached = train(
                network, ball, seen, known, recipe, device=target, source=source, advance=advance
            )
        kept = network.cpu().eval().requires_grad_(False)
        return cls(kept, ball, recipe, len(known), reached)

    @property
    def reads(self) -> str:
        """``"states"``, or ``"behaviours"`` for an encoder that is given the prediction."""
        return self.recipe.reads

    @property
    def width(self) -> int:
        """Numbers that are read of a prompt: d, or V."""
        return len(self.network.mean)

    @property
    def words(self) -> str:
        """What is released, in a few words."""
        size = self.ball.dimension
        return f"a quotient of {size} number{'s' if size > 1 else ''} with noise"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of encoder, decoder and ball."""
        return digest_of(self.network.state_dict(), f"{self.reads} {self.ball!r}")

    @torch.no_grad()
    def encode(self, states: ArrayLike | None = None, *, behaviours: Any = None) -> Array:
        """Return the clean quotients ``clip_R(q(h))``, (n, k) of float64; they are no release.

        Args:
            states: (n, d); needed unless behaviours are read.
            behaviours: (n, V) logits or log-probabilities, or ``Behaviours``, where they are read.

        Raises:
            ValueError: what is read is missing, not finite in float32, or of another width.
        """
        if self.reads == "states":
            if states is None:
                raise ValueError("states: expected the states that the encoder reads, got None")
            rows = as_states("states", states, width=self.width)
            parts = torch.split(rows, ROWS_TOGETHER)
        else:
            if behaviours is None:
                raise ValueError(
                    "behaviours: expected the behaviours that the encoder reads, got None"
                )
            known = Behaviours.of(behaviours)
            if known.vocabulary != self.width:
                raise ValueError(
                    f"behaviours: expected {self.width} columns, got {known.vocabulary}"
                )
            parts = tuple(_blocks(known))
        found = [self.network.encode(part, self.ball.radius).double().numpy() for part in parts]
        # whatever the weights make of a state, it lies in the ball
        return self.ball.clipped(np.nan_to_num(np.concatenate(found), posinf=0.0, neginf=0.0))

    @torch.no_grad()
    def distributions(self, released: ArrayLike) -> Tensor:
        """Return the decoder's log-probabilities of the next token, (n, V) of float32.

        Args:
            released: (n, k) quotients with their noise.

        Raises:
            ValueError: not finite, or of another width.
        """
        rows = matrix("released", released, columns=self.ball.dimension)
        return self.network.log_probabilities(torch.tensor(rows).float(), self.ball)

    def posterior(self, calibration: ArrayLike | None, behaviours: Any) -> PosteriorBehaviour:
        """Return Bayes' reader of a release over public prompts, in the decoder's place.

        Args:
            calibration: (M, d) their clean states; None where behaviours are read.
            behaviours: (M, V) logits or log-probabilities after them, or ``Behaviours``.
        """
        known = Behaviours.of(behaviours)
        clean = self.encode(calibration, behaviours=known)
        # Σ = σ²I of the release, over the quotients of public prompts
        return PosteriorBehaviour(clean, self.ball.covariance, known)

    def information(self, releases: int = 1) -> InformationBound:
        """Return what is proven of I(prompt; T releases), for every law of the prompt."""
        return self.ball.information(releases)

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return what T releases multiply any attacker's chance by at most."""
        return self.ball.leakage(releases)

    def certify(self, *, candidates: int | None = None, releases: int = 1) -> tuple[Guarantee, ...]:
        """Return the theorems: leakage, success among N equally likely prompts, information."""
        return self.ball.guarantees(candidates=candidates, releases=releases)

    def estimate(
        self, states: ArrayLike | None = None, *, behaviours: Any = None
    ) -> InformationEstimate:
        """Return what a sample of prompts says of the information: an estimate, no guarantee."""
        clean = self.encode(states, behaviours=behaviours)
        return estimate_log_det(clean, noise_std=self.ball.noise_std)

    def named(self, origin: Origin | None) -> PredictiveQuotient:
        """Return the same with where it comes from."""
        return replace(self, origin=origin)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the quotient as safetensors, whole or not at all; of its origin what is public.

        Raises:
            ValueError: it cannot be written.
        """
        public = self.named(None if self.origin is None else self.origin.public)
        return write_tensors(path, self.form, self.network.state_dict(), public)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PredictiveQuotient:
        """Read what ``save`` wrote; nothing runs when it is read.

        Raises:
            ValueError: no such file, or no quotient.
        """
        tensors, about = read_tensors(path, cls.form)
        with malformed(path, "quotient"):
            ball: Ball = codec.read(Ball, about["ball"], "ball")
            recipe: Recipe = codec.read(Recipe, about["recipe"], "recipe")
            network = _loaded(tensors, ball, recipe)
            found: PredictiveQuotient = codec.read_apart(cls, about, "path", {"network": network})
        return found


def _loaded(tensors: Mapping[str, Tensor], ball: Ball, recipe: Recipe) -> QuotientNetwork:
    # V is told by the last layer, d by the scale of what is read
    last = tensors[f"decoder.{2 * recipe.depth}.bias"]
    network = QuotientNetwork(
        len(tensors["mean"]), ball.dimension, len(last), recipe.depth, recipe.hidden
    )
    # refuses other names and other shapes
    network.load_state_dict(dict(tensors))
    check_network("network", network)
    if not bool((network.scale > 0).all()):
        raise ValueError("scale: expected numbers > 0, got other values")
    return network.eval().requires_grad_(False)


def _blocks(known: Behaviours) -> Iterator[Tensor]:
    """Yield log-probabilities of rows in order."""
    for start in range(0, len(known), ROWS_TOGETHER):
        yield logarithms(known.probabilities(slice(start, start + ROWS_TOGETHER)))


def _seen(reads: str, states: Any, known: Behaviours, device: torch.device) -> Seen:
    """Return what the encoder is given of some prompts."""
    if reads == "behaviours":
        return lambda rows: logarithms(known.probabilities(rows)).to(device)
    if states is None:
        raise ValueError("states: expected the states that the encoder reads, got None")
    public = as_states("states", states)
    if len(public) != len(known):
        raise ValueError(f"behaviours: expected {len(public)} rows, one a state, got {len(known)}")
    public = public.to(device)
    return lambda rows: public[rows.to(device)]


def _made(
    seen: Seen, known: Behaviours, ball: Ball, recipe: Recipe, source: np.random.Generator
) -> QuotientNetwork:
    """Return a network that predicts the mean prediction before it is trained."""
    width = seen(torch.arange(1)).shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(source.integers(2**31)))
        network = QuotientNetwork(
            width, ball.dimension, known.vocabulary, recipe.depth, recipe.hidden
        )
    # what is read, centred and scaled, and the mean prediction as the bias of the last layer
    places = torch.split(torch.arange(len(known)), ROWS_TOGETHER)
    network.fit_scale(len(known), (seen(rows) for rows in places))
    # ln of the mean prediction: what whoever is told nothing says
    total = torch.zeros(known.vocabulary, dtype=torch.float64)
    for rows in places:
        total += known.probabilities(rows).double().sum(dim=0)
    last = network.decoder[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.bias.copy_((total / len(known)).clamp_min(1e-9).log())
    return network
