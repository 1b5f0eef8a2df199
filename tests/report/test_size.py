"""Pages stay light: no report is above 300 kB, whatever it is of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.releases import Release
from tacit.report import render_report
from tacit.report.page import LARGEST_PAGE
from tests.releases.files import MAKERS, real


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_is_light(name: str) -> None:
    assert len(render_report(real(name)).encode()) <= LARGEST_PAGE == 300_000


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
    assert len(page.encode()) <= LARGEST_PAGE
    assert "leaves out the JSON of the release" in page
    assert "number 0" in page
