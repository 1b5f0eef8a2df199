"""What the page of a specification shows beside what all releases show."""

from __future__ import annotations

from markupsafe import Markup

from tacit.pages.parts import Section, Sections, table
from tacit.releases import Release
from tacit.specifications.release import CertifiedSpecification


def sections(release: Release[CertifiedSpecification]) -> Sections:
    """Return what was described, and what it may be compared with."""
    details = release.details
    made, space = details.specification, details.specification.space
    classes = ", ".join(made.classes) or "not told"
    described = [
        ["describes", "what a task asks for" if made.kind == "task" else "what a model can do"],
        ["records", f"{details.records:,}"],
        ["classes", f"{details.classes:,}: {classes}"],
        *([["pictures", made.inputs]] if made.inputs else []),
        ["steps", "one" if details.schedule.single else details.schedule.sentence],
        ["file", made.revision],
    ]
    compared = [
        ["backbone", f"{details.backbone}, {space.backbone[:23]}…"],
        ["layers", ", ".join(space.layers)],
        ["numbers", f"{space.size:,}"],
        ["A", space.factor],
        ["objective", space.output],
        ["subspace", space.subspace[:23]],
    ]
    return Sections(
        parts=(
            Section("What is described", _pairs("what is described", described)),
            Section("What it may be compared with", _pairs("its space", compared)),
        )
    )


def _pairs(name: str, rows: list[list[str]]) -> Markup:
    return table(name, (), rows)
