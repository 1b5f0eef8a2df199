"""What a session keeps between queries: the secret draw and what was spent, in its holder's file.

The file says what was drawn, so it is as secret as the pool: its owner alone may read it. A ledger
holds what was spent and what was released, and nothing of the draw.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit import documents
from tacit._ground.checks import Array, boolean, non_negative
from tacit._ground.files import absolute, read_bytes, write_bytes_atomic
from tacit.documents import Envelope

ENVELOPE = Envelope("tacit.statistic.session", 1)
OWNER_ONLY = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class SessionAnswer:
    """One query of a session.

    Attributes:
        query: what was asked.
        spend: what it was charged, μ or nats.
        release: what may be published of what was released; None until it was drawn, and for ever
            where the process died between the charge and the release.
    """

    query: str
    spend: float
    release: Mapping[str, Any] | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class SessionState:
    """The state of a session; a new value after every step.

    Attributes:
        declared: what was declared when it was opened, JSON-able; a session that is taken up again
            must declare the same.
        drawn: the secret: places of the rows drawn in their groups, or (1,) the candidate; empty
            for a table.
        members: (P, k) the groups; empty where there are none.
        answers: all queries so far.
        bounds: (2, K) of the posterior weights, logarithms; empty where there are no candidates.
        reproducible: whether a seed fixes the randomness.
        counted: number and seal of the reservation by which a ledger counts all answers together;
            None where it counts each.
    """

    declared: Mapping[str, Any]
    drawn: npt.NDArray[np.int64] = field(repr=False)
    members: npt.NDArray[np.int64] = field(repr=False)
    answers: tuple[SessionAnswer, ...]
    bounds: Array = field(repr=False)
    reproducible: bool
    counted: tuple[int, str | None] | None = None

    @property
    def turn(self) -> int:
        """How many queries were charged."""
        return len(self.answers)

    @property
    def steps(self) -> int:
        """How many queries were charged, and how many of them came out."""
        return self.turn + sum(one.release is not None for one in self.answers)

    def charge(self, query: str, spend: float) -> SessionState:
        """Return the state with one more query charged, and not yet drawn."""
        return replace(self, answers=(*self.answers, SessionAnswer(query, spend, None)))

    def answer(self, release: Mapping[str, Any], bounds: Array) -> SessionState:
        """Return the state with the last query's release in it."""
        last = replace(self.answers[-1], release=release)
        return replace(self, answers=(*self.answers[:-1], last), bounds=bounds)

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the file."""
        return ENVELOPE.closed(
            {
                "declared": dict(self.declared),
                "drawn": _pack(self.drawn, "<i8"),
                "members": _pack(self.members, "<i8"),
                "answers": [
                    {"query": one.query, "spend": one.spend, "release": one.release}
                    for one in self.answers
                ],
                "bounds": _pack(self.bounds, "<f8"),
                "reproducible": self.reproducible,
                "counted": None if self.counted is None else list(self.counted),
            }
        )

    def write(self, path: Path) -> None:
        """Write the state, whole, for its owner alone."""
        text = documents.dumps(self.to_dict(), name="session")
        write_bytes_atomic("path", path, text.encode("utf-8"), mode=OWNER_ONLY)


def read_state(path: str | os.PathLike[str]) -> SessionState | None:
    """Return the state in a file, None where there is no file.

    Raises:
        ValueError: a file that others may read, or that is no session.
    """
    target = absolute("path", path)
    if not target.exists():
        return None
    if os.name == "posix" and target.stat().st_mode & OTHERS:
        raise ValueError(
            f"path: expected a file that its owner alone may read, as it says what was drawn, got "
            f"mode {stat.S_IMODE(target.stat().st_mode):o} of {target.name}"
        )
    document = documents.loads(read_bytes("path", target), name="session", source=target.name)
    return ENVELOPE.opened("session", document, _read)


def _read(content: Mapping[str, Any]) -> SessionState:
    # a session that no ledger counts as a whole may have been written without it
    counted = content.get("counted")
    return SessionState(
        declared=dict(content["declared"]),
        drawn=_unpack("drawn", content["drawn"], np.dtype("<i8")),
        members=_unpack("members", content["members"], np.dtype("<i8")),
        answers=tuple(
            SessionAnswer(
                str(one["query"]), non_negative("session.spend", one["spend"]), one["release"]
            )
            for one in content["answers"]
        ),
        bounds=_unpack("bounds", content["bounds"], np.dtype("<f8")),
        reproducible=boolean("session.reproducible", content["reproducible"]),
        counted=None if counted is None else (int(counted[0]), counted[1]),
    )


def _pack(values: npt.NDArray[Any], kind: str) -> dict[str, Any]:
    content = np.ascontiguousarray(values, dtype=kind).tobytes()
    return {"shape": list(values.shape), "base64": base64.b64encode(content).decode("ascii")}


def _unpack(name: str, content: Mapping[str, Any], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    try:
        raw = base64.b64decode(content["base64"], validate=True)
        return np.frombuffer(raw, dtype=kind).reshape(content["shape"]).copy()
    except ValueError:
        raise ValueError(f"session.{name}: expected numbers as they were written") from None
