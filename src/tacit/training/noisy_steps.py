"""What leaves a step of a loop: clipped sums over all processes, with their noise, once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from tacit.design import StepFactor
from tacit.design.streams.factor import CorrelatedNoise
from tacit.gradients.adaptive import AdaptiveDPSGD, Clips
from tacit.gradients.methods import DPSGD
from tacit.gradients.publication import TOGETHER
from tacit.gradients.randomness import StepRandomness
from tacit.gradients.rows import divided
from tacit.gradients.steps import Normal, StepLayer
from tacit.training.canaries import DiracCanaries
from tacit.training.workers import Workers, shard_like


class NoisySteps:
    """Adds up what records give, clipped, and writes the noised sum into the gradients.

    Args:
        method: how they are clipped.
        noise_multiplier: s.
        parameters: what is trained, by name.
        expected: q n, records expected in a step, a public number.
        randomness: of the noise.
        workers: the processes that share a step.
        canaries: records of nobody that stand in the sums; None for none.
        factor: what ties the noise of steps together; None where each has its own.

    Attributes:
        clips: of the next step, where they follow the gradients; None where they stay.
    """

    def __init__(
        self,
        method: DPSGD,
        noise_multiplier: float,
        parameters: Mapping[str, nn.Parameter],
        *,
        expected: float,
        randomness: StepRandomness,
        workers: Workers,
        canaries: DiracCanaries | None = None,
        factor: StepFactor | None = None,
    ) -> None:
        self._method, self._noise, self._parameters = method, noise_multiplier, dict(parameters)
        self._expected, self._randomness, self._workers = expected, randomness, workers
        self.canaries = canaries
        self.tied: dict[str, CorrelatedNoise[Tensor]] = {}
        # every process makes the same groups, though one alone keeps noise of the steps before
        self._solved = factor is not None
        if factor is not None and workers.first:
            self.tied = {name: CorrelatedNoise(factor) for name in parameters}
        self.sums: dict[str, Tensor] = {}
        self._whole: Tensor | None = None
        self.clips: Clips | None = None
        if isinstance(method, AdaptiveDPSGD):
            self.clips = method.clips(list(parameters))

    @property
    def clip(self) -> float:
        """The norm over all layers that the next step clips to."""
        return self._method.clip if self.clips is None else self.clips.whole_norm

    def add(
        self,
        sums: Mapping[str, Tensor],
    ) -> None:
        """Add ``Σ c_i G_i`` of some records to the sum of the step.

        Args:
            sums: by name, with the factors of ``factors``.
        """
        for name, total in sums.items():
            self.sums[name] = self.sums[name].add_(total) if name in self.sums else total

    def factors(self, squared_norms: Mapping[str, Tensor], *, counted: bool) -> dict[str, Tensor]:
        """Return c_i of some records by name, and count those that stay whole.

        Args:
            squared_norms: (B,) ‖G_i‖² by name, no less than those of what is added.
            counted: False where a record passed that stands for none.
        """
        held = self._method if self.clips is None else self.clips
        # a layer that the batch does not reach keeps its share of C: a record's factor is of that
        # record alone, whatever layers others reach
        nothing = torch.zeros_like(next(iter(squared_norms.values())))
        whole = held.factors({name: squared_norms.get(name, nothing) for name in self._parameters})
        if counted and self.clips is not None:
            found = self.clips.whole(whole)
            self._whole = found if self._whole is None else self._whole + found
        factors = self._method.lowered(whole)
        if not counted:
            factors = {name: torch.zeros_like(one) for name, one in factors.items()}
        return factors

    def take_up(self, noise: Mapping[str, tuple[Sequence[Tensor], Sequence[Tensor]]]) -> None:
        """Go on with noise of the steps before, as it was stored, where the sums are.

        Args:
            noise: what tied noise keeps, by name.
        """
        for name, (before, buffers) in noise.items():
            held, device = self.tied[name], self._parameters[name].device
            held.before = [one.to(device) for one in before]
            held.buffers = [one.to(device) for one in buffers]

    def write(self, step: int) -> None:
        """Write ``(Σ c_i G_i + N) / (q n)`` into every gradient, on the grid of the noise."""
        canaries = self.canaries if self._workers.first else None
        if canaries is not None:
            canaries.draw(step)
        for group in self._groups():
            totals = {name: self._total(name) for name in group}
            if canaries is not None:
                for name, total in totals.items():
                    canaries.add(name, total, self._clip_of(name))
            noisy = self._noised_group(totals, step)
            # by the records that are expected, never by those that came
            mean = divided(noisy, self._expected, self._parameters[group[0]].dtype)
            sizes = [one.numel() for one in totals.values()]
            parts = zip(
                totals.items(), torch.split(noisy, sizes), torch.split(mean, sizes), strict=True
            )
            for (name, total), released, gradient in parts:
                if canaries is not None:
                    canaries.watch(name, released.view(total.shape), self._clip_of(name))
                parameter = self._parameters[name]
                parameter.grad = shard_like(parameter, gradient.view(total.shape))
        if self.clips is not None:
            self.clips = self._moved(self.clips, step)

    def _groups(self) -> Iterator[list[str]]:
        """Yield names of parameters that get their noise together: small ones that share σ."""
        group: list[str] = []
        # entries of a group, and what its noise is of
        count, kind = 0, (0.0, torch.device("cpu"), torch.float32)
        for name, parameter in self._parameters.items():
            size = parameter.numel()
            own = (self._deviation(name), parameter.device, parameter.dtype)
            if group and (count + size > TOGETHER or own != kind or self._solved):
                yield group
                group, count = [], 0
            group.append(name)
            count, kind = count + size, own
        yield group

    def _total(self, name: str) -> Tensor:
        """Return the sum of one parameter, which leaves."""
        total, parameter = self.sums.pop(name, None), self._parameters[name]
        if total is None:
            # no record reached it, and its noise is there all the same
            total = torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
        # of a layer that keeps its weight turned around the sum is so, too
        return total.contiguous()

    def _noised_group(self, totals: Mapping[str, Tensor], step: int) -> Tensor:
        """Return the entries of sums with their noise, drawn and rounded in one go."""
        places = {name: place for place, name in enumerate(self._parameters)}
        first, *others = totals
        deviation = self._deviation(first)
        if not others:
            normal = self._normal(first, step, places[first], totals[first])
            return self._noised(totals[first], normal, deviation).view(-1)
        counts = {places[name]: one.numel() for name, one in totals.items()}
        whole = torch.cat([one.reshape(-1) for one in totals.values()])
        normal = self._randomness.normal_of_several(step, counts, whole.device)
        return self._noised(whole, normal, deviation)

    def _clip_of(self, name: str) -> float:
        """Return what a record may add at most to one parameter alone."""
        if self.clips is not None:
            return self.clips.norms[self.clips.groups[name]]
        each = len(self._parameters) ** 0.5 if self._method.clipping == "layers" else 1.0
        return self._method.clip / each

    def _deviation(self, name: str) -> float:
        if self.clips is None:
            return self._noise * self._method.noise_scale
        return self.clips.deviation(name, self._noise)

    def _normal(self, name: str, step: int, place: int, total: Tensor) -> Normal:
        """Return what draws the noise of one parameter: its own, or tied to that of steps before.

        ``ẑ_t`` of ``C ẑ = z`` has a deviation of 1/c_0 >= 1 at least: the grid of N(0, 1) is no
        coarser than its own.
        """
        drawn = self._randomness.normal(step, place, total.device)
        if name not in self.tied:
            return drawn
        # what is kept of the steps before is of all entries: solved whole, and read in parts
        rest: list[Tensor] = []

        def parts(shape: tuple[int, ...]) -> Tensor:
            if not rest:
                whole = drawn(tuple(total.shape)).to(total.device)
                rest.append(self.tied[name].next(whole).flatten())
            count = math.prod(shape)
            taken, rest[0] = rest[0][:count], rest[0][count:]
            return taken.reshape(shape)

        return parts

    def _noised(self, total: Tensor, normal: Normal, deviation: float) -> Tensor:
        # the sum over all processes; the first adds the noise, once
        total = self._workers.total(total.contiguous())
        if self._workers.first:
            layer = StepLayer(total, None, normal)
            total = self._method.noised(total, layer, deviation)
        return self._workers.from_first(total.contiguous())

    def _moved(self, clips: Clips, step: int) -> Clips:
        """Return the clips, moved by the counts of records that were left whole, with noise."""
        counts, self._whole = self._whole, None
        if counts is None:
            device = next(iter(self._parameters.values())).device
            counts = torch.zeros(len(clips.norms), dtype=torch.float64, device=device)
        # a stream of its own: that behind the last parameter's
        place, deviation = len(self._parameters), clips.count_deviation(self._noise)
        normal = self._randomness.normal(step, place, counts.device)
        noisy = self._noised(counts, normal, deviation)
        return clips.moved(noisy.tolist(), self._expected)
