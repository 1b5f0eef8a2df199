"""What several released rows tell together, beyond what each tells alone."""

from __future__ import annotations

import math
from dataclasses import replace

from tacit.conversions import success_from_information
from tacit.guarantees import InformationBound
from tacit.text import in_nats, share_up, significant_up


def together(guarantee: InformationBound, count: int) -> InformationBound:
    """Bound what m rows tell together: at most m times what one does."""
    if count == 1:
        return guarantee
    nats = math.nextafter(count * guarantee.nats, math.inf)
    return replace(guarantee, nats=nats, secret=f"which {count} inputs of the pool were queried")


def of_a_list(guarantee: InformationBound, prior: float, count: int) -> tuple[str, ...]:
    """Say what m > 1 rows tell together, as something that the guarantee of one does not hide.

    X_i, the input of one of the rows, is uniform, since the rows are shuffled, and a function of
    all m inputs, so I(X_i; Y_1 … Y_m) <= m β bounds naming it from the whole list.

    Args:
        guarantee: of one row.
        prior: 1/n.
        count: m.
    """
    if count == 1:
        return ()
    nats = together(guarantee, count).nats
    named = min(1.0, float(success_from_information(nats, prior)))
    return (
        f"not hidden: what the other rows add. All {count:,} rows tell at most "
        f"{in_nats(significant_up(nats))} about all {count:,} inputs together, and who sees "
        f"them all names the input of any one at most {share_up(named)} of the time",
    )
