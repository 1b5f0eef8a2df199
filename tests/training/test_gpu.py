"""What only a GPU shows; ``make test-gpu`` runs these where CUDA is at hand, with all device tests.

``TACIT_TEST_DEVICE=cpu`` tries them without one.
"""

import os

import numpy as np
import pytest
import torch

from tacit._ground import bits
from tacit.gradients import AdaptiveDPSGD
from tacit.gradients.device_noise import device_normal, key_stream
from tacit.gradients.publication import _publish_there, publish_tensor
from tests.training.loops import begun, finish, losses, network, records

pytestmark = pytest.mark.gpu


@pytest.fixture
def device():
    """The device that is asked for; CUDA when none is."""
    found = os.environ.get("TACIT_TEST_DEVICE", "cuda")
    if found == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here: make test-gpu")
    return torch.device(found)


class On(torch.utils.data.Dataset):
    """The records of the tests, on a device."""

    def __init__(self, device):
        self.rows = records()
        self.device = device

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return tuple(one.to(self.device) for one in self.rows[place])


def trained_on(device, **options):
    model = network().to(device)
    private, optimizer = begun(model, On(device), **options)
    release = finish(private, model, optimizer)
    return release, {name: one.detach().cpu() for name, one in model.state_dict().items()}


def test_the_stream_and_the_sums_are_those_of_the_processor(device):
    key = bits.fresh_key()
    found = key_stream(key, 500, device).cpu()
    assert torch.equal(found, key_stream(key, 500, torch.device("cpu")))
    value = torch.randn(5000, dtype=torch.float64) * torch.logspace(-9, 30, 5000)
    noise = torch.randn(5000, dtype=torch.float64)
    there = _publish_there(value.to(device), noise.to(device), 1.7)
    assert torch.equal(there.cpu(), publish_tensor(value, noise, 1.7))


def test_ten_million_draws_are_normal(device):
    # 2²² are made together: these are of several keys
    found = device_normal((10_000_000,), device).cpu().numpy()
    inside = np.abs(found) < 3.0
    # 0.27% ± 5 deviations are outside, and the largest of them is of their number
    assert 0.0027 - 5 * 1.7e-5 < 1.0 - inside.mean() < 0.0027 + 5 * 1.7e-5
    assert 4.4 < np.abs(found).max() < 8.0
    assert abs(found.mean()) < 5 / np.sqrt(found.size)


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("clip", [None, AdaptiveDPSGD(clip=0.5, rate=1.0)])
def test_a_seeded_loop_trains_what_it_trains_on_the_processor(device, clip, micro_batch):
    options = {"epochs": 2, "method": clip, "micro_batch": micro_batch}
    _, expected = trained_on(torch.device("cpu"), **options)
    release, found = trained_on(device, **options)
    assert release.details.taken == 6
    for name, one in expected.items():
        assert torch.allclose(found[name], one, atol=1e-5, rtol=0), name


@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_waits_for_nothing(device, passes):
    model = network().to(device)
    private, optimizer = begun(model, On(device), epochs=2, seed=None, passes=passes)
    rows, targets = (one.to(device) for one in records()[:])
    for step, _ in enumerate(private.loader):
        size = len(private.loader.current.records)
        # records are held apart at steps 0, 1 and 2, which compares numbers
        if step >= 3 and device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            private.backward(losses(model, rows[:size], targets[:size]))
            optimizer.step()
        finally:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    private.close()


def test_autocast_and_a_release_without_a_seed(device):
    model = network().to(device)
    private, optimizer = begun(model, On(device), seed=None)
    for rows, targets in private.loader:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            found = losses(model, rows, targets)
        private.backward(found.float())
        optimizer.step()
    assert private.release().details.taken == 3
    assert all(one.isfinite().all() for one in model.parameters())
