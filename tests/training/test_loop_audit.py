"""The audit inside a loop: what it proves and could prove, and how a false loop is found out."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tacit.gradients import DPSGD, AdaptiveDPSGD, GivenNoise
from tacit.guarantees import ApproximateDP
from tacit.training import FixedOrder, LoopAudit, People, RandomAllocation
from tests.training.loops import begun, finish, network

STRONG = GivenNoise(multiplier=0.6, delta=1e-5)


def audited(promise=STRONG, count=400, batch=40, **options):
    torch.manual_seed(0)
    model = nn.Linear(40, 30)
    data = torch.utils.data.TensorDataset(torch.randn(120, 40), torch.randint(30, (120,)))
    private, optimizer = begun(
        model, data, seed=None, batch=batch, promise=promise, audit=LoopAudit(canaries=count),
        **options,
    )  # fmt: skip
    return finish(private, model, optimizer)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 120, "epochs": 3},
        {"sampling": RandomAllocation(), "epochs": 3},
        {"method": AdaptiveDPSGD(clipping="layers"), "batch": 120},
        {"person": People(of=[place // 2 for place in range(120)]), "batch": 60},
    ],
)
def test_an_audit_proves_some_of_what_is_certified_and_no_more(options):
    release = audited(**options)
    [attack] = release.attacks
    [remark] = release.remarks
    held = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    assert attack.success.value > 0.6
    assert attack.trials == 400
    assert "REFUTED" not in remark
    assert "could be proven by 400 canaries, if every guess were right" in remark
    proven = float(remark.split("ε of at least ")[1].split(".  ")[0].split(". ")[0].split(";")[0])
    assert 0.0 <= proven <= held.epsilon
    if options == {"batch": 120, "epochs": 3}:
        assert proven > 1.0
    # what was measured stays with the holder
    told = release.published()
    assert told["attacks"] == []
    assert "canaries" not in str({name: one for name, one in told.items() if name != "details"})


def test_a_weight_that_is_kept_turned_has_canaries_too():
    """As the layers of GPT-2 are, of which the sum comes turned around."""
    model = nn.Sequential(Conv1D(8, 6), nn.Linear(8, 3))
    private, optimizer = begun(model, audit=LoopAudit(canaries=60), seed=None)
    assert finish(private, model, optimizer).attacks[0].trials == 60


def test_less_noise_than_is_told_is_found_out(monkeypatch):
    """The same loop with a sixteenth of its noise: the certificate is refuted."""
    true = DPSGD.noised

    def sixteenth(self, total, layer, std):
        return true(self, total, layer, std / 16.0)

    monkeypatch.setattr(DPSGD, "noised", sixteenth)
    release = audited(GivenNoise(multiplier=4.0, delta=1e-5), batch=120, epochs=3)
    assert "THE CERTIFICATE IS REFUTED" in release.remarks[0]


def test_much_noise_tells_no_coin():
    release = audited(GivenNoise(multiplier=200.0, delta=1e-5), batch=120)
    [attack] = release.attacks
    # five standard deviations of 400 fair guesses
    assert abs(attack.success.value - 0.5) < 0.125


def test_an_audit_that_can_prove_nothing_or_has_no_room_is_refused(tmp_path):
    with pytest.raises(ValueError, match="canaries: expected at least 16"):
        LoopAudit(canaries=4)
    with pytest.raises(ValueError, match="at most the 99 entries that are trained, got 200"):
        begun(network(), audit=LoopAudit(canaries=200))
    with pytest.raises(ValueError, match="checkpoint: expected none beside audit"):
        begun(network(), audit=LoopAudit(), checkpoint=tmp_path / "loop")
    with pytest.raises(ValueError, match=r"audit: expected LoopAudit\(\)"):
        begun(network(), audit=64, sampling=FixedOrder())
