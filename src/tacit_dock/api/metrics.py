"""What an operator watches, in Prometheus's text format; nothing of a record is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
# Upper ends of the bins of answering times, in seconds.
BINS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER = "other"
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class Metrics:
    """Counts since the server started, made by one event loop."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str, int]] = Counter()
        self._bins: Counter[float] = Counter()
        self._seconds, self._count = 0.0, 0
        self.received, self.sent = 0, 0

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request that ended; a path is that of a rule, never what was asked for."""
        self._answers[method if method in METHODS else OTHER, path, status] += 1
        self._seconds += seconds
        self._count += 1
        for end in BINS:
            self._bins[end] += seconds <= end

    def text(self, now: Mapping[str, float]) -> str:
        """Return all of it.

        Args:
            now: numbers as they are at the moment, by name.
        """
        lines = [*_head("requests_total", "counter", "Requests that were answered.")]
        for (method, path, status), count in sorted(self._answers.items()):
            labels = f'method="{method}",path="{path}",status="{status}"'
            lines.append(f"tacit_dock_requests_total{{{labels}}} {count}")
        lines += _head("seconds", "histogram", "From a request's head to its answer's end.")
        lines += [f'tacit_dock_seconds_bucket{{le="{end:g}"}} {self._bins[end]}' for end in BINS]
        lines.append(f'tacit_dock_seconds_bucket{{le="+Inf"}} {self._count}')
        lines.append(f"tacit_dock_seconds_sum {self._seconds:.6f}")
        lines.append(f"tacit_dock_seconds_count {self._count}")
        for name, value, told in (
            ("received_bytes_total", self.received, "Bytes of bodies that arrived."),
            ("sent_bytes_total", self.sent, "Bytes of bodies that were sent."),
        ):
            lines += [*_head(name, "counter", told), f"tacit_dock_{name} {value}"]
        for name, number in now.items():
            lines += [*_head(name, "gauge", TOLD[name]), f"tacit_dock_{name} {number:g}"]
        return "\n".join(lines) + "\n"


TOLD = {
    "places": "Requests worked on at a time, at most.",
    "places_taken": "Requests worked on.",
    "arriving": "Bodies under way.",
    "arriving_bytes": "Bytes of them that arrived.",
    "index_learnwares": "Learnwares that searches compare.",
    "index_spaces": "Spaces of them.",
    "index_bytes": "Bytes of their vectors and bits.",
    "index_unreadable": "Contents that could not be read.",
    "free_bytes": "Bytes free on the disk of the contents.",
}


def _head(name: str, kind: str, told: str) -> Iterable[str]:
    return (f"# HELP tacit_dock_{name} {told}", f"# TYPE tacit_dock_{name} {kind}")
