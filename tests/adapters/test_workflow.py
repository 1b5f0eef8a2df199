"""Training adapters of every family: what moves, what is saved, what is certified."""

import math

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from tacit import Run, load
from tacit.adapters import (
    DPSGD,
    DPLoRAFA,
    GivenNoise,
    LoRAFA,
    NoisyProjection,
    PoissonSteps,
    WithoutClipping,
    fit,
    read_adapter,
)
from tacit.gradients.certificates import HALF
from tacit.releases import Draw, Table
from tests.adapters.models import (
    FAMILIES,
    FAST,
    LOW_RANK,
    data_for,
    gpt2,
    network,
    prepared,
    supervised,
    tokens,
    trained,
)

METHODS = {
    "dp-lora-fa": LOW_RANK,
    "noisy-projection": NoisyProjection(rank=2),
    "dp-sgd": DPSGD(),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_trained_is_what_peft_loads(family, method, tmp_path):
    make, targets = FAMILIES[family]
    model, fresh = make(), make()
    rows = data_for(model)
    release = trained(
        model, rows, METHODS[method], targets=targets, save=tmp_path / "adapter", held_out=rows,
        **FAST,
    )  # fmt: skip
    reloaded = PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    inputs = {name: rows[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        moved, again = model(**inputs).logits, reloaded(**inputs).logits
        before = make().eval()(**inputs).logits
    assert float((moved - again).abs().max()) < 1e-4 * float(moved.abs().max())
    assert float((moved - before).abs().max()) > 1e-3
    assert read_adapter(tmp_path / "adapter").details.layers == release.details.layers
    assert load(tmp_path / "adapter" / "tacit.json").kind == "adapter"


def test_only_the_adapter_moves_and_names_stay():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained(model, supervised(), LOW_RANK, **FAST)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_peft_model_is_trained_in_place_with_its_own_a():
    made = LoraConfig(r=2, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(gpt2(), made)
    factors = {n: p.detach().clone() for n, p in model.named_parameters() if "lora_" in n}
    release = trained(model, tokens(), LOW_RANK, **FAST)
    for name, value in model.named_parameters():
        if "lora_A" in name:
            assert torch.equal(value, factors[name])
            assert not value.requires_grad
        if "lora_B" in name:
            assert not torch.equal(value, factors[name])
    assert release.details.layers == tuple(f"transformer.h.{i}.attn.c_attn" for i in range(2))


def test_a_clipped_step_is_the_sum_of_clipped_gradients():
    """One step without noise to speak of, against autograd of one record at a time."""
    model, (inputs, targets) = network(), supervised()
    projections = {"0": torch.randn(2, 6), "2": torch.randn(2, 8)}
    run = prepared(
        model, (inputs, targets), DPLoRAFA(rank=2, clip=0.05), projections=projections,
        multiplier=1e-9, delta=1e-3, steps=1, optimizer="sgd", rate=0.3, micro_batch=5,
    )  # fmt: skip
    run.draw()
    plain = network().double()
    totals = [torch.zeros(8, 2).double(), torch.zeros(3, 2).double()]
    for one, target in zip(inputs.double(), targets, strict=True):
        plain.zero_grad()
        torch.nn.functional.cross_entropy(plain(one[None]), target[None]).backward()
        parts = [
            plain[place].weight.grad @ projections[name].double().T
            for place, name in ((0, "0"), (2, "2"))
        ]
        norm = math.sqrt(sum(float(part.square().sum()) for part in parts))
        for total, part in zip(totals, parts, strict=True):
            total += min(1.0, 0.05 / norm) * part
    for layer, total in zip(run.run.steps.layers, totals, strict=True):
        np.testing.assert_allclose(
            layer.matrix_b.weight.detach().numpy(), -0.3 * total.numpy() / 12, rtol=2e-4, atol=1e-7
        )


def test_what_is_published_has_the_noise_that_is_certified():
    """B after one step, many times: its spread is rate × multiplier × clip / expected."""
    drawn = []
    for seed in range(40):
        run = prepared(
            network(), supervised(), DPLoRAFA(rank=2, clip=0.2),
            projections={"0": torch.ones(2, 6), "2": torch.eye(2, 8)},
            multiplier=3.0, delta=1e-3, steps=1, optimizer="sgd", rate=0.5, rng=seed,
        )  # fmt: skip
        run.draw()
        drawn.append(
            np.concatenate(
                [one.matrix_b.weight.detach().numpy().ravel() for one in run.run.steps.layers]
            )
        )
    values = np.array(drawn)
    spread = (values - values.mean(axis=0)).std() * np.sqrt(40 / 39)
    expected = 0.5 * 3.0 * 0.2 / 12
    assert abs(spread / expected - 1) < 5 / np.sqrt(2 * values.size)


def test_certificates_are_those_of_the_method():
    run = prepared(network(), supervised(), LOW_RANK, targets="2", **FAST)
    from tacit.accounting import gaussian

    exact = gaussian(math.sqrt(2), 2.0)
    assert run.guarantees[1].epsilon == pytest.approx(exact.epsilon(1e-3), rel=1e-9)
    assert run.guarantees[0].success == pytest.approx(exact.success().success, rel=1e-12)


def test_an_asked_for_epsilon_is_kept():
    run = prepared(
        network(), supervised(), NoisyProjection(rank=2), targets="2", epsilon=1.5, delta=1e-3,
        steps=1,
    )  # fmt: skip
    assert 1.49 < run.guarantees[1].epsilon <= 1.5


def test_without_noise_nothing_is_certified_and_nothing_is_written(tmp_path):
    release = trained(network(), supervised(), LoRAFA(rank=2), steps=2)
    assert release.guarantees[0].epsilon == math.inf
    assert release.published() == {"withheld": release.withheld}
    assert "neither A nor B nor BA may be published" in release.notes[0]
    with pytest.raises(ValueError, match="A beside a noiseless B tells the gradients"):
        prepared(network(), supervised(), LoRAFA(rank=2), save=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    trained(network(), supervised(), LoRAFA(rank=2), steps=1, save=tmp_path / "a", unprotected=True)
    assert load(tmp_path / "a" / "tacit.json").guarantees[0].epsilon == math.inf


def linear():
    return torch.nn.Sequential(torch.nn.Linear(6, 3))


def test_noise_once_at_the_end_of_convex_steps():
    head = linear()
    inputs, targets = supervised()
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    method = WithoutClipping(rank=4, bound=math.sqrt(2) * 1.001, smoothness=0.5)
    wanted = {"multiplier": 8.0, "delta": 1e-3, "steps": 4, "optimizer": "sgd"}
    release = trained(head, (inputs, targets), method, rate=0.2, **wanted)
    held = release.details.method.condition
    from tacit.accounting import gaussian

    assert release.guarantees[1].epsilon == pytest.approx(
        gaussian(4 * held, 8.0).epsilon(1e-3), rel=1e-9
    )
    with pytest.raises(ValueError, match="rate: expected one with rate × curvature at most 2"):
        trained(linear(), (inputs, targets), method, rate=50.0,
            **wanted)  # fmt: skip
    low = WithoutClipping(rank=4, bound=0.01, smoothness=0.5)
    with pytest.raises(ValueError, match="bound: expected one that no record's gradient exceeds"):
        trained(
            torch.nn.Sequential(torch.nn.Linear(6, 3)), (inputs, targets), low, rate=0.2, **wanted
        )


def test_one_step_with_an_a_that_is_given_is_no_mixture_over_a():
    from tacit.accounting import gaussian

    inputs, targets = supervised()
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    method = WithoutClipping(rank=1, bound=math.sqrt(2) * 1.001)
    wanted = {"multiplier": 1.0, "delta": 1e-3, "steps": 1, "optimizer": "sgd", "rate": 0.2}
    # all of the first record's gradient is seen along its input: ‖G Aᵀ‖ = ‖G‖ ‖A‖
    release = trained(
        linear(), (inputs, targets), method, projections={"0": inputs[:1]}, **wanted
    )  # fmt: skip
    drawn = trained(linear(), (inputs, targets), method, **wanted)
    exact = gaussian(1.0, 1.0).epsilon(1e-3)
    assert release.guarantees[1].epsilon >= exact > 1.1 * drawn.guarantees[1].epsilon


def test_a_seed_voids_and_repeats():
    first, again = (
        trained(network(), supervised(), LOW_RANK, rng=3, batch=6, **{**FAST, "steps": 1})
        for _ in range(2)
    )
    assert first.digests == again.digests
    assert first.reproducible
    other = trained(network(), supervised(), LOW_RANK, batch=6, **{**FAST, "steps": 1})
    assert other.digests != first.digests


def test_files_that_were_changed_are_refused(tmp_path):
    trained(network(), supervised(), LOW_RANK, save=tmp_path / "a", **FAST)
    place = tmp_path / "a" / "adapter_model.safetensors"
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    with pytest.raises(ValueError, match="expected the weights that the guarantee is about"):
        read_adapter(tmp_path / "a")
    content[-1] ^= 1
    place.write_bytes(content)
    save_file(load_file(place), place, {"format": "pt", "note": "a record"})
    with pytest.raises(ValueError, match="other metadata"):
        read_adapter(tmp_path / "a")


def test_a_better_certificate_than_the_settings_give_is_refused():
    release = trained(network(), supervised(), LOW_RANK, **FAST)
    content = release.to_dict()
    content["guarantees"][1]["epsilon"] = 0.1
    with pytest.raises(ValueError, match="expected what the settings certify"):
        load(content)


def test_bfloat16_passes_train_float32_factors():
    release = trained(gpt2(), tokens(), LOW_RANK, targets="c_attn", precision="bfloat16", **FAST)
    assert release.details.layers
    # whose rounding follows from other records, as the certificate says
    assert release.details.half
    assert all(HALF in one.assumptions for one in load(release.to_dict()).guarantees)


class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, inputs):
        return self.layer(inputs - inputs.mean(dim=0))


BAD = {
    "batch": (network, supervised, {"batch": 13}, "batch: expected at most the 12 records"),
    "targets": (network, supervised, {"targets": "nine"}, "targets: expected some of"),
    "kind": (network, supervised, {"targets": "1"}, "which is no linear layer"),
    "tied": (gpt2, tokens, {"targets": "lm_head"}, "tied to transformer.wte"),
    "mixing": (Mixing, supervised, {}, "depend on that record alone"),
    "alone": (lambda: torch.nn.Linear(6, 3), supervised, {}, "put it into an nn.Sequential"),
    "task": (gpt2, tokens, {"targets": "c_attn", "task": "guessing"}, "task: expected one of"),
    "rate": (network, supervised, {"rate": -1.0}, "rate"),
    "steps": (network, supervised, {"steps": 0}, "steps"),
    "rng": (network, supervised, {"rng": -1}, "rng"),
    "labels": (network, lambda: (torch.randn(4, 6), torch.tensor([0, 1, 2, 3])), {}, "1 outside"),
    "nan": (network, lambda: (torch.full((4, 6), float("nan")), torch.zeros(4).long()), {},
            "expected finite numbers, got NaN"),
    "vocabulary": (gpt2, lambda: {"input_ids": torch.full((3, 4), 64)}, {"targets": "c_attn"},
                   "from 0 to 63, got 12 outside"),
    "long": (gpt2, lambda: {"input_ids": torch.zeros(3, 40).long()}, {"targets": "c_attn"},
             "at most the 32 tokens"),
    "lengths": (network, lambda: (torch.randn(4, 6), torch.zeros(3).long()), {}, "equally many"),
    "loader": (network, lambda: torch.utils.data.DataLoader([1, 2]), {}, "no other sampler"),
    "nothing": (network, lambda: (torch.zeros(0, 6), torch.zeros(0).long()), {}, "equally many"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_the_model(case, tmp_path):
    make, data, extra, message = BAD[case]
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        prepared(model, data(), LOW_RANK, save=tmp_path / "a", **{**FAST, **extra})
    assert not list(tmp_path.iterdir())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias": "all"}, "expected only B to be trained"),
        ({"use_dora": True}, "expected only B to be trained"),
        ({"init_lora_weights": "pissa"}, "expected a random A"),
        ({"r": 4}, "expected the rank of the model's A"),
    ],
)
def test_what_else_peft_would_train_is_refused(settings, message):
    made = LoraConfig(**{"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True, **settings})
    with pytest.raises(ValueError, match=message):
        trained(get_peft_model(gpt2(), made), tokens(), LOW_RANK, **FAST)


def test_an_a_that_becomes_trainable_stops_the_run():
    run = prepared(network(), supervised(), LOW_RANK, **FAST)
    run.run.steps.layers[0].matrix_a.requires_grad_(True)
    with pytest.raises(ValueError, match="expected A frozen"):
        run.draw()


@pytest.mark.parametrize(
    ("method", "promise", "message"),
    [
        (LOW_RANK, None, "promise: expected one of Table, GivenNoise"),
        (LOW_RANK, Draw(nats=0.1), "promise: expected one of Table, GivenNoise"),
        (LOW_RANK, Table(mu=1.0), "promise: expected Table"),
        (LoRAFA(rank=2), Table(epsilon=1.0, delta=1e-3), "promise: expected None"),
        ("dp-sgd", Table(epsilon=1.0, delta=1e-3), "method: expected one of"),
    ],
)
def test_a_promise_that_a_method_does_not_keep_is_refused(method, promise, message):
    with pytest.raises(ValueError, match=message):
        fit(network(), supervised(), method, promise, Run(steps=1))


@pytest.mark.parametrize("method", METHODS)
def test_the_certificate_of_a_replaced_record_needs_more_noise(method):
    """Neighbours that differ by a replaced record are two steps of one more or less."""
    # the mixtures of a projection are not convolved where there is one step
    asked = {"epsilon": 2.0, "delta": 1e-3, "steps": 1 if method == "noisy-projection" else 2}
    run = prepared(network(), supervised(), METHODS[method], **asked)
    other = prepared(network(), supervised(), METHODS[method], **asked, adjacency="replace")
    ratio = other.run.steps.mechanism.noise_std / run.run.steps.mechanism.noise_std
    assert 1.0 < ratio < 2.0 * (1 + 1e-6)
    assert "replace" in other.guarantees[1].adjacency


def test_one_call_is_both(tmp_path):
    release = fit(
        network(), supervised(), LOW_RANK, GivenNoise(multiplier=2.0, delta=1e-3), Run(steps=1),
        steps=PoissonSteps(batch=12), save=tmp_path / "a", rng=3,
    )  # fmt: skip
    assert dict(read_adapter(tmp_path / "a").digests) == dict(release.digests)


def test_what_was_checked_is_what_is_trained_on():
    """Records that change after `prepare` are not those of the certificate."""
    found = []
    for changed in (False, True):
        model, (inputs, targets) = network(), supervised()
        run = prepared(model, (inputs, targets), LOW_RANK, rng=3, **FAST)
        if changed:
            inputs.fill_(1.0)
            targets.fill_(0)
        run.draw()
        with torch.no_grad():
            found.append(model(supervised()[0]))
    assert torch.equal(*found)
