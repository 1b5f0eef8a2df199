"""Pages stay light: no report is above 300 kB, whatever it is of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit.releases import Release
from tacit.report import render_report
from tacit.report.page import LARGEST_PAGE
from tests.releases.files import real


def test_a_release_of_many_numbers_leaves_its_json_out() -> None:
    release = Release.from_dict(real("rows"))
    held = release.numbers
    assert held is not None
    count = 20_000
    many = replace(
        held, names=tuple(f"number {n}" for n in range(count)), values=np.arange(float(count)),
        errors=np.ones(count), sampling=None, limits=None,
    )  # fmt: skip
    page = render_report(replace(release, numbers=many))
    assert len(page.encode()) <= LARGEST_PAGE == 300_000
    assert "leaves out the JSON of the release" in page
    assert "number 0" in page
