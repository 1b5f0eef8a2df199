"""One HTML page per release: the verdict, the figure, the numbers, the assumptions."""

from __future__ import annotations

from tacit.report.page import render_report, write_report
from tacit.report.provenance import Provenance
from tacit.report.record import AttackRecord, ReleaseRecord, read_release
from tacit.report.words import Verdict, verdict

__all__ = [
    "AttackRecord",
    "Provenance",
    "ReleaseRecord",
    "Verdict",
    "read_release",
    "render_report",
    "verdict",
    "write_report",
]
