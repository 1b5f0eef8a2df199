"""A child that is forked ends, whatever ran in this process before."""

import pytest

from tests import forks

torch = pytest.importorskip("torch")


def test_a_child_of_a_process_with_threads_ends(monkeypatch):
    monkeypatch.setattr(forks, "LONGEST", 20.0)
    before, large = torch.get_num_threads(), torch.ones(2**17)
    torch.set_num_threads(2)
    try:
        large.exp()
        done = forks.forked(lambda: print(float(large.exp().min() > 1.0)))
    finally:
        torch.set_num_threads(before)
    assert (done.returncode, done.stdout) == (0, "1.0\n")
