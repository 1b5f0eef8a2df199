"""A file whose tensors disagree is no codebook, and every row of a store has its code."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from tacit.hidden_states import (  # noqa: E402
    Ball,
    Codebook,
    CodebookFit,
    PredictiveQuotient,
    ProductCodebook,
    ProductFit,
    Recipe,
    ResidualCodebook,
    ResidualFit,
    load_codec,
)
from tacit.hidden_states.codebooks.encoding import KnownCodes, prepare_codes  # noqa: E402
from tacit.releases import open_vectors  # noqa: E402
from tests.cli_runner import refused  # noqa: E402

ROWS = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))


def edited(path, change, about=None):
    """Write the file again with some tensors or fields replaced."""
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        header = file.metadata()
    if about is not None:
        header["about"] = json.dumps({**json.loads(header["about"]), **about})
    save_file({k: v.contiguous() for k, v in {**tensors, **change(tensors)}.items()}, path, header)
    return path


@pytest.fixture
def saved(tmp_path):
    def write(kind):
        path = tmp_path / f"{kind}.safetensors"
        if kind == "product":
            book = ProductCodebook.fit(ROWS, ProductFit(parts=2, size=4), rng=0)
        elif kind == "residual":
            book = ResidualCodebook.fit(ROWS, ResidualFit(stages=2, size=4), rng=0)
        elif kind == "euclidean":
            book = Codebook.fit(ROWS, CodebookFit(size=4, predictor_epochs=1), rng=0)
        elif kind == "fisher":
            book = Codebook.fit(ROWS, CodebookFit(size=4, metric="fisher"), fisher=np.eye(6), rng=0)
        else:
            book = Codebook.fit(
                ROWS,
                CodebookFit(size=4, metric=kind if kind != "argmax" else "behaviour"),
                behaviours=ROWS,
                rng=0,
            )
        book.save(path)
        return path

    return write


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("euclidean", lambda held: {"codewords": held["codewords"][:1]}, "centres: expected shape"),
        ("euclidean", lambda held: {"centres": held["centres"].repeat(50, 1)}, "centres"),
        ("euclidean", lambda held: {"centres": held["centres"] * torch.nan}, "centres: .*finite"),
        ("euclidean", lambda held: {"centres": held["centres"][:, :5]}, "centres"),
        ("euclidean", lambda held: {"codewords": held["codewords"] / 0}, "codewords: .*finite"),
        ("euclidean", lambda held: {"codewords": held["codewords"].long()}, "codewords"),
        ("euclidean", lambda held: {"codewords": held["codewords"][0]}, "codewords"),
        ("euclidean", lambda held: {"table": torch.zeros(3, 9)}, "table"),
        ("euclidean", lambda held: {"table": torch.zeros(4, 9)}, "table: .*probabilities"),
        ("euclidean", lambda held: {"root": torch.eye(6)}, "root"),
        ("euclidean", lambda held: {"extra": torch.eye(6)}, "no codebook"),
        ("euclidean", lambda held: {"predictor.head.bias": torch.zeros(9)}, "malformed"),
        ("euclidean", lambda held: {"predictor.mean": torch.full((6,), torch.inf)}, "finite"),
        ("fisher", lambda held: {"root": held["root"][:, :5]}, "centres"),
        ("fisher", lambda held: {"root": held["root"][:5]}, "root"),
        ("behaviour", lambda held: {"table": held["table"][:2]}, "table: expected shape"),
        ("behaviour", lambda held: {"table": held["table"] * torch.nan}, "table: .*finite"),
        ("product", lambda held: {"part.0": held["part.0"] * torch.nan}, "part 0: .*finite"),
        ("product", lambda held: {"part.1": held["part.1"][:, :2]}, "part 1: expected 3 columns"),
        ("product", lambda held: {"part.1": held["part.1"][:0]}, "part 1"),
        ("product", lambda held: {"part.7": held["part.1"] + 1}, "malformed"),
        ("residual", lambda held: {"stage.0": held["stage.0"] * torch.nan}, "stage 0: .*finite"),
        ("residual", lambda held: {"stage.1": held["stage.1"][:, :2]}, "stage 1: expected shape"),
        ("residual", lambda held: {"stage.1": held["stage.1"].repeat(2, 1)}, "stage 1: .*asked"),
        ("residual", lambda held: {"stage.7": held["stage.1"] + 1}, "malformed"),
        ("residual", lambda held: {"mean": held["mean"][:, :2]}, "stage 0"),
        ("residual", lambda held: {"basis": torch.eye(5)}, "basis"),
        ("residual", lambda held: {"basis": torch.eye(6) * torch.inf}, "basis: .*finite"),
    ],
)  # fmt: skip
def test_tensors_that_disagree_are_refused_where_a_codebook_is_read(saved, kind, change, message):
    path = edited(saved(kind), change)
    with pytest.raises(ValueError, match=f"^path: .*{message}"):
        load_codec(path)


@pytest.mark.parametrize(
    "about",
    [{"metric": "other"}, {"kind": "x"}, {"calibration": 0}, {"least_cell": "2"},
     {"decision_cost": -1.0}, {"metric": "behaviour"}, {"metric": "fisher"}, {"origin": 3}],
)  # fmt: skip
def test_fields_out_of_range_are_refused_where_a_codebook_is_read(saved, about):
    with pytest.raises(ValueError, match=r"^path: "):
        load_codec(edited(saved("euclidean"), lambda _: {}, about))


def test_an_inconsistent_codebook_cannot_be_made():
    book = Codebook.fit(ROWS, CodebookFit(size=4), rng=0)
    held = {**vars(book), "codewords": book.codewords[:1]}
    with pytest.raises(ValueError, match="centres: expected shape"):
        Codebook(**held)


@pytest.mark.parametrize("codes", [[[4]], [[-1]], [[0, 0]], [0], [[0.0]]])
def test_codes_outside_the_codebook_are_refused_before_anything_is_reserved(codes):
    book = Codebook.fit(ROWS, CodebookFit(size=4), rng=0)
    with pytest.raises(ValueError, match="codes: expected integers"):
        prepare_codes(book, KnownCodes(np.array(codes)))


def test_nothing_is_charged_for_a_codebook_that_disagrees(tacit, saved, tmp_path):
    path = edited(saved("euclidean"), lambda held: {"centres": held["centres"].repeat(50, 1)})
    np.save(tmp_path / "own.npy", ROWS.numpy())
    ledger = tmp_path / "l.sqlite"
    asked = ("hidden", "encode", tmp_path / "own.npy", "--codebook", path, "--ledger", ledger,
             "--secret", "s", "--no-budget", "--out", tmp_path / "c.npy")  # fmt: skip
    refused(tacit(*asked), "--codebook", "centres")
    assert not ledger.exists()
    assert not (tmp_path / "c.npy").exists()


ODD = [[np.nan] * 6, [np.inf] * 6, [-np.inf, 1, 2, 3, 4, 5], [1e300] * 6, [np.nan, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("ending", ["npy", "safetensors", "parquet"])
@pytest.mark.parametrize("kind", ["euclidean", "product", "residual"])
def test_every_row_has_its_code_whatever_stands_in_it(saved, tmp_path, ending, kind):
    book = load_codec(saved(kind))
    plain = ROWS.double().numpy()
    rows = np.concatenate([plain[:3], ODD, plain[3:5]])
    path = tmp_path / f"rows.{ending}"
    if ending == "npy":
        np.save(path, rows)
    elif ending == "safetensors":
        save_file({"rows": torch.from_numpy(rows)}, path)
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        import pyarrow

        listed = [None, *rows.tolist()[1:], [None, 1.0], []]
        parquet.write_table(pyarrow.table({"v": listed}), path)
    released = prepare_codes(book, open_vectors("rows", path)).draw().details
    count = len(rows) + (2 if ending == "parquet" else 0)
    assert released.codes.shape == (count, len(book.sizes))
    assert (released.codes < np.array(book.sizes)).all()
    here = prepare_codes(book, rows).draw().details.codes
    own = slice(1, None) if ending == "parquet" else slice(None)
    assert released.codes[own][: len(here[own])].tolist() == here[own].tolist()
    assert here[[0, 1, 2, 8, 9]].reshape(5, -1).tolist() == (
        book.encode(ROWS[:5]).reshape(5, -1).tolist()
    )


def test_a_quotient_whose_weights_are_no_numbers_is_refused(tmp_path):
    quotient = PredictiveQuotient.fit(ROWS, ROWS, Ball.at(2, nats=3.0), Recipe(epochs=1), rng=0)
    path = tmp_path / "q.safetensors"
    for name, value in (("encoder.0.weight", torch.nan), ("scale", 0.0), ("mean", torch.inf)):
        quotient.save(path)
        edited(path, lambda held, n=name, v=value: {n: held[n] * 0 + v})
        with pytest.raises(ValueError, match=r"^path: .*expected (finite weights|numbers > 0)"):
            PredictiveQuotient.load(path)
