"""What is drawn was decided when it was prepared, and the draw itself says nothing."""

import io
import logging
import sys
import warnings

import numpy as np
import pytest

from tacit import Draw, Effort, Rows, Table
from tacit._ground.frozen import frozen
from tacit.statistics import Session, pairs, prepare, read_table


def pool(seed=0, count=24, width=2):
    return np.random.default_rng(seed).normal(size=(count, width))


def middle(rows):
    return np.median(rows, axis=0)


WAYS = {
    "sums": ("mean", Rows(success=0.6)),
    "swaps": (middle, Rows(success=0.6, method="swaps")),
    "family": (middle, Rows(success=0.6, method="family")),
    "table": ("mean", Table(success=0.6, bounds=[(-4, 4)] * 2)),
    "draw": ("mean", Draw(success=0.6)),
}
QUIET = Effort(simulations=100, trials=0, workers=1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("view", [False, True])
def test_a_prepared_statistic_owns_its_pool(way, view):
    query, promise = WAYS[way]
    whole = pool()
    given = whole[:]
    given.flags.writeable = not view
    expected = prepare(query, whole.copy(), promise, QUIET, rng=5).draw().values
    prepared = prepare(query, given, promise, QUIET, rng=5)
    whole *= 1e6
    np.testing.assert_array_equal(prepared.draw().values, expected)


def test_a_session_owns_its_pool():
    given = pool()
    session = Session(given, Table(success=0.6, bounds=[(-4, 4)] * 2), rng=3)
    other = Session(given.copy(), Table(success=0.6, bounds=[(-4, 4)] * 2), rng=3)
    given *= 1e6
    first, second = (one.ask("sum", share=0.5).values for one in (session, other))
    np.testing.assert_array_equal(first, second)


def test_given_pairs_are_copied():
    members = np.arange(24).reshape(12, 2)
    pairing = pairs.Pairing(members, 24, "given")
    members[:] = members[::-1].copy()
    assert pairing.members[0].tolist() == [0, 1]


def test_what_is_frozen_is_no_view_of_what_can_be_written():
    whole = np.zeros(3)
    view = whole[:]
    view.flags.writeable = False
    held = frozen(view)
    whole += 1.0
    assert held.tolist() == [0.0, 0.0, 0.0]
    assert frozen(held) is held


class Telling:
    """A median that says whatever it can when row 0 is among the rows."""

    def __init__(self, rows, way):
        self.first, self.way, self.armed = rows[0, 0], way, False

    def __call__(self, rows):
        if self.armed and (rows[:, 0] == self.first).any():
            self.tell(rows)
        return np.median(rows)

    def tell(self, rows):
        if self.way == "print":
            print("drawn", file=sys.stdout)
            print("drawn", file=sys.stderr)
        elif self.way == "warn":
            warnings.warn("drawn", RuntimeWarning, stacklevel=1)
            np.log(-np.abs(rows))
        elif self.way == "log":
            logging.getLogger("anything").critical("drawn")
        elif self.way == "raise":
            raise KeyError("drawn")
        elif self.way == "exit":
            sys.exit(7)
        else:
            raise AssertionError


@pytest.mark.parametrize("way", ["print", "warn", "log", "raise", "exit"])
def test_the_draw_of_a_callable_is_silent(way, capsys):
    rows = pool(width=1)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("anything").addHandler(handler)
    try:
        for seed in range(8):
            query = Telling(rows, way)
            prepared = prepare(
                query,
                rows,
                Rows(success=0.6, method="swaps"),
                Effort(simulations=100, trials=0, workers=1),
                rng=seed,
            )
            query.armed = True
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                prepared.draw()
            assert not found
    finally:
        logging.getLogger("anything").removeHandler(handler)
    captured = capsys.readouterr()
    assert (captured.out, captured.err, stream.getvalue()) == ("", "", "")
    logging.getLogger("anything").error("logging goes on")


def named(tmp_path, **more):
    path = tmp_path / "two.csv"
    path.write_text("age,income,city\n" + "".join(f"{n},{n * 100},x{n % 2}\n" for n in range(20)))
    return read_table(path, **more)


def test_columns_are_selected_by_name(tmp_path):
    table = named(tmp_path, columns=["income", "age"])
    promise = Table(bounds={"age": (0, 19)}, mu=1e6)
    one = prepare("mean", table, promise, QUIET, columns=["age"]).draw()
    assert one.names == ("mean[age]",)
    assert one.values[0] == pytest.approx(9.5, abs=0.1)
    with pytest.raises(ValueError, match="columns: expected some of income, age"):
        prepare("mean", table, promise, QUIET, columns=["height"])
    with pytest.raises(ValueError, match="columns: expected different names"):
        prepare("mean", table, promise, QUIET, columns=["age", "age"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_a_frame_are_selected_by_name(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(
        {"income": np.arange(20.0) * 100, "name": ["x"] * 20, "age": np.arange(20.0)}
    )
    found = prepare(
        "mean",
        frame,
        Table(mu=1e6, bounds={"age": (0, 19), "income": (0, 1900)}),
        Effort(trials=0),
        columns=["age", "income"],
    ).draw()
    assert found.names == ("mean[age]", "mean[income]")
    np.testing.assert_allclose(found.values, [9.5, 950.0], rtol=0.01)
