"""A clip that follows the gradients: where it goes, and what goes on with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.documents import dumps
from tacit.gate import Policy, check_release
from tacit.gradients import DPSGD, AdaptiveDPSGD
from tacit.gradients.given import GivenNoise
from tacit.training.loop_release import certified
from tests.training.loops import begun, finish, network, trained


class Shown(nn.Module):
    """One weight, of which the gradient of a record is the record itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, inputs):
        return self.layer(inputs)


@pytest.mark.parametrize("start", [0.01, 100.0])
def test_the_clip_goes_to_the_quantile_of_the_norms(start):
    norms = torch.rand(400, generator=torch.Generator().manual_seed(0)) * 4 + 1
    model = Shown()
    method = AdaptiveDPSGD(clip=start, quantile=0.8, rate=0.4)
    # no step moves the model: the norms stay; all records are in every step
    private, optimizer = begun(
        model, torch.utils.data.TensorDataset(norms[:, None]), rate=0.0, batch=400, epochs=60,
        method=method, promise=GivenNoise(multiplier=1.0, delta=1e-5),
    )  # fmt: skip
    for _ in private.epochs:
        for (inputs,) in private.loader:
            private.backward(model(inputs).squeeze(1))
            optimizer.step()
    release = private.release()
    # 3% of the records lie in the last step of the clip, and noise of 3.5 records moves a share
    assert np.quantile(norms.numpy(), 0.7) < release.details.last_clip
    assert release.details.last_clip < np.quantile(norms.numpy(), 0.9)
    assert private.clip == release.details.last_clip


def test_a_moving_clip_costs_nothing_and_passes_gate_and_checker(tmp_path):
    noise = GivenNoise(multiplier=1.0, delta=1e-3)
    fixed, _ = trained(promise=noise, batch=24, epochs=2, seed=None)
    release, _ = trained(method=AdaptiveDPSGD(), promise=noise, batch=24, epochs=2, seed=None)
    assert release.guarantees[1].epsilon == fixed.guarantees[1].epsilon
    (tmp_path / "release.json").write_text(dumps(release.to_dict()))
    stored = tacit.load(tmp_path / "release.json")
    assert stored.details.method == AdaptiveDPSGD()
    assert stored.details.last_clip == release.details.last_clip
    epsilon = release.guarantees[1].epsilon
    result = check_release(stored, Policy(max_epsilon=epsilon, delta=1e-3, verified=True))
    assert result.passed


def test_a_loop_goes_on_with_its_clip(tmp_path):
    common = {
        "epochs": 3,
        "batch": 24,
        "checkpoint": tmp_path / "loop",
        "every": 1,
        "method": AdaptiveDPSGD(),
    }
    whole, _ = trained(epochs=3, batch=24, method=AdaptiveDPSGD())
    model = network()
    private, optimizer = begun(model, **common)
    inputs, targets = next(iter(private.loader))
    private.backward(nn.functional.cross_entropy(model(inputs), targets, reduction="none"))
    optimizer.step()
    moved = private.clip
    # as if the process had died
    private.close()
    assert moved != 1.0
    again = network()
    private, optimizer = begun(again, **common)
    assert (private.taken, private.clip) == (1, moved)
    assert finish(private, again, optimizer).details.last_clip == whole.details.last_clip


def test_batches_that_pass_in_parts_move_the_clip_alike():
    one, _ = trained(method=AdaptiveDPSGD(clip=0.3), batch=24)
    parts, _ = trained(method=AdaptiveDPSGD(clip=0.3), batch=24, micro_batch=9)
    assert parts.details.last_clip == one.details.last_clip


def test_a_clip_stays_a_number_whatever_the_gradients_are():
    method = AdaptiveDPSGD(clip=2.0, rate=50.0, quantile=0.5)
    for count, end in ((1e300, 2e-9), (-1e300, 2e9)):
        moved = method.clips(["first", "second"])
        for _ in range(10):
            moved = moved.moved([count], 10.0)
        assert moved.whole_norm == pytest.approx(end)


@pytest.mark.parametrize("wrong", [{"clipping": "automatic"}, {"quantile": 1.0}, {"share": 0.0}])
def test_what_has_no_one_norm_is_refused(wrong):
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name}: expected"):
        AdaptiveDPSGD(**wrong)
    assert DPSGD(clipping="layers").clipping == "layers"


class Apart(nn.Module):
    """Two weights of which the one has gradients a hundred times the other's."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    def forward(self, inputs):
        return self.small(inputs) + self.large(100.0 * inputs)


def test_every_layer_has_a_clip_that_goes_to_its_own_quantile():
    norms = torch.rand(300, generator=torch.Generator().manual_seed(0)) * 4 + 1
    model = Apart()
    method = AdaptiveDPSGD(clip=10.0, clipping="layers", rate=0.5)
    private, optimizer = begun(
        model, torch.utils.data.TensorDataset(norms[:, None]), rate=0.0, batch=300, epochs=40,
        method=method, promise=GivenNoise(multiplier=1.0, delta=1e-5),
    )  # fmt: skip
    for _ in private.epochs:
        for (inputs,) in private.loader:
            private.backward(model(inputs).squeeze(1))
            optimizer.step()
    small, large = private.clips
    release = private.release()
    low, high = np.quantile(norms.numpy(), [0.35, 0.65])
    assert low < small < high
    assert 100 * low < large < 100 * high
    assert release.details.last_clip == pytest.approx(np.hypot(small, large))
    # the account is that of one clip that stays
    fixed = certified_of(DPSGD(clipping="layers"), release)
    assert release.guarantees == fixed


def certified_of(method, release):
    return certified(replace(release.details, method=method, last_clip=None))
