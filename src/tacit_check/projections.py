"""Random projections and sketches: one integral of a closed curve, in balls."""

from __future__ import annotations

from collections.abc import Callable

from flint import acb, arb, ctx, fmpq

from tacit_check.balls import HALF, ONE, ZERO, RefusedFileError, half_square_tail
from tacit_check.curves import Both, Curve
from tacit_check.elementary import gaussian, nothing

# Bits of an integral: its ball is as wide as this, and says so.
BITS = 96


def integral(integrand: Callable[[acb, bool], acb], low: arb, high: arb, least: int = -BITS) -> arb:
    """Return ∫ f over an interval as a ball, f real there."""
    before = ctx.prec
    ctx.prec = BITS + 32
    try:
        found = acb.integral(
            integrand, acb(low), acb(high), abs_tol=arb(2) ** least, rel_tol=arb(2) ** -60
        )
    finally:
        ctx.prec = before
    if not found.real.is_finite():
        raise RefusedFileError("an integral that no ball holds")
    return arb(found.real)


def projected(dim: int, rank: int, square: fmpq, one: bool) -> Both:
    """E over X ~ Beta(r/2, (d − r)/2) of a Gaussian at squared distance X μ²."""
    if rank >= dim or square == 0:
        return gaussian(square)
    length = arb(square).sqrt()
    # X = sin² θ has the density 2 sin^{r−1} θ cos^{d−r−1} θ / B(r/2, (d − r)/2)
    own, rest = arb(fmpq(rank, 2)), arb(fmpq(dim - rank, 2))
    log_scale = arb(2).log() + (own + rest).lgamma() - own.lgamma() - rest.lgamma()
    low, high = _bulk(dim, rank)
    # what lies outside is a mass of at most 2^−150 at either end, and H <= 1
    start, end = low.sqrt().asin(), high.sqrt().asin()
    outside = own_tail(own, rest, low) + (ONE - own_tail(own, rest, high))
    unseen = ZERO.union(outside.max(ZERO))

    def mixed(epsilon: arb, sign: int) -> arb:
        scale, shift = acb(log_scale), acb(epsilon)

        def integrand(theta: acb, _: bool) -> acb:
            sine, cosine = theta.sin(), theta.cos()
            distance = sine * length
            # Φ(±μ/2 − ε/μ), entire but where sin θ = 0
            tail = ((shift / distance - distance * sign / 2) / acb(2).sqrt()).erfc() / 2
            return scale.exp() * sine ** (rank - 1) * cosine ** (dim - rank - 1) * tail

        return integral(integrand, start, end) + unseen

    def height(epsilon: arb) -> arb:
        return mixed(epsilon, 1) - epsilon.exp() * mixed(epsilon, -1)

    def tails(epsilon: arb) -> tuple[arb, arb]:
        return mixed(epsilon, 1), mixed(epsilon, -1)

    source = "lora-privacy, Lemma 16: a projection captures a Beta share of a direction"
    if one:
        return Both((Curve(height, tails=tails),), theorems=(source,))
    return Both((Curve(height, attained=False),), theorems=(source,))


def own_tail(own: arb, rest: arb, x: arb) -> arb:
    """Return P(X < x) of a Beta law."""
    return x.beta_lower(own, rest, regularized=1)


def _bulk(dim: int, rank: int) -> tuple[arb, arb]:
    raise NotImplementedError


def column(dim: int, rank: int, alignment: fmpq) -> Both:
    """Not yet."""
    raise RefusedFileError(f"column: not checkable yet ({dim}, {rank}, {alignment})")


def sketch(columns: int, dim: int, low: fmpq, high: fmpq) -> Both:
    """Not yet."""
    raise RefusedFileError(f"sketch: not checkable yet ({columns}, {dim}, {low}, {high})")


_ = (HALF, half_square_tail, nothing)
