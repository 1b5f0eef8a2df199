"""A release prints itself, in a notebook too, and becomes a data frame or a figure."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from tacit import Effort, Rows, privatize
from tacit.releases import Release, showing
from tests.releases.files import MAKERS, real

pytest.importorskip("torch")
pytest.importorskip("transformers")
SHORT = 1200


@pytest.fixture(scope="module")
def mean():
    rows = np.random.default_rng(5).normal(size=(60, 2))
    return privatize("mean", rows, Rows(success=0.6), Effort(trials=0), columns=["age", "<b>x</b>"])


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_prints_itself_and_is_the_same_after_it_was_stored(name, tmp_path):
    release = Release.from_dict(real(name))
    told = repr(release)
    assert len(told) < SHORT
    assert release.kind in told
    for number in list(release.numbers or ())[: showing.PRINTED]:
        assert number.name[:30] in told
    assert "array(" not in told
    if release.headline is not None and release.leakage is None:
        shown = float(re.search(r"([0-9.]+)%: the most often", told)[1]) / 100
        # rounded up: never stronger than what is certified
        assert shown >= release.success(release.headline) - 1e-12
    markup = release._repr_html_()
    assert "<script" not in markup
    assert markup.count("<") == markup.count(">")
    for again in (Release.from_dict(release.to_dict()), pickle.loads(pickle.dumps(release))):
        assert again == release
        assert repr(again) == told
    assert copy.deepcopy(release) == release


def test_what_is_printed_is_what_is_released(mean):
    lines = repr(mean).splitlines()
    assert lines[0].startswith("<Release statistic-rows: ")
    for line, number in zip(lines[1:3], mean.numbers, strict=True):
        name, value, half, _ = re.fullmatch(
            r"  (.*) = (.*?) ± ([^ ]*)( \(with sampling .*\))?", line
        ).groups()
        assert name == number.name
        assert float(value.replace("−", "-")) == pytest.approx(number.value, abs=number.error)
        assert float(half) == pytest.approx(1.96 * number.error, rel=0.06)
    assert "95% half-width" in lines[3]
    assert "<b>x</b>" not in mean._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in mean._repr_html_()


def test_a_seeded_release_says_that_it_is_void(mean):
    void = replace(mean, reproducible=True, seed=3)
    assert "No guarantee: " in repr(void)
    assert "the most" not in repr(void)
    assert "No guarantee: " in void._repr_html_()
    nothing = replace(mean, guarantees=())
    assert "nothing is proven" in repr(nothing)


@pytest.mark.parametrize("kind", [None, "pandas", "polars"])
def test_a_frame_has_the_numbers_and_their_intervals(mean, kind):
    frame = mean.to_frame(kind)
    assert type(frame).__module__.startswith(kind or "pandas")
    assert list(frame["name"]) == list(mean.names)
    assert list(frame["value"]) == mean.values.tolist()
    np.testing.assert_array_equal(np.column_stack([frame["low"], frame["high"]]), mean.intervals())
    wide = mean.intervals(sampling=True)[:, 1] - mean.values
    np.testing.assert_allclose(list(frame["half_width_with_sampling"]), wide)


def test_a_frame_that_cannot_be_made_says_why(mean, monkeypatch):
    with pytest.raises(ValueError, match=r"^kind: expected one of .*pandas"):
        mean.to_frame("arrow")
    monkeypatch.setattr(showing, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install polars"):
        mean.to_frame("polars")
    with pytest.raises(ValueError, match=r"^numbers: expected a release of numbers"):
        replace(mean, numbers=None).to_frame()


def test_a_figure_takes_axes_and_gives_them_back(mean):
    from matplotlib.figure import Figure

    own = mean.plot()
    given = Figure().add_subplot()
    assert mean.plot(given) is given
    for axes in (own, given):
        points = axes.lines[0].get_data()
        np.testing.assert_array_equal(points[0], mean.values)
        assert [text.get_text() for text in axes.get_yticklabels()] == list(mean.names)


def test_a_figure_without_matplotlib_says_what_brings_it(mean, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'tacit-privacy\[plot\]'"):
        mean.plot()


def test_nothing_else_is_needed_for_a_report(mean, tmp_path):
    from tacit.report import write_report

    path = write_report(mean, tmp_path / "page.html")
    assert b"age" in path.read_bytes()
