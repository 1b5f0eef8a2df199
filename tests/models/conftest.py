"""Settings of the tests on language models."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """One thread, for small products gain nothing from several; and no bars of progress."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    yield
    torch.set_num_threads(threads)
    transformers.logging.enable_progress_bar()
