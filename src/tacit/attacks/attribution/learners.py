"""What learns to read an attribute off a release: a table for codes, two models for states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit._ground.checks import Array, integer, positive
from tacit._ground.numbers import EPS
from tacit.attacks.retrieval.bank import Indices

SHRINKAGES = (1e-3, 1e-2, 1e-1)
PULLS = (0.3, 3.0)
VALIDATION = 0.2
RATE, BATCH = 1e-3, 256

# scores (n, K), larger is likelier
Scores = Callable[[Any], Array]


@dataclass(frozen=True)
class Learner(ABC):
    """An attacker who learns from releases of other prompts whose labels it knows.

    Attributes:
        name: in results.
    """

    name: ClassVar[str]

    @abstractmethod
    def fit(
        self, released: Any, truth: Indices, classes: int, source: np.random.Generator
    ) -> Scores:
        """Return what scores the classes 0 … K − 1 of further releases."""


@dataclass(frozen=True)
class CountTable(Learner):
    """``score(c, l) = count(c, l) + s p(l)``: for codes, smoothed by the commonness of labels.

    Attributes:
        smoothing: s > 0.
    """

    smoothing: float = 1.0

    name = "table of counts"

    def __post_init__(self) -> None:
        positive("smoothing", self.smoothing)

    def fit(
        self, released: Any, truth: Indices, classes: int, source: np.random.Generator
    ) -> Scores:
        common = np.bincount(truth, minlength=classes) / len(truth)
        codes, rows = np.unique(released, return_inverse=True)
        counts = np.zeros((len(codes) + 1, classes))
        counts[:-1] = (
            _by_label(rows.reshape(-1), len(codes)) @ _by_label(truth, classes).T
        ).todense()
        counts += self.smoothing * common

        def score(fresh: Any) -> Array:
            place = np.minimum(np.searchsorted(codes, fresh), len(codes) - 1)
            # the last row is for codes that were never seen
            found: Array = counts[np.where(codes[place] == fresh, place, len(codes))]
            return found

        return score


@dataclass(frozen=True)
class Discriminant(Learner):
    """``score(y, l) = yᵀR⁻¹m_l − ½ m_lᵀR⁻¹m_l + ln p_l``: one Gaussian for each label.

    R is the covariance within labels plus a share of its mean variance, and m_l the mean of a label
    pulled towards the mean of all; both amounts are the best on a fifth that was set aside.
    """

    name = "linear discriminant"

    def fit(
        self, released: Any, truth: Indices, classes: int, source: np.random.Generator
    ) -> Scores:
        order = source.permutation(len(truth))
        kept, rest = np.split(order, [max(1, int(VALIDATION * len(order)))])
        if len(rest) == 0:
            kept = rest = order
        within = _Within(released[rest], truth[rest], classes)
        right = {
            (share, pull): float((scored(pull).argmax(axis=1) == truth[kept]).mean())
            for share in SHRINKAGES
            # single precision tells six shares of right guesses apart
            for scored in [within.against(released[kept], share, np.float32)]
            for pull in PULLS
        }
        share, pull = max(right, key=lambda key: right[key])
        last = _Within(released, truth, classes)
        return lambda fresh: last.against(fresh, share)(pull)


class _Within:
    """Label means and the spectrum of the covariance within labels."""

    def __init__(self, rows: Array, labels: Indices, classes: int) -> None:
        self.counts = np.bincount(labels, minlength=classes).astype(np.float64)
        self.centre = rows.mean(axis=0)
        centred = rows - self.centre
        self.sums = _by_label(labels, classes) @ centred
        means = self.sums / np.maximum(self.counts, 1.0)[:, None]
        inner = centred - means[labels]
        # labels that occur once say nothing of what is within
        degrees = max(1.0, len(rows) - float((self.counts > 0).sum()))
        self.values, self.vectors = np.linalg.eigh(inner.T @ inner / degrees)

    def against(
        self, fresh: Array, share: float, precision: type = np.float64
    ) -> Callable[[float], Array]:
        """Return the scores of fresh rows, (n, L), by how far means are pulled."""
        ridge = share * float(self.values.mean()) + EPS
        root = self.vectors / np.sqrt(np.maximum(self.values, 0.0) + ridge)
        # m_l = s_l/(c_l + pull): the products with the sums s_l serve every pull
        sums = self.sums @ root
        turned = (fresh - self.centre) @ root
        products = turned.astype(precision) @ sums.T.astype(precision)
        norms = (sums**2).sum(axis=1)
        prior = np.log((self.counts + 1e-3) / (self.counts + 1e-3).sum())

        def pulled(pull: float) -> Array:
            weight = 1.0 / (self.counts + pull)
            level = prior - 0.5 * norms * weight**2
            found: Array = products * weight.astype(precision) + level.astype(precision)
            return found

        return pulled


@dataclass(frozen=True)
class Network(Learner):
    """Two layers that learn the label by cross-entropy, stopped where a fifth set aside is best.

    Attributes:
        hidden: width >= 1 of the inner layer.
        epochs: most passes >= 1.
    """

    hidden: int = 256
    epochs: int = 30

    name = "small network"

    def __post_init__(self) -> None:
        integer("hidden", self.hidden, minimum=1)
        integer("epochs", self.epochs, minimum=1)

    def fit(
        self, released: Any, truth: Indices, classes: int, source: np.random.Generator
    ) -> Scores:
        import torch
        from torch import nn

        from tacit._ground.threads import one_thread

        mean, scale = released.mean(axis=0), released.std(axis=0) + EPS
        rows = torch.from_numpy((released - mean) / scale).float()
        targets = torch.from_numpy(truth)
        order = torch.from_numpy(source.permutation(len(truth)))
        held = max(1, int(VALIDATION * len(order)))
        kept, rest = order[:held], order[held:] if len(order) > held else order
        with one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(source.integers(2**31)))
            network = nn.Sequential(
                nn.Linear(rows.shape[1], self.hidden), nn.GELU(), nn.Linear(self.hidden, classes)
            )
            steps = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-2)
            best, weights = -1.0, {k: v.clone() for k, v in network.state_dict().items()}
            for _ in range(self.epochs):
                for part in torch.split(rest[torch.randperm(len(rest))], BATCH):
                    loss = nn.functional.cross_entropy(network(rows[part]), targets[part])
                    steps.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    steps.step()
                with torch.no_grad():
                    right = float((network(rows[kept]).argmax(1) == targets[kept]).double().mean())
                if right > best:
                    best = right
                    weights = {k: v.clone() for k, v in network.state_dict().items()}
            network.load_state_dict(weights)

        def score(fresh: Any) -> Array:
            with torch.no_grad():
                inputs = torch.from_numpy((fresh - mean) / scale).float()
                found: Array = network(inputs).double().numpy()
            return found

        return score


def _by_label(labels: Indices, count: int) -> Any:
    """Return the matrix whose product with rows is their sum by label, (count, n)."""
    from scipy import sparse

    places = (labels, np.arange(len(labels)))
    return sparse.csr_array((np.ones(len(labels)), places), shape=(count, len(labels)))
