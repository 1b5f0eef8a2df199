"""Which references differ from the real input in a batch, and how."""

import numpy as np
import pytest

from tacit.training import References


def test_groups_leave_out_all_of_their_examples():
    part = References.leave_out(["Ada", "Bob", "Eve"]).part(np.array([2, 0, -1, 2]), 4)
    assert part.indices.tolist() == [0, 2]
    assert part.changes.tolist() == [[0, -1, 0, 0], [-1, 0, 0, -1]]
    assert part.inside.all()


def test_what_a_coin_left_out_is_added_by_its_reference():
    inside = np.array([True, False, True])
    part = References.leave_out(3).part(np.array([0, 1, 2]), 3, inside)
    assert part.changes.tolist() == [[-1, 0, 0], [0, 1, 0], [0, 0, -1]]


def test_subsets_keep_what_they_say_and_those_that_keep_all_take_no_part():
    kept = np.array([[True, True, False], [True, True, True], [False, True, True]])
    part = References.subsets(["a", "b", "c"]).part(kept, 3)
    assert part.indices.tolist() == [0, 2]
    assert part.changes.tolist() == [[0, 0, -1], [-1, 0, 0]]


@pytest.mark.parametrize(
    ("groups", "inside", "said"),
    [
        (np.array([0, 3]), None, "membership: expected −1 … 2, got 3"),
        (np.array([0, -2]), None, "got -2"),
        (np.array([0.0, 1.0]), None, "membership: expected integers"),
        (np.array([True, False]), None, "membership: expected integers"),
        (np.array([0]), None, r"membership: expected shape \(2,\)"),
        (np.array([1, 1]), np.array([True, False]), "all or nothing .* 'without b'"),
        (np.array([0, -1]), np.array([True, False]), "inside: expected a group"),
        (np.array([0, 1]), np.array([1, 0]), "inside: expected booleans"),
    ],
)
def test_bad_membership_is_named(groups, inside, said):
    with pytest.raises(ValueError, match=said):
        References.leave_out(["a", "b", "c"]).part(groups, 2, inside)


@pytest.mark.parametrize("groups", [0, [], ["a", "a"], True, "Ada", [1, 2]])
def test_bad_names_are_refused(groups):
    with pytest.raises(ValueError, match="groups"):
        References.leave_out(groups)


def test_subsets_have_no_coins():
    with pytest.raises(ValueError, match="inside"):
        References.subsets(["a"]).part(np.ones((1, 2), bool), 2, np.array([True, False]))
