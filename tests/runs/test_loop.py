"""A run: its budget, what stops it, and what is the same with and without a crash."""

import copy
import math

import numpy as np
import pandas
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")

from tacit.runs import Run  # noqa: E402
from tacit.runs.folder import STATE, RunFolder  # noqa: E402
from tacit.runs.identity import digest_of_tensors, identity  # noqa: E402
from tacit.runs.loop import STATE_FIELDS, HeldOut, Loop, RandomState  # noqa: E402

QUIET = {"progress": False}


def folder_of(place, **declared):
    return RunFolder(place, {"run": "test", **declared}, fields=STATE_FIELDS)


class Walk:
    """Steps of a random walk: what a run must store to go on as if nothing had happened."""

    def __init__(self):
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.source = torch.Generator().manual_seed(0)

    def loop(self, run, **options):
        parts = {
            "model": self.model,
            "optimizer": self.optimizer,
            "source": RandomState(self.source),
        }
        return Loop(run, parts, title="walking", **options)

    def step(self):
        pull = torch.randn(1, generator=self.source)
        self.optimizer.zero_grad()
        (self.model.weight * pull).sum().backward()
        self.optimizer.step()

    @property
    def place(self):
        return float(self.model.weight.detach())


def walked(run, *, stop=None, **options):
    walk = Walk()
    for here in walk.loop(run, **options):
        if here.steps == stop:
            raise KeyboardInterrupt
        walk.step()
    return walk.place


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_a_run_that_died_goes_on_with_the_same_steps(tmp_path, stop):
    run = Run(steps=10, **QUIET)
    with pytest.raises(KeyboardInterrupt):
        walked(run, folder=folder_of(tmp_path), every=0.0, stop=stop)
    assert walked(run, folder=folder_of(tmp_path), every=0.0) == walked(run)


def test_a_finished_run_takes_no_further_step(tmp_path):
    run, steps = Run(steps=3, **QUIET), []
    first = walked(run, folder=folder_of(tmp_path))
    walk = Walk()
    steps.extend(here.steps for here in walk.loop(run, folder=folder_of(tmp_path)))
    assert steps == []
    assert walk.place == first


@pytest.mark.parametrize(("run", "count"), [(Run(steps=3), 3), (Run(passes=3), 12)])
def test_a_budget_is_steps_or_passes(run, count):
    loop = Walk().loop(Run(steps=run.steps, passes=run.passes, **QUIET), a_pass=4)
    assert [here.steps for here in loop] == list(range(count))


def test_a_budget_of_time_is_by_the_clock_given():
    seconds = iter(range(100))
    loop = Walk().loop(Run(minutes=5 / 60, **QUIET), clock=lambda: float(next(seconds)))
    shares = [loop.share for _ in loop]
    assert shares == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_no_budget_is_refused():
    with pytest.raises(ValueError, match="steps: expected one of steps, passes and minutes"):
        Walk().loop(Run())


def held_out(walk, values):
    found = iter(values)
    return HeldOut(lambda: next(found), every=0.1, part="model")


def test_the_best_state_on_held_out_data_is_put_back_and_patience_ends_a_run():
    walk, places = Walk(), []
    held = held_out(walk, [5.0, 4.0, 3.0, 6.0, 7.0, 1.0])
    loop = walk.loop(Run(steps=10, patience=2, **QUIET), held_out=held)
    for _ in loop:
        walk.step()
        places.append(walk.place)
    assert len(places) == 5
    assert walk.place == places[2]
    assert (loop.here.best, loop.here.stale) == (3.0, 2)
    assert loop.here.history == [(1.0, 5.0), (2.0, 4.0), (3.0, 3.0), (4.0, 6.0), (5.0, 7.0)]


def test_what_was_best_survives_a_crash(tmp_path):
    run, values = Run(steps=6, patience=3, **QUIET), [5.0, 2.0, 3.0, 4.0, 4.0, 4.0]
    walk, places = Walk(), []
    options = {"folder": folder_of(tmp_path), "every": 0.0}
    for here in walk.loop(run, held_out=held_out(walk, values), **options):
        if here.steps == 3:
            break
        walk.step()
        places.append(walk.place)
    again = Walk()
    loop = again.loop(run, held_out=held_out(again, values[3:]), **options)
    for _ in loop:
        again.step()
    assert again.place == places[1]
    assert loop.here.best == 2.0


def test_a_step_that_is_no_number_is_never_the_best():
    walk = Walk()
    loop = walk.loop(Run(steps=3, **QUIET), held_out=held_out(walk, [math.inf, 2.0, math.nan] * 4))
    for _ in loop:
        walk.step()
    assert loop.here.best == 2.0


def test_a_state_of_another_thing_is_refused(tmp_path):
    walked(Run(steps=2, **QUIET), folder=folder_of(tmp_path))
    with pytest.raises(ValueError, match="checkpoint: expected the state of this run"):
        Loop(Run(steps=2), {"model": torch.nn.Linear(2, 2)}, title="", folder=folder_of(tmp_path))


def test_another_run_and_damaged_files_are_refused(tmp_path):
    walked(Run(steps=2, **QUIET), folder=folder_of(tmp_path))
    with pytest.raises(ValueError, match="the folder holds a run with another text"):
        folder_of(tmp_path, text="other")
    (tmp_path / STATE).write_bytes(b"no state")
    with pytest.raises(ValueError, match=r"checkpoint: .*state\.pt is damaged"):
        folder_of(tmp_path).state()


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    one, two = folder_of(tmp_path), folder_of(tmp_path)
    with (
        one.alone(),
        pytest.raises(ValueError, match="no other process is training in"),
        two.alone(),
    ):
        pass
    with two.alone():
        pass


def frame(middle):
    """A thousand numbers of which one, far from either end, is told."""
    return pandas.DataFrame({"x": np.r_[np.zeros(500), middle, np.zeros(499)]})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b"), ("ab",)),
        ((np.zeros(2),), (np.zeros(3),)),
        ((np.zeros(2),), (np.zeros(2, dtype=np.float32),)),
        ((torch.zeros(2),), (torch.zeros(1, 2),)),
        (({"a": 1, "b": 2},), ({"a": 1, "b": 3},)),
        ((1,), (1.0,)),
        (([1, [2, 3]],), ([[1, 2], 3],)),
        ((np.array(["a", 1], dtype=object),), (np.array(["a", 2], dtype=object),)),
        ((frame(0),), (frame(1),)),
        ((frame(0)["x"],), (frame(1)["x"],)),
        ((frame(0),), (frame(0).rename(columns={"x": "y"}),)),
        ((sparse.csr_array(np.eye(3)),), (sparse.csr_array(2.0 * np.eye(3)),)),
        (({"a", "b"},), ({"a", "c"},)),
    ],
)
def test_other_parts_are_another_identity(first, second):
    assert identity(*first) != identity(*second)
    # of values made anew, whose addresses are others
    assert identity(*first) == identity(*copy.deepcopy(first))


def test_objects_count_by_what_they_are_and_not_by_where_they_stand():
    parts = [np.array(["-".join(["a"] * 3), 1e9 + place], dtype=object) for place in (0, 0, 1)]
    assert identity(parts[0]) == identity(parts[1]) != identity(parts[2])


def test_a_digest_of_tensors_is_of_their_bytes():
    half = torch.ones(3, dtype=torch.bfloat16)
    assert digest_of_tensors([("a", half)]) != digest_of_tensors([("a", half.float())])
    assert digest_of_tensors([("a", half)]) == digest_of_tensors([("a", half.clone())])
