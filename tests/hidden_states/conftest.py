"""Settings of the tests on language models."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small products gain nothing from threads that wait for each other."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
