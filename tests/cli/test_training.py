"""``tacit training``: from a table to a model that no source moves beyond its budget."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from tacit.cli.training.tabular import problem_of
from tacit.ledger import Ledger
from tacit.statistics import read_table
from tests.cli_runner import refused

QUICK = ("--batch", 30, "--no-influence", "--trials", 4)


@pytest.fixture
def mills(tmp_path):
    source = np.random.default_rng(0)
    path = tmp_path / "mills.csv"
    rows = ["mill,kind,length,width"]
    for i in range(80):
        length, width = source.normal(size=2)
        rows.append(f"mill {i % 4},{'long' if length > 0 else 'round'},{length:.4f},{width:.4f}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


DECLARED = (
    *("--category", "mill=mill 0,mill 1,mill 2,mill 3", "--category", "kind=long,round"),
    *("--bounds", "length=-3:3,width=-3:3"),
)


def asked(data, *more):
    return ("training", "contribution", data, "--source", "mill", "--label", "kind", *QUICK, *more)


def test_a_model_is_trained_stored_shown_and_gated(mills, tmp_path, tacit):
    out, page, book = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "book.db"
    saved = tmp_path / "model.safetensors"
    done = tacit(
        *asked(mills, "--budget", "mill 2=0.5", "--json", out, "--report", page, "--out", saved),
        *(*DECLARED, "--ledger", book, "--secret", "mills"),
    )
    assert done.code == 0, done.err
    content = json.loads(out.read_text(encoding="utf-8"))["details"]
    assert content["references"] == [f"without mill {i}" for i in range(4)]
    assert content["squared"][2] < content["squared"][0]
    assert max(Ledger(book).spent("mills").gaussian.values()) >= content["squared"][0] ** 0.5
    with safe_open(saved, "np") as model:
        assert set(model.keys()) == {"weight", "bias"}
        assert [name for name, _, _ in json.loads(model.metadata()["features"])] == [
            "length",
            "width",
        ]
    assert "no guarantee of privacy" in page.read_text(encoding="utf-8")
    assert any("held-out accuracy" in row for row in tacit("show", out).out.splitlines())
    assert tacit("gate", out, "--max-success", "0.9").code == 0
    assert tacit("gate", out, "--max-success", "0.5").code == 1


def test_a_dry_run_tells_the_guarantee_and_writes_nothing(mills, tmp_path, tacit):
    done = tacit(*asked(mills, "--dry-run", "--checkpoint", tmp_path / "run"))
    assert done.code == 0, done.err
    assert "with the noise of this run either way" in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mills.csv"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--source", "farm"), "farm"),
        (("--label", "mill", "--category", "kind"), "--label: expected another column"),
        (("--budget", "mill 9=2"), "--budget: expected SOURCE=EPSILON"),
        (("--budget", "mill 1=two"), "--budget: expected a number"),
        (("--epsilon", "-1"), "epsilon"),
        (("--epsilon", "nan"), "epsilon"),
        (("--learning-rate", "0"), "--learning-rate: expected"),
        (("--held-out-share", "1.5"), "--held-out-share"),
        (("--noise", "loud"), "noise: expected"),
        (("--ledger", "b.db"), "--secret: expected the name"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(mills, tmp_path, monkeypatch, tacit, more, said):
    monkeypatch.chdir(tmp_path)
    refused(tacit(*asked(mills, *more)), said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mills.csv"]


def test_a_cell_that_is_no_number_is_placed_and_not_repeated(tmp_path, tacit):
    path = tmp_path / "bad.csv"
    path.write_text("mill,kind,length\na,x,1\nb,y,nan\na,x,secretive\nb,y,2\n", encoding="utf-8")
    done = tacit(*asked(path))
    refused(done, "line 4, column 3")
    assert "secretive" not in done.err


@pytest.mark.parametrize("flags", [("--out", "{}", "--force"), ("--out", "x", "--json", "x")])
def test_two_outputs_are_never_one_file(mills, tmp_path, monkeypatch, tacit, flags):
    monkeypatch.chdir(tmp_path)
    before = mills.read_bytes()
    refused(tacit(*asked(mills, *(flag.format(mills) for flag in flags))), "expected another file")
    assert mills.read_bytes() == before


def test_a_column_that_is_constant_in_the_held_out_rows_keeps_its_size(mills):
    text = mills.read_text(encoding="utf-8").splitlines()
    rows = [f"{line},{'odd' if i == 0 else 0.1}" for i, line in enumerate(text)]
    mills.write_text("\n".join(rows) + "\n", encoding="utf-8")
    table = read_table(mills, categories={"mill": None, "kind": None})
    problem = problem_of(table, "mill", "kind", hidden=0, held_out=0.25)
    assert float(problem.data[0].abs().max()) < 10.0
    assert ("odd", pytest.approx(0.1), 1.0) in problem.features


def test_one_repeat_is_refused_by_its_flag(mills, tacit):
    refused(
        tacit(*asked(mills, "--influence", "--repeats", "1")), "--repeats: expected an integer >= 2"
    )


def test_a_source_that_is_never_learned_from_is_refused(mills, tacit):
    with mills.open("a", encoding="utf-8") as stream:
        stream.writelines(f"rare {i},long,1.0,1.0\n" for i in range(8))
    refused(tacit(*asked(mills)), "--source: expected every one among the rows to learn from")


@pytest.mark.parametrize("left_out", [0, 2, 4])
def test_a_model_is_not_saved_with_scales_or_levels_of_its_rows(mills, tmp_path, tacit, left_out):
    declared = DECLARED[:left_out] + DECLARED[left_out + 2 :]
    refused(
        tacit(*asked(mills, *declared, "--out", tmp_path / "m.safetensors")),
        "--out: expected --bounds of every column",
    )


def test_declared_bounds_are_the_scales_and_hold_the_rows(mills):
    table = read_table(mills, categories={"mill": None, "kind": None})
    bounds = {"length": (-1.0, 1.0), "width": (-8.0, 4.0)}
    problem = problem_of(table, "mill", "kind", hidden=0, held_out=0.25, bounds=bounds)
    assert problem.features == (("length", 0.0, 1.0), ("width", -2.0, 6.0))
    assert float(problem.data[0].abs().max()) <= 1.0
    assert set(problem.undeclared) == {"mill", "kind"}


def test_a_declared_source_without_a_row_is_told_like_the_others(mills, tmp_path, tacit):
    roster = "mill=mill 0,mill 1,mill 2,mill 3,mill 9"
    out = tmp_path / "r.json"
    done = tacit(*asked(mills, "--category", roster, "--budget", "mill 9=7", "--json", out))
    assert done.code == 0, done.err
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["details"]["references"][-1] == "without mill 9"
    assert content["attacks"]


def test_a_budget_is_given_once(mills, tacit):
    refused(tacit(*asked(mills, "--budget", "mill 1=1", "--budget", "mill 1=4")), "once")
