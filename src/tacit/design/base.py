"""The result of choosing a covariance: what it is, what it costs, and how far from optimal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource
from tacit._ground.frozen import array_value
from tacit.codec import MISSING, leaf, read
from tacit.covariance import Covariance, Factored, Isotropic, ScaleMixture

# What ``to_dict`` stores and ``from_dict`` reads; without a gap no optimum was sought.
STORED: dict[str, Any] = {
    "covariance": Covariance,
    "cost": float,
    "gap": Annotated[float, MISSING],
    "method": str,
    "multipliers": Array,
    "iterations": int,
    "information": float | None,
    "confidence": float | None,
    "notes": tuple[str, ...],
    "noise": ScaleMixture | None,
}


@array_value()
class Design:
    """A covariance chosen for a purpose, with the evidence of how good the choice is.

    Attributes:
        covariance: the covariance Σ of the noise.
        cost: what the noise costs: tr(FΣ) for worst-case and information designs, ½ tr(FΣ) nats
            for designs that spend a ``kl_budget``.
        gap: certified relative duality gap (cost − lower bound)/cost; 0 for closed forms; nan
            where the method is not an optimum of its measure.
        method: name of the rule that chose Σ.
        multipliers: the dual variables, one per constraint; empty where there are none.
        iterations: iterations of the solver, 0 for closed forms.
        information: certified upper bound on I(X; Y) in nats, where the design has one.
        confidence: probability with which ``information`` holds; None when it is not statistical.
        constraint_factor: (m, p) matrix L with ``z_i / √g_i = factor L_i``: difference i lies at
            squared distance g_i ‖L_i‖² at most, and every ‖L_i‖ is at most 1.
        multiplier_ratios: multipliers relative to those of orthogonal differences of the same
            length, which carry over to a changed problem; what ``warm_start`` reads.
        working_set: indices of the differences that ``multipliers`` and ``multiplier_ratios``
            speak of, where they were read in blocks; None for all of them.
        notes: what the code did that a reader of the design should know.
        noise: the law of the noise where it is not Gaussian; ``covariance`` is its covariance.
    """

    covariance: Covariance
    cost: float
    gap: float
    method: str
    multipliers: Array
    iterations: int
    information: float | None = None
    confidence: float | None = None
    constraint_factor: Array | None = None
    multiplier_ratios: Array | None = None
    working_set: npt.NDArray[np.intp] | None = None
    notes: tuple[str, ...] = ()
    noise: ScaleMixture | None = None

    @property
    def rank(self) -> int:
        """Number of directions that receive noise."""
        return self.covariance.rank

    @property
    def factor(self) -> Array | None:
        """A with Σ = A Aᵀ, (d, p), where the design carries one, to double precision.

        It is for reading. Where differences nearly coincide it is off by more than the budgets are
        kept to (``covariance.strain`` says by how much); ``sample`` and ``release`` mix the
        differences themselves, and are not.
        """
        return self.covariance.factor if isinstance(self.covariance, Factored) else None

    @property
    def law(self) -> Covariance | ScaleMixture:
        """The law of the noise."""
        # a mixture of sizes has this covariance, and is no Gaussian
        return self.covariance if self.noise is None else self.noise

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), for simulation; ``release`` is what publishes.

        The low bits of a sum ``value + sample(1)[0]`` tell values apart that the noise hides.
        """
        return self.law.sample(n, rng)

    def release(self, value: ArrayLike, *, rng: RandomSource = None) -> Array:
        """Return ``value + noise`` to publish: the noise that was certified, and no bit of more.

        The exact sum is rounded to 2⁻²⁰ of the noise's standard deviation in each coordinate, on a
        grid that depends on the design alone, which is post-processing of the real sum. A
        coordinate without noise is published as it is.

        Args:
            value: (d,), or (n, d) for independent noise on every row, in the outputs' units.
            rng: None draws from the operating system. A seed or generator can be repeated by
                whoever knows it, which voids the guarantee.

        Returns:
            What to publish, of the shape of ``value``.

        Raises:
            ValueError: a value of another dimension or not finite, or noise whose deviations are
                not within 2⁻¹⁰⁰⁰ … 2¹⁰⁰⁰.

        Example:
            >>> from tacit.design import worst_case
            >>> design = worst_case([[3.0, 0.0], [0.0, 4.0]], budgets=1.0)
            >>> design.release([10.0, 20.0]).shape
            (2,)

        Source: Mironov (2012), "On significance of the least significant bits for differential
        privacy".
        """
        # exact sum, rounded once to a grid that does not depend on the value
        return self.law.release(value, rng=rng)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able summary; the covariance can be read back, the factor is left out."""
        # the factor and the ratios only serve a further design: they are not stored
        return {
            "covariance": self.covariance.to_dict(),
            "cost": self.cost,
            # JSON has no NaN: where no optimum was sought there is no gap
            "gap": None if self.gap != self.gap else self.gap,
            "method": self.method,
            "multipliers": self.multipliers.tolist(),
            "iterations": self.iterations,
            "rank": self.rank,
            "information": self.information,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "noise": None if self.noise is None else self.noise.to_dict(),
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Design:
        """Return the design that ``to_dict`` summarised, without its factor and ratios.

        Raises:
            ValueError: the covariance or the noise is malformed.
            KeyError: a field is missing.
        """
        # what a file lacks is what a design has by default
        held = {name: read(kind, description[name], name) for name, kind in STORED.items()}
        found = Design(**held)
        if description["rank"] != found.rank:
            raise ValueError(f"rank: the covariance has another, {found.rank}")
        return found


def no_noise(size: int, information: float, method: str, reason: str) -> Design:
    """Return the design that adds nothing to outputs of ``size`` numbers.

    Args:
        size: d.
        information: upper bound on the nats that the outputs carry as they are.
        method: ``"constant"`` where they never differ, or ``"no-noise"``.
        reason: why none is needed, a sentence for the notes.
    """
    # rank 0: released as it is
    return Design(
        covariance=Isotropic(0.0, size),
        cost=0.0,
        gap=0.0,
        method=method,
        multipliers=np.empty(0),
        iterations=0,
        information=information,
        notes=(reason,),
    )


leaf(Design, Design.from_dict)
