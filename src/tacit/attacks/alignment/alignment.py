"""What is known of a secret rotation, as maps of states and of releases into one space."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit._ground.checks import Array, integer, matrix
from tacit._ground.frozen import array_value

# how far columns may be from orthonormal
ORTHONORMAL = 1e-8


@array_value()
class Alignment:
    """Where a secret rotation ``y = Q h`` takes r orthonormal directions: ``Q a_j = b_j``.

    A state and its release agree in ``(Aᵀh, ‖h − A Aᵀh‖)`` and ``(Bᵀy, ‖y − B Bᵀy‖)``. For a Q
    drawn uniformly among those that take A to B the rest of the release is uniform on a sphere: the
    exact posterior keeps the candidates that are equal in these r + 1 numbers, as likely as they
    were. Of one release nobody who knows no more of Q makes more.

    Args:
        states: A, (d, r) with orthonormal columns.
        releases: B, (d, r) likewise.
        game: what its owner knows, in a few words.

    Raises:
        ValueError: shapes that differ, or columns that are not orthonormal.

    Example:
        >>> turned = Alignment(np.eye(3)[:, :1], np.eye(3)[:, 1:2], "one direction")
        >>> state, release = np.array([[2.0, 3.0, 4.0]]), np.array([[5.0, 2.0, 0.0]])
        >>> turned.of_states(state).tolist(), turned.of_releases(release).tolist()
        ([[2.0, 5.0]], [[2.0, 5.0]])

    Source: conditional law of a Haar matrix given some of its columns (Eaton 1983, ch. 7).
    """

    states: Array
    releases: Array
    game: str

    def __post_init__(self) -> None:
        shapes = tuple(np.shape(each) for each in (self.states, self.releases))
        if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][1] > shapes[0][0]:
            raise ValueError(f"releases: expected (d, r) as states, r <= d, got {shapes}")
        for name in ("states", "releases"):
            frame = np.asarray(getattr(self, name), dtype=np.float64)
            error = np.abs(frame.T @ frame - np.eye(frame.shape[1])).max(initial=0.0)
            if not error <= ORTHONORMAL:
                raise ValueError(f"{name}: expected orthonormal columns, got an error of {error}")
            object.__setattr__(self, name, frame)

    @classmethod
    def blind(cls, dim: int) -> Alignment:
        """Return what is known without a pair and without a population: norms stay as they are."""
        none = np.zeros((integer("dim", dim, minimum=1), 0))
        return cls(none, none, "no pair")

    @property
    def dim(self) -> int:
        """d, numbers in a state."""
        return int(self.states.shape[0])

    @property
    def rank(self) -> int:
        """r, directions whose image is known."""
        return int(self.states.shape[1])

    @property
    def width(self) -> int:
        """Numbers that are compared: d where all of Q is known, else r + 1."""
        return self.rank + (self.rank < self.dim)

    def of_states(self, states: Any) -> Array:
        """Return what is compared of states (m, d), (m, r + 1) or (m, d)."""
        return self._seen("states", states, self.states)

    def of_releases(self, released: Any) -> Array:
        """Return the same of releases (n, d)."""
        return self._seen("released", released, self.releases)

    def undo(self, released: Any) -> Array:
        """Return ``A Bᵀ y``, the known part of releases (n, d) in coordinates of states."""
        found: Array = matrix("released", released, columns=self.dim) @ self.releases
        return found @ self.states.T

    def _seen(self, name: str, values: Any, frame: Array) -> Array:
        rows = matrix(name, values, columns=self.dim)
        known = rows @ frame
        if self.rank == self.dim:
            return known
        rest = np.linalg.norm(rows - known @ frame.T, axis=1, keepdims=True)
        return np.hstack([known, rest])
