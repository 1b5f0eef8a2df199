"""The command line: the three promises, their certificate, and the comparison."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tacit import load
from tacit.ledger import Ledger
from tacit.statistics import fingerprint
from tacit.statistics.promises import PROMISES
from tests.cli_runner import QUICK, Tacit, refused, write_table

HOLDERS = ("design", "simulations", "most_exposed", "table_rows", "output_variance")
BOUNDS = ("--bounds", "a=-4:4,b=-20:20")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_table(tmp_path)


def mean(data: Path, *more: object) -> tuple[object, ...]:
    return ("statistic", data, "--query", "mean", "--columns", "a,b", *more)


def test_every_promise_that_is_kept_is_a_word_of_the_command(data: Path, tacit: Tacit) -> None:
    words = ", ".join(repr(promise.word) for promise in PROMISES)
    refused(tacit(*mean(data, "--protect", "nobody", "--success", "0.6")), f"one of {words}")


def test_bounds_add_up_over_several_flags(data: Path, tacit: Tacit) -> None:
    asked = mean(data, "--protect", "table", "--success", "0.6", "--dry-run")
    together = tacit(*asked, "--bounds", "a=-4:4,b=-20:20")
    apart = tacit(*asked, "--bounds", "a=-4:4", "--bounds", "b=-20:20")
    assert together.code == apart.code == 0, apart.err
    assert together.out == apart.out


def test_a_dry_run_with_a_seed_is_void(data: Path, tacit: Tacit) -> None:
    done = tacit(*mean(data, "--success", "0.6", "--dry-run", "--insecure-seed", "1"))
    assert done.code == 0, done.err
    told = [row for row in done.out.splitlines() if row.startswith("guarantee")]
    assert told
    assert all(row.split()[1] == "void:" for row in told)
    assert "nothing to publish" in done.out


def test_rows_are_the_promise_that_is_not_named(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "o.json"
    done = tacit(*mean(data, "--success", "0.6", "--json", out, "--ledger", tmp_path / "l.db"))
    assert done.code == 0, done.err
    assert "which row of each pair" in done.out
    release = load(out)
    assert release.kind == "statistic-rows"
    (entry,) = Ledger(tmp_path / "l.db").entries(fingerprint(data))
    assert entry.guarantee == release.guarantees[1]
    assert entry.record is not None
    assert entry.record["numbers"] == release.public().to_dict()["numbers"]
    assert tacit("gate", out, "--max-success", "0.6").code == 0
    assert tacit("gate", out, "--max-success", "0.59").code == 1
    assert "statistic-rows" in tacit("show", out).out


@pytest.mark.parametrize(
    ("strength", "words"),
    [
        (("--mu", "0.5"), "μ = 0.5,"),
        (("--epsilon", "1", "--delta", "1e-5"), "μ = 0.26"),
        (("--rho", "0.125"), "μ = 0.5,"),
    ],
)
@pytest.mark.parametrize("promise", [("rows",), ("table", *BOUNDS)], ids=lambda value: value[0])
def test_every_strength_fits_rows_and_table(
    data: Path, tacit: Tacit, promise: tuple[str, ...], strength: tuple[str, ...], words: str
) -> None:
    done = tacit(*mean(data, "--protect", *promise, *strength, "--no-attack", "--dry-run"))
    assert done.code == 0, done.err
    done = tacit(*mean(data, "--protect", *promise, *strength, "--no-attack"))
    assert words in done.out


def test_every_number_has_its_intervals(data: Path, tacit: Tacit) -> None:
    told = tacit(*mean(data, "--success", "0.6", "--no-attack", "--json", "-"))
    for number in load(json.loads(told.out)).numbers:
        low, high = number.interval()
        first, last = number.interval(sampling=True)
        assert (high - number.value) / number.error == pytest.approx(1.959964, rel=1e-5)
        assert first < low < number.value < high < last
        assert f"{number.name} = " in told.err
    assert told.err.count("with sampling ±") == 2
    table = tacit(
        *mean(data, "--protect", "table", *BOUNDS, "--success", "0.6", "--no-attack", "--json", "-")
    )
    assert json.loads(table.out)["numbers"]["sampling"] is None
    assert "with sampling" not in table.err


def test_pairs_along_a_column_that_the_query_does_not_use(data: Path, tacit: Tacit) -> None:
    done = tacit(*mean(data, "--success", "0.6", "--no-attack", "--pairs", "column:c"))
    assert done.code == 0, done.err
    assert "along column c" in done.out
    assert "mean[c]" not in done.out
    thirds = tacit(*mean(data, "--success", "0.7", "--no-attack", "--sampling-rate", "1/3"))
    assert "one row of each of 13 groups of 3" in thirds.out
    assert "1 row is in no group" in thirds.out


def test_a_certificate_holds_nothing_for_the_holder_alone(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    page, out = tmp_path / "c.html", tmp_path / "o.json"
    for protect in (("rows",), ("draw",), ("table", *BOUNDS)):
        command = mean(
            data,
            "--success",
            "0.6",
            "--protect",
            *protect,
            *(QUICK if protect == ("draw",) else ()),
        )
        done = tacit(*command, "--certificate", page, "--json", out, "--force")
        assert done.code == 0, done.err
        text = page.read_text()
        content = json.loads(out.read_text())
        embedded = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.S)
        assert embedded is not None
        published = json.loads(embedded.group(1))
        assert published == load(content).public().to_dict()
        assert not published["attacks"]
        assert not published["remarks"]
        assert published["provenance"] is None
        assert all(published["details"].get(name) is None for name in HOLDERS)
        assert content["provenance"]["data_fingerprint"] not in text
        assert all(name in text for name in content["numbers"]["names"])
        assert "attack" not in text.partition("<script")[0].partition("</style>")[2].replace(
            "attacker", ""
        )
    refused(tacit(*command, "--certificate", page), "--certificate", "--force")


def test_a_table_of_unknown_size_keeps_its_size_off_the_certificate(
    tmp_path: Path, tacit: Tacit
) -> None:
    page, data = tmp_path / "c.html", write_table(tmp_path, 21_347)
    done = tacit(
        *mean(data, "--success", "0.6", "--protect", "table", *BOUNDS, "--certificate", page)
    )
    assert done.code == 0, done.err
    assert not re.search("21,?347", page.read_text().partition("</style>")[2])


def test_levels_are_declared_and_never_looked_up(tmp_path: Path, tacit: Tacit) -> None:
    path = tmp_path / "people.csv"
    path.write_text("city,kind\n" + "Oslo,1\nBern,2\nBern,1\n" * 10)
    command = ("statistic", path, "--protect", "table", "--success", "0.6", "--no-attack")
    query = ("--query", "histogram:city")
    refused(tacit(*command, *query, "--category", "city"), "categories", "declared", "'city'")
    done = tacit(*command, *query, "--category", "city=Bern,Oslo,Paris")
    assert done.code == 0, done.err
    assert len(re.findall(r"count\[city=\w+\] = ", done.out)) == 3
    kinds = ("--columns", "kind", "--query", "histogram:kind")
    refused(tacit(*command, *kinds), "levels", "'kind'")
    done = tacit(*command, *kinds, "--levels", "kind=1,2,3")
    assert len(re.findall(r"count\[kind=\d\] = ", done.out)) == 3


def test_a_row_of_nothing_decides_nothing_where_the_table_is_hidden(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    gap = tmp_path / "gap.csv"
    whole = data.read_text()
    fields = whole.splitlines()[-1].split(",")[1:]
    gap.write_text(whole + "".join(f"{','.join([one, *fields])}\n" for one in ("NA", "x")))
    command = mean(gap, "--success", "0.6")
    refused(tacit(*command), "data:", "expected")
    for adjacency in ("replace", "add-remove"):
        done = tacit(
            *command, "--protect", "table", *BOUNDS, "--no-attack", "--adjacency", adjacency
        )
        assert done.code == 0, done.err
    command = mean(gap, "--success", "0.6", "--protect", "table", *BOUNDS)
    refused(tacit(*command, "--missing", "refuse"), "expected a number")


def test_a_budget_of_another_kind_is_refused_before_the_work(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    ledger = tmp_path / "l.db"
    to = ("--ledger", ledger, "--secret", "s")
    assert tacit("ledger", "budget", *to, "--mu", "0.6").code == 0
    draw = mean(data, "--success", "0.6", "--protect", "draw", *to)
    refused(tacit(*draw), "'information'", "μ = 0.6", "nothing was drawn")
    kmeans = ("statistic", data, "--columns", "a", "--query", "kmeans:1", "--success", "0.6", *to)
    refused(tacit(*kmeans), "μ = 0.6", "nothing was drawn")
    rows = mean(data, "--mu", "0.5", "--no-attack", *to)
    assert tacit(*rows).code == 0
    refused(tacit(*rows), "asks for", "nothing was drawn")
    rest = tacit(*mean(data, "--mu", "0.3", "--no-attack", *to))
    assert rest.code == 0, rest.err
    spent = tacit("ledger", "show", "--ledger", ledger, "--secret", "s")
    assert "which row of one pair was drawn" in spent.out


def test_an_edited_release_does_not_pass(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "o.json"
    assert tacit(*mean(data, "--success", "0.6", "--json", out, "--no-attack")).code == 0
    content = json.loads(out.read_text())
    content["guarantees"][0]["success"] = 0.51
    out.write_text(json.dumps(content))
    refused(tacit("gate", out, "--max-success", "0.55"), "contradicts itself", "success")


def test_the_promises_side_by_side(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    page, out = tmp_path / "c.html", tmp_path / "c.json"
    command = ("statistic", "compare", data, "--query", "mean", "--columns", "a,b")
    command += ("--success", "0.6", "--simulations", "60", "--workers", "1")
    done = tacit(*command, *BOUNDS, "--report", page, "--json", out)
    assert done.code == 0, done.err
    content = json.loads(out.read_text())
    found = {result["name"]: result for result in content["results"]}
    assert list(found) == ["rows matched", "rows random", "draw", "table"]
    assert found["rows matched"]["noise"] < found["rows random"]["noise"] < found["draw"]["noise"]
    for result in found.values():
        names = [attack["name"] for attack in result["attacks"]]
        assert sum(name.startswith("LiRA") for name in names) == 1
        assert len(names) == 2
        assert result["success"] <= 0.6 + 1e-9
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "Nothing was released" in text
    without = tacit(*command, "--no-attack")
    assert "no promise about the table" in without.out


def test_a_file_named_compare_is_a_file(
    data: Path, tmp_path: Path, tacit: Tacit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data.rename(tmp_path / "compare")
    rest = ("--query", "mean", "--columns", "a", "--success", "0.6", "--dry-run")
    assert tacit("statistic", "./compare", *rest).code == 0
    last = tacit("statistic", *rest, "compare")
    assert last.code == 0, last.err
    refused(tacit("statistic", "compare"), "--query")


def test_what_a_terminal_obeys_is_not_printed(tmp_path: Path, tacit: Tacit) -> None:
    path = tmp_path / "t.csv"
    names = "\x1b]0;owned\x07age,\x1b[2Jpay\u202e"
    path.write_text(names + "\n" + "".join(f"{i},{i * i}\n" for i in range(40)))
    done = tacit("statistic", path, "--query", "mean", "--success", "0.7", *QUICK)
    assert done.code == 0, done.err
    assert "age" in done.out
    wrong = tacit("statistic", path, "--query", "mean", "--success", "0.7", "--columns", "\x1b[2Jx")
    assert wrong.code == 2
    for text in (done.out, done.err, wrong.out, wrong.err):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_a_file_that_contradicts_itself_is_not_shown(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    out = tmp_path / "o.json"
    assert tacit(*mean(data, "--success", "0.6", "--no-attack", "--json", out)).code == 0
    content = json.loads(out.read_text())
    content["details"]["noise_power"] *= 2.0
    out.write_text(json.dumps(content))
    refused(tacit("show", out), "contradicts itself")
    refused(tacit("gate", out, "--max-success", "0.6"), "contradicts itself")


def test_the_name_of_a_file_or_a_secret_is_no_line_of_what_is_told(tmp_path, tacit):
    """A line that says of another file that it holds is none that anybody checked."""
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "\n".join(map(str, range(8))) + "\n")
    evil = tmp_path / "one.json\nother.json: holds"
    paid = ("--ledger", tmp_path / "l.db", "--secret", "shop\nleft  all", "--no-budget")
    flags = ("--query", "mean", "--success", "0.7", "--no-attack", "--json", evil, *paid)
    assert tacit("statistic", path, *flags).code == 0
    for command in (
        ("verify", evil),
        ("gate", evil, tmp_path / "none.json", "--max-success", "0.7"),
        ("ledger", "show", "--ledger", tmp_path / "l.db"),
    ):
        told = tacit(*command).out.splitlines()
        assert told
        assert not [line for line in told if line.startswith(("other.json", "left  all"))]
