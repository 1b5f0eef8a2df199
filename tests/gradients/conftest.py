"""Settings of the tests on adapted models."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """One thread, for small products gain nothing from several."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("peft")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
