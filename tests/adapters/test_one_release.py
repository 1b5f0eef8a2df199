"""A reservation is worth one release, and a folder holds what may be published."""

import json
import shutil

import numpy as np
import pytest
import torch

from tacit import Ledger
from tacit.adapters import DPSGD, DPLoRAFA
from tacit.adapters.steps import AdapterSteps
from tacit.attacks import audit_one_run, coins
from tacit.releases import load
from tests.adapters.models import FAST, network, supervised, trained

METHOD = DPLoRAFA(rank=2)
LONG = {**FAST, "steps": 4}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A run that died after its second step, its ledger, and how to go on."""
    ledger = Ledger(tmp_path / "ledger.sqlite")

    def train(folder, save=None):
        given = LONG if save is None else {**LONG, "save": save}
        return trained(
            network(), supervised(), METHOD, checkpoint=folder, ledger=ledger, secret="rows",
            **given,
        )  # fmt: skip

    step = AdapterSteps.step

    def dying(run):
        if run.taken == 2:
            raise KeyboardInterrupt
        step(run)

    monkeypatch.setattr(AdapterSteps, "step", dying)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run")
    monkeypatch.setattr(AdapterSteps, "step", step)
    return tmp_path, ledger, train


def test_a_copied_checkpoint_gives_one_adapter(begun):
    place, ledger, train = begun
    for name in ("two", "three"):
        shutil.copytree(place / "run", place / name)
    train(place / "run", place / "first")
    for name in ("two", "three"):
        with pytest.raises(ValueError, match="a reservation is worth one release"):
            train(place / name, place / f"adapter-{name}")
        assert not (place / f"adapter-{name}").exists()
    assert len(ledger.entries("rows")) == 1


def test_a_finished_run_without_its_state_trains_no_other_adapter(begun):
    place, _, train = begun
    release = train(place / "run", place / "first")
    assert train(place / "run", place / "again").digests == release.digests
    (place / "run" / "state.pt").unlink()
    with pytest.raises(ValueError, match="a reservation is worth one release"):
        train(place / "run", place / "third")
    assert not (place / "third").exists()


def test_the_folder_holds_nothing_measured_on_records(tmp_path):
    rows = supervised(20)
    release = trained(network(), rows, METHOD, held_out=rows, save=tmp_path / "a", **FAST)
    assert release.use
    assert release.remarks
    text = (tmp_path / "a" / "tacit.json").read_text("utf-8")
    stored = load(json.loads(text))
    assert stored.use == stored.attacks == stored.remarks == ()
    assert stored.notes == release.notes
    assert "clipped." not in text
    assert "Before training" not in text


def test_a_declared_sampling_rate_tells_no_number_of_records():
    def published(count):
        found = trained(
            network(), supervised(count), METHOD, sampling_rate=0.25, batch=4,
            multiplier=2.0, delta=1e-3, steps=2,
        ).published()  # fmt: skip
        return {name: found[name] for name in found if name not in ("digests", "created")}

    assert published(16) == published(19)
    assert published(16)["details"]["records"] is None
    public = trained(
        network(), supervised(16), METHOD, batch=4, multiplier=2.0, delta=1e-3, steps=2
    )
    assert public.details.records == 16
    assert any("taken as public" in line for line in public.guarantees[0].assumptions)
    with pytest.raises(ValueError, match=r"^batch: expected the records"):
        trained(network(), supervised(16), METHOD, sampling_rate=0.25, **FAST)


class Twice(torch.nn.Module):
    """One weight, used by its layer and once more by itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs))
        return self.last(torch.nn.functional.linear(hidden, self.first.weight))


class Coupled(torch.nn.Module):
    """One row in many sees the mean of its batch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(6, 3)

    def forward(self, inputs):
        found = self.inner(inputs)
        return torch.where(inputs[:, :1] > 2.5, found + inputs.mean(dim=0)[:3], found)


@pytest.mark.parametrize(("model", "method"), [(Twice, DPSGD()), (Coupled, METHOD)])
def test_what_cannot_be_certified_is_refused_before_anything_is_spent(model, method, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    rows = torch.randn(200, 6, generator=torch.Generator().manual_seed(5)).clamp(-2.4, 2.4)
    rows[77, 0] = 2.6
    data = rows, torch.randint(3, (200,))
    with pytest.raises(ValueError, match=r"^(modules|model|save): "):
        trained(model(), data, method, ledger=ledger, secret="rows", **FAST)
    assert not ledger.secrets()


def test_a_profile_is_tested_as_a_whole():
    """Scores of a Gaussian mechanism refute its profile at less μ, and never at its own."""
    from tacit.accounting import gaussian

    points = np.linspace(0.0, 12.0, 60)
    refuted = {1.0: 0, 0.5: 0, 0.25: 0}
    for seed in range(40):
        source = np.random.default_rng(seed)
        inside = coins(400, source)
        scores = source.standard_normal(400) + inside
        found = audit_one_run(scores, inside, top=[50, 100], bottom=[50, 100], delta=1e-5, rng=0)
        for mu in refuted:
            held = gaussian(1.0, 1.0 / mu)
            refuted[mu] += found.refutes(points, [held.delta(float(one)) for one in points])
    assert refuted[1.0] <= 6
    assert refuted[0.25] >= 25
    assert refuted[1.0] <= refuted[0.5] <= refuted[0.25]
