"""Learning to read an attribute of prompts off releases of other prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, in_interval, matrix, plain
from tacit.attacks.attribution.learners import CountTable, Discriminant, Learner
from tacit.attacks.exact.channels import as_array
from tacit.attacks.exact.posterior import standing
from tacit.attacks.exact.result import GuessAttack
from tacit.attacks.retrieval.bank import Indices


@dataclass(frozen=True, eq=False)
class Labelled:
    """Releases of some prompts and one attribute of each.

    Attributes:
        prompts: the prompts, as texts or tokens, (n, T) or a list; by them sets are told apart.
        released: codes (n,) or states (n, d).
        labels: (n,), numbers or words.
    """

    prompts: Any = field(repr=False)
    released: ArrayLike = field(repr=False)
    labels: ArrayLike = field(repr=False)


def attributes(
    attacked: Labelled,
    calibration: Labelled,
    *,
    learner: Learner | None = None,
    name: str = "the attribute",
    leakage_factor: float | None = None,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> GuessAttack:
    """Guess an attribute of prompts from their releases, learnt on releases of other prompts.

    The attacker needs neither the mechanism nor a bank: it has releases of its own prompts with
    their labels. The blind attacker names the label that is commonest among these.

    Args:
        attacked: what is attacked.
        calibration: what is learnt from; no prompt may stand in both.
        learner: how; a table of counts for codes and a linear discriminant for states when None.
        name: of the attribute, in results.
        leakage_factor: of the release, where one is certified, to stand beside the result.
        confidence: coverage of each interval, in (0, 1).
        rng: source of what the learner draws.

    Returns:
        The attack. A label that does not occur in the calibration is never guessed: ``covered`` is
        the share of prompts with a label that does.

    Raises:
        ValueError: shapes that do not fit, or a prompt that is learnt from and attacked.

    Example:
        >>> codes = np.array([0, 0, 1, 1])
        >>> mine = Labelled(["a", "b", "c", "d"], codes, ["x", "x", "y", "y"])
        >>> theirs = Labelled(["e", "f"], codes[1:3], ["x", "y"])
        >>> attributes(theirs, mine).success
        1.0
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    for which, given in (("attacked", attacked), ("calibration", calibration)):
        if not isinstance(given, Labelled):
            raise ValueError(f"{which}: expected a Labelled, got {type(given).__name__}")
    own, known = _keys("attacked", attacked.prompts), _keys("calibration", calibration.prompts)
    shared = len(set(own) & set(known))
    if shared:
        raise ValueError(
            f"calibration: expected prompts other than those attacked, got {shared} of them"
        )
    fresh = _released("attacked", attacked, len(own))
    seen = _released("calibration", calibration, len(known))
    if fresh.shape[1:] != seen.shape[1:]:
        raise ValueError(
            f"calibration: expected releases of shape {fresh.shape[1:]} each, got {seen.shape[1:]}"
        )
    values = _labels("calibration", calibration.labels, len(known))
    wanted = _labels("attacked", attacked.labels, len(own))
    classes, labels = np.unique(values, return_inverse=True)
    place = np.minimum(np.searchsorted(classes, wanted), len(classes) - 1)
    truth: Indices = np.where(classes[place] == wanted, place, -1).astype(np.int64)
    if learner is None:
        learner = CountTable() if seen.ndim == 1 else Discriminant()
    if not isinstance(learner, Learner) or (seen.ndim == 1) != isinstance(learner, CountTable):
        raise ValueError(
            f"learner: expected one for {'codes' if seen.ndim == 1 else 'states'}, got "
            f"{type(learner).__name__}"
        )
    labels = labels.reshape(-1).astype(np.int64)
    scores = learner.fit(seen, labels, len(classes), generator(rng))(fresh)
    counts = np.bincount(labels, minlength=len(classes))
    # one of the commonest labels by lot, whatever was released
    first = counts == counts.max()
    blind: Array = np.where(truth >= 0, first[truth], False) / first.sum()
    hits, better, tied = standing(scores, truth)
    return GuessAttack.of(
        hits=hits, blind=blind, better=better, tied=tied, confidence=level, task=name,
        attacker=learner.name, knows=f"labels of {len(known):,} other prompts",
        candidates=len(classes),
        covered=float((truth >= 0).mean()), leakage_factor=leakage_factor,
    )  # fmt: skip


def _keys(name: str, prompts: Any) -> list[Any]:
    """One value per prompt that only the same prompt has."""
    table = plain(prompts)
    if (
        isinstance(table, np.ndarray)
        and table.ndim == 2
        and table.dtype.kind in "iu"
        and table.size
    ):
        tokens = np.ascontiguousarray(table, dtype=np.int64)
        return list(tokens.view(np.dtype((np.void, tokens[0].nbytes)))[:, 0].tolist())
    try:
        listed = [] if isinstance(prompts, str) else list(table)
        if listed and all(isinstance(prompt, str) for prompt in listed):
            return listed
        rows = [np.asarray(plain(row)) for row in listed]
    except (TypeError, ValueError):
        rows = []
    if not rows:
        raise ValueError(f"{name}: expected a list of prompts, got {type(prompts).__name__}")
    if any(row.ndim != 1 or row.dtype.kind not in "iu" for row in rows):
        raise ValueError(f"{name}: expected prompts as texts or tokens, got other values")
    return [row.astype(np.int64).tobytes() for row in rows]


def _released(name: str, given: Labelled, count: int) -> Any:
    found = as_array(f"{name}.released", given.released)
    if found.ndim == 2:
        found = matrix(f"{name}.released", found)
    elif found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(
            f"{name}.released: expected codes (n,) or states (n, d), got {found.dtype} of shape "
            f"{found.shape}"
        )
    if len(found) != count:
        raise ValueError(f"{name}.released: expected {count} releases, got {len(found)}")
    return found


def _labels(name: str, labels: Any, count: int) -> Any:
    found = as_array(f"{name}.labels", labels)
    if found.shape != (count,):
        raise ValueError(f"{name}.labels: expected {count} labels, got shape {found.shape}")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"{name}.labels: expected labels, got NaN or infinity")
    return found.astype(str) if found.dtype.kind in "OU" else found
