"""What the shell is offered, asked through the protocol of its completion."""

import os

import pytest

from tests.forks import forked_tacit


def offered(line, place, folder):
    """Return what ``tacit`` tells bash behind a line that is not whole."""
    asked = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(place)}
    return forked_tacit(cwd=folder, before=lambda: os.environ.update(asked)).out.split()


@pytest.mark.parametrize(
    ("line", "place", "some"),
    [
        ("tacit gate --max-n", 2, ["--max-nats"]),
        ("tacit classifier --method e", 3, ["exact"]),
        ("tacit statistic people.csv --query med", 4, ["median"]),
        ("tacit statistic people.csv --columns age,in", 4, ["age,income"]),
        ("tacit classifier people.csv --label a", 4, ["age"]),
        ("tacit classifier nothing.csv --label a", 4, []),
    ],
)
def test_the_shell_is_offered_options_words_and_columns(line, place, some, tmp_path):
    (tmp_path / "people.csv").write_text("age,income\n31,40000\n")
    assert offered(line, place, tmp_path) == some
