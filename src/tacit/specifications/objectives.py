"""What the shared features are pulled towards: fixed codes of the labels, or apart from each other.

One step from θ₀ has the gradient Σ_i J_iᵀ u_i, where J_i is the derivative of f(x_i; θ₀) by a
layer and u_i is a direction of the features: the objective decides u. Of ``"mean"`` there is no
step: the features themselves are described, whatever the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array, masked
from tacit.specifications.projections import shared_normals

# β: how much of a scatter is about the inputs themselves.
OF_INPUTS = 0.3


def label_codes(names: Sequence[str], width: int) -> Tensor:
    """Return the code of every class, (K, d): N(0, 1/d) drawn from its name.

    Whoever calls a class by the same name has the same code, so that nobody has to be asked.

    Args:
        names: of the classes.
        width: d, the number of features.

    Source: pave, Eq. 1 and 2, with g fixed, random and shared.
    """
    # N(0, 1/d): the squared length has the mean 1, whatever d
    drawn = [shared_normals(f"label:{name}:{width}", width) for name in names]
    return torch.from_numpy(np.stack(drawn) / width**0.5).float()


def label_directions(names: Sequence[str], width: int) -> Tensor:
    """Return u of every class, (K, d): ``Gᵀ (1/K − e_c)``, the cross-entropy's where g is small.

    At outputs that are all alike the softmax is uniform, so the gradient of −ln p_c by the features
    is Gᵀ (1/K − e_c), up to the scale of g that a cosine does not see.

    Args:
        names: of the classes.
        width: d.
    """
    # Gᵀ (1/K − e_c): the mean code less that of the class
    codes = label_codes(names, width)
    return codes.mean(dim=0) - codes


def class_means(shares: Array, white: Array) -> Array:
    """Return ``(K/n) Σ_i s_ic W(z_i − z̄)``, (K, d): class means where classes are alike in number.

    Args:
        shares: (n, K), how much each record is of each class.
        white: (n, d) whitened features.
    """
    count, classes = shares.shape
    found: Array = shares.T @ white * (classes / count)
    return found


def scatter_directions(shares: Array, means: Array, feature_map: Array, white: Array) -> Tensor:
    """Return u of every record, (n, d): ``−W (m_c − m̄ + β w_i)``, w_i its whitened feature.

    The first part is the gradient of −½ Σ_c ‖m_c − m̄‖² by the features of a record of class c,
    times the number of the class's records; the second, of −(β/2) Σ_i ‖w_i‖², says what the inputs
    are. Neither depends on what the classes are called, or in whatever order.

    Args:
        shares: (n, K), how much each record is of each class.
        means: (K, d) as ``class_means`` gives them, noisy or not.
        feature_map: (d, d) W, symmetric.
        white: (n, d) w, whitened features.
    """
    # m_c − m̄ by the records' shares, and β times their own feature
    apart = shares @ (means - means.mean(axis=0)) + OF_INPUTS * white
    # W once more: the chain rule through w = W(z − z̄)
    return torch.from_numpy(-(apart @ feature_map)).float()


def weights_of(targets: Any, names: Sequence[str], count: int, *, given: str) -> Tensor:
    """Return how much each record is of each class, (n, K): labels one-hot, probabilities as such.

    Args:
        targets: (n,) class names, or their places where no name is a number; or (n, K)
            numbers >= 0 that are not all 0.
        names: of the classes.
        count: n.
        given: what a ValueError calls the targets.

    Raises:
        ValueError: another shape, a label that is none of the classes, or numbers that are none.
    """
    held = _read(targets, given)
    if held.ndim not in (1, 2) or held.shape[0] != count:
        raise ValueError(
            f"{given}: expected one target for each of {count} records, got shape {held.shape}"
        )
    if held.ndim == 2:
        return _shares(held, len(names), given)
    places: dict[Any, int] = {name: place for place, name in enumerate(names)}
    # "0" among the names would be read as a place and as a name
    if not any(name.isdigit() for name in names):
        # numbers beside names that are none are places in their list
        places.update({place: place for place in range(len(names))})
    found = np.array([_place(value, places) for value in held.tolist()], dtype=np.int64)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        raise ValueError(
            f"{given}: expected one of the {len(names)} classes for every record, got another "
            f"value for record {row}"
        )
    return torch.nn.functional.one_hot(torch.from_numpy(found), len(names)).float()


def _read(targets: Any, given: str) -> Any:
    """Return targets as an array; of a list each as it is, so that none decides another's type."""
    if masked(targets):
        raise ValueError(f"{given}: expected a target of every record, got masked ones")
    if isinstance(targets, Tensor):
        return targets.detach().cpu().numpy()
    if isinstance(targets, (list, tuple)) and not any(np.ndim(one) for one in targets):
        found = np.empty(len(targets), dtype=object)
        found[:] = [one.item() if isinstance(one, np.generic) else one for one in targets]
        return found
    try:
        return np.asarray(targets)
    except ValueError:
        raise ValueError(f"{given}: expected targets of one shape, got several") from None


def _shares(held: Any, classes: int, given: str) -> Tensor:
    if held.shape[1] != classes or held.dtype.kind not in "fiub":
        raise ValueError(
            f"{given}: expected numbers (n, {classes}), one column a class, got shape {held.shape}"
        )
    values = held.astype(np.float64)
    sums = values.sum(axis=1, keepdims=True)
    if not np.isfinite(values).all() or (values < 0).any() or not (sums > 0).all():
        raise ValueError(
            f"{given}: expected finite numbers >= 0, at least one of them above 0 in every record"
        )
    # a record counts once: its shares add up to 1
    return torch.from_numpy(values / sums).float()


def _place(value: Any, places: dict[Any, int]) -> int:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    number = int(value) if whole else value
    return places.get(str(number), places.get(number, -1) if whole else -1)
