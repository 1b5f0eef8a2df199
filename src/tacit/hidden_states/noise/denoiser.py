"""What a consumer does with a noisy state before using it: post-processing, whatever it learns."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tacit._ground.checks import (
    Array,
    RandomSource,
    check_psd,
    generator,
    integer,
    matrix,
    symmetric,
)
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance
from tacit.guarantees import Guarantee
from tacit.hidden_states.noise.posterior import (
    POST_PROCESSING,
    ROWS_TOGETHER,
    StatePosterior,
    double_rows,
    public_states,
    unchanged,
)

# width of the two layers, states of a batch, and the rate that the schedule starts from
HIDDEN, BATCH, RATE = 512, 512, 1e-3
# few states need many passes to be read back as well as can be, many need few
LEAST_PASSES, LEAST_STEPS = 10, 1500


class Denoiser(ABC):
    """A map from a noisy state to a better guess of the clean one, for N(0, Σ) noise.

    Attributes:
        kind: ``"posterior mean"``, ``"wiener"`` or ``"trained"``.
        calibration: public states it was made from.
        statement: why it changes no guarantee.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> public = torch.tensor([[-1.0], [1.0]])
        >>> Denoiser.posterior_mean(public, Isotropic(1.0, 1)).denoise(torch.tensor([[0.5]]))
        tensor([[0.4621]])
    """

    kind: str
    calibration: int
    statement = POST_PROCESSING

    @staticmethod
    def posterior_mean(calibration: ArrayLike, covariance: Covariance) -> Denoiser:
        """Return ``Σ_m softmax_m(−½ ‖z − h_m‖²_{Σ⁻¹}) h_m`` over public states h_m.

        Args:
            calibration: (M, d) public clean states, disjoint from what is released.
            covariance: Σ of the release, of full rank.

        Raises:
            ValueError: bad states, or a singular Σ: no public state agrees with a release in a
                direction without noise.

        Source: Bayes' rule for a uniform prior on the calibration states.
        """
        covariance = as_covariance("covariance", covariance)
        return _PosteriorMean(StatePosterior(calibration, covariance))

    @staticmethod
    def wiener(calibration: ArrayLike, covariance: Covariance) -> Denoiser:
        """Return ``μ + S (S + Σ)⁻¹ (z − μ)``, μ and S the mean and covariance of public states.

        The best affine denoiser; what Σ leaves without noise it leaves as released.

        Args:
            calibration: (M, d) public clean states.
            covariance: Σ of the release; singular is allowed.

        Raises:
            ValueError: bad states.

        Source: Wiener (1949); the posterior mean of a Gaussian prior N(μ, S).
        """
        covariance = as_covariance("covariance", covariance)
        states = public_states(calibration, covariance)
        # μ and S of the public states, divided by their number
        mean = states.mean(axis=0)
        centred = states - mean
        spread = centred.T @ centred / len(states)
        return _Wiener(mean, spread, covariance, len(states))

    @staticmethod
    def gaussian(mean: ArrayLike, spread: ArrayLike, covariance: Covariance) -> Denoiser:
        """Return the Wiener denoiser of a known mean (d,) and covariance (d, d)."""
        covariance = as_covariance("covariance", covariance)
        centre = matrix("mean", np.atleast_2d(mean), columns=covariance.dim)[0]
        wide = symmetric("spread", spread, size=covariance.dim)
        check_psd("spread", np.linalg.eigvalsh(wide))
        return _Wiener(centre, wide, covariance, 0)

    @staticmethod
    def trained(
        calibration: ArrayLike,
        covariance: Covariance,
        *,
        epochs: int | None = None,
        rng: RandomSource = None,
    ) -> Denoiser:
        """Return the Wiener denoiser plus two layers that learn what it misses.

        Minimises ``E ‖h − D(h + N(0, Σ))‖²`` in units of the spread, with fresh noise each pass.

        Args:
            calibration: (M, d) public clean states, M >= 20; a tenth is held out, and the network
                of the best pass on it is kept, the Wiener denoiser itself included.
            covariance: Σ of the release.
            epochs: passes over the states; when left out, those that take 1,500 steps, and at least
                ten: few states need many passes to be read back as well as can be.
            rng: source of order, weights and noise.

        Raises:
            ValueError: bad states, or fewer than 20.
        """
        covariance = as_covariance("covariance", covariance)
        states = public_states(calibration, covariance)
        passes = _passes(len(states)) if epochs is None else integer("epochs", epochs, minimum=1)
        if len(states) < 20:
            raise ValueError(f"calibration: expected at least 20 states, got {len(states)}")
        linear = Denoiser.wiener(states, covariance)
        network = _fit_network(states, covariance, linear, passes, generator(rng))
        return _Trained(linear, network, len(states))

    def denoise(self, noisy: ArrayLike) -> Tensor:
        """Map noisy states (n, d) to denoised ones, (n, d) of float32.

        Raises:
            ValueError: not finite, or of another width.
        """
        return _single(self._denoise(double_rows("noisy", noisy, self._width)))

    def guarantee(self, release: Guarantee) -> Guarantee:
        """Return the guarantee of the denoised release: that of the release, unchanged.

        Raises:
            ValueError: not a guarantee.

        Source: post-processing (data processing inequality).
        """
        return unchanged(release)

    @property
    @abstractmethod
    def _width(self) -> int:
        """Numbers d in a state."""

    @abstractmethod
    def _denoise(self, rows: Array) -> Array:
        """Denoise rows in float64."""


class _PosteriorMean(Denoiser):
    kind = "posterior mean"

    def __init__(self, posterior: StatePosterior) -> None:
        self.calibration, self._posterior = posterior.count, posterior

    @property
    def _width(self) -> int:
        return self._posterior.width

    def _denoise(self, rows: Array) -> Array:
        result = np.empty_like(rows)
        for part, asked in self._posterior.blocks(rows):
            result[part] = self._mean(asked).numpy()
        result += self._posterior.centre
        return result

    def _mean(self, asked: Tensor) -> Tensor:
        """Stream over the calibration states with a running maximum, so that nothing overflows."""
        highest = torch.full((len(asked),), -torch.inf, dtype=torch.float64)
        mass, total = torch.zeros_like(highest), torch.zeros_like(asked)
        for part, score in self._posterior.scores(asked):
            # Σ_m e^{s_m} h_m / Σ_m e^{s_m}, both sums relative to e^{highest} so far
            above = torch.maximum(highest, score.amax(dim=1))
            shrink = torch.exp(highest - above)
            score.sub_(above[:, None]).exp_()
            mass = mass * shrink + score.sum(dim=1)
            total = total * shrink[:, None] + score @ self._posterior.states[part]
            highest = above
        return total / mass[:, None]


class _Wiener(Denoiser):
    kind = "wiener"

    def __init__(self, mean: Array, spread: Array, covariance: Covariance, count: int) -> None:
        self.calibration, self.mean = count, mean
        with one_thread():
            self.gain = _gain(symmetric("spread", spread), covariance.to_dense())

    @property
    def _width(self) -> int:
        return int(self.mean.size)

    def _denoise(self, rows: Array) -> Array:
        # μ + G (z − μ), G the gain
        denoised: Array = self.mean + (rows - self.mean) @ self.gain.T
        return denoised


def _gain(spread: Array, noise: Array) -> Array:
    """``I − Σ (S + Σ)⁺``: where neither varies the release is already right."""
    # S (S + Σ)⁻¹ = I − Σ (S + Σ)⁻¹: the form that leaves a release without noise as it is
    total = spread + noise
    values, vectors = np.linalg.eigh((total + total.T) / 2)
    # eigenvalues below what eigh loses count as 0, and the pseudo-inverse as 0 along them
    kept = values > len(values) * EPS * values[-1]
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    gain: Array = np.eye(len(values)) - noise @ inverse
    return gain


class _Trained(Denoiser):
    kind = "trained"

    def __init__(self, linear: Denoiser, network: _Correction, count: int) -> None:
        self.calibration, self._linear, self._network = count, linear, network

    @property
    def _width(self) -> int:
        return self._linear._width

    def _denoise(self, rows: Array) -> Array:
        return _corrected(self._linear, self._network, rows)


class _Correction(nn.Module):
    """What two layers add to a linear guess, in units of the spread of the states."""

    mean: Tensor
    scale: Tensor
    noisy_scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, noisy_scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.register_buffer("noisy_scale", noisy_scale)
        width = len(mean)
        self.layers = nn.Sequential(
            nn.Linear(2 * width, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU()
        )
        self.head = nn.Linear(HIDDEN, width)
        # an untrained network adds nothing: it starts as the linear denoiser
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, noisy: Tensor, guess: Tensor) -> Tensor:
        """Return the corrected guess in units of the spread."""
        # both inputs in units of their own spread, so that no layer sees sizes of the model
        start = (guess - self.mean) / self.scale
        seen = (noisy - self.mean) / self.noisy_scale
        added: Tensor = self.head(self.layers(torch.cat([start, seen], dim=1)))
        return start + added


def _passes(count: int) -> int:
    """Return how often a network reads so many states, a tenth of which is held out."""
    # ⌈n/b⌉ batches a pass of the nine tenths that are learnt from
    batches = -(-(count - count // 10) // BATCH)
    return max(LEAST_PASSES, -(-LEAST_STEPS // batches))


def _fit_network(
    states: Array,
    covariance: Covariance,
    linear: Denoiser,
    epochs: int,
    source: np.random.Generator,
) -> _Correction:
    # a tenth is held out, to keep the pass that is best on what was not learnt
    order = source.permutation(len(states))
    apart = states[order[: len(states) // 10]]
    learnt = states[order[len(states) // 10 :]]
    # a clean state and a noisy one, each in units of its own spread
    scale = np.maximum(states.std(axis=0), EPS)
    noisy_scale = np.sqrt(scale**2 + covariance.diagonal())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(source.integers(2**31)))
        network = _Correction(
            *(_single(values) for values in (states.mean(axis=0), scale, noisy_scale))
        )
    checked = _pair(apart, covariance, linear, network, source)
    # the first to beat is the untrained network, which is the linear denoiser
    best, least = copy.deepcopy(network.state_dict()), _error(network, *checked)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    steps = epochs * -(-len(learnt) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    # the network minimises E ‖(h − D(h + ξ))/scale‖², noise ξ drawn afresh in every pass
    for _ in range(epochs):
        shuffled = learnt[source.permutation(len(learnt))]
        pairs = _pair(shuffled, covariance, linear, network, source)
        for noisy, guess, clean in zip(*(torch.split(part, BATCH) for part in pairs), strict=True):
            loss = nn.functional.mse_loss(network(noisy, guess), clean)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        reached = _error(network, *checked)
        if reached < least:
            best, least = copy.deepcopy(network.state_dict()), reached
    network.load_state_dict(best)
    return network.eval().requires_grad_(False)


def _pair(
    clean: Array,
    covariance: Covariance,
    linear: Denoiser,
    network: _Correction,
    source: np.random.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return noisy states, their linear denoising, and the clean ones in units of the spread."""
    # noise of simulation: nothing that is released is drawn here
    noisy = clean + covariance.sample(len(clean), source)
    target = (_single(clean) - network.mean) / network.scale
    return _single(noisy), _single(linear._denoise(noisy)), target


@torch.no_grad()
def _error(network: _Correction, noisy: Tensor, guess: Tensor, clean: Tensor) -> float:
    return float(nn.functional.mse_loss(network(noisy, guess), clean))


@torch.no_grad()
def _corrected(linear: Denoiser, network: _Correction, rows: Array) -> Array:
    pieces = []
    for low in range(0, len(rows), ROWS_TOGETHER):
        noisy = rows[low : low + ROWS_TOGETHER]
        found = network(_single(noisy), _single(linear._denoise(noisy)))
        pieces.append((found * network.scale + network.mean).numpy())
    return np.concatenate(pieces).astype(np.float64)


def _single(values: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
