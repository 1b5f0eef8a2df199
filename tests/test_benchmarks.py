"""The page of figures says what was measured."""

import json

from benchmarks.measured import FIGURES, KEPT, PAGE, page


def test_the_page_is_what_its_command_writes_of_what_is_kept():
    kept = json.loads(KEPT.read_text("utf-8"))
    assert set(kept) <= set(FIGURES)
    assert PAGE.read_text("utf-8") == page(kept)
