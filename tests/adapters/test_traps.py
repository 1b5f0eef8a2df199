"""What must not go wrong beside the mathematics: models, folders and records that are traps."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tacit._ground.files import held
from tacit.adapters import (
    DPSGD,
    DPLoRAFA,
    LoRAFA,
    WithoutClipping,
    keep_apart,
    load_pretrained,
)
from tacit.adapters.texts import own_places
from tacit.ledger import Ledger
from tacit.releases import load
from tests.adapters.models import (
    FAST,
    audited,
    llama,
    network,
    prepared,
    supervised,
    tokens,
    trained,
)

METHOD = DPLoRAFA(rank=2)


def outputs(model):
    with torch.no_grad():
        return model(supervised()[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": (torch.ones(12, 6, dtype=torch.long), supervised()[1])}, "^data: .* raise"),
        ({"data": (torch.randn(12, 5), supervised()[1])}, r"^data: .*\(5,\)"),
        ({"data": (supervised()[0].to(torch.complex64), supervised()[1])}, "real numbers"),
        ({"data": (supervised()[0], torch.randn(12, 5))}, "^data: "),
        ({"held_out": (torch.randn(3, 2), torch.zeros(3).long())}, "^held_out: "),
        ({"loss": 3}, "^loss: "),
        ({"loss": lambda found, targets: 3.0}, "^loss: "),
        ({"loss": lambda found, targets: 1 / 0}, "ZeroDivisionError"),
        ({"targets": 3}, "^targets: "),
        ({"targets": None}, "^targets: "),
        ({"projections": 5}, "^projections: "),
        ({"projections": {"0": "a"}}, "^projections: "),
        ({"save": 5}, "^save: "),
        ({"checkpoint": ""}, "^checkpoint: "),
        ({"checkpoint": 5}, "^checkpoint: "),
        ({"save": "one", "checkpoint": "one"}, "^checkpoint: "),
    ],
)
def test_a_bad_argument_is_one_sentence(changed, message):
    given = {"data": supervised(), **FAST, **changed}
    with pytest.raises(ValueError, match=message):
        prepared(network(), given.pop("data"), METHOD, **given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_ids": torch.rand(8, 10)}, "integers"),
        ({"input_ids": torch.ones(8).long()}, "rows of tokens"),
        ({"input_ids": torch.ones(8, 0).long()}, "rows of tokens"),
        ({"input_ids": torch.ones(8, 10, 1).long()}, "rows of tokens"),
        ({"input_ids": torch.ones(8, 10).long(), "labels": torch.rand(8, 10)}, "integers"),
    ],
)
def test_tokens_of_another_shape_are_one_sentence(changed, message):
    with pytest.raises(ValueError, match=message):
        prepared(llama(), changed, METHOD, **FAST)


def test_all_layers_tied():
    model = network(6, 6)
    model[2] = torch.nn.Linear(6, 6)
    model[0] = torch.nn.Linear(6, 6)
    model[2].weight = model[0].weight
    with pytest.raises(ValueError, match=r"targets: expected layers with weights of their own"):
        prepared(model, supervised(), METHOD, **FAST)


class Mixing(torch.nn.Module):
    """Adds the batch's mean to a record."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, inputs):
        return self.layer(inputs + inputs.mean(dim=0))


def test_equal_first_records_do_not_hide_that_records_mix():
    inputs, targets = supervised()
    inputs[1], targets[1] = inputs[0], targets[0]
    with pytest.raises(ValueError, match="on that record alone"):
        prepared(Mixing(), (inputs, targets), METHOD, **FAST)


@pytest.mark.parametrize("method", [METHOD, DPSGD()])
def test_an_audit_leaves_no_trace_on_the_model(method):
    model = network()
    before = outputs(model)
    audited(model, supervised(), method, canaries=8, **FAST)
    assert torch.equal(outputs(model), before)
    audited(model, supervised(), method, canaries=8, keep=True, **FAST)
    assert not torch.equal(outputs(model), before)


def test_canaries_of_another_shape():
    canaries = torch.randn(8, 4), torch.zeros(8).long()
    with pytest.raises(ValueError, match="canaries: "):
        audited(network(), supervised(), METHOD, canaries=canaries, **FAST)
    canaries = torch.randn(8, 6), torch.full((8,), 9)
    with pytest.raises(ValueError, match="integers from 0 to 2"):
        audited(network(), supervised(), METHOD, canaries=canaries, **FAST)


def test_a_second_adapter_is_not_trained_on_top_of_a_first():
    model = network()
    prepared(model, supervised(), METHOD, **FAST)
    trained(model, supervised(), METHOD, **FAST)
    with pytest.raises(ValueError, match="an earlier run on 0"):
        prepared(model, supervised(), METHOD, **FAST)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_other_precision_are_trained_and_reloaded(kind, tmp_path):
    trained(llama().to(kind), tokens(), METHOD, save=tmp_path / "adapter", **FAST)
    trained(network().to(kind), supervised(), METHOD, **FAST)


def test_a_folder_that_is_there_is_refused_before_anything_is_spent(tmp_path):
    ledger, place = Ledger(tmp_path / "ledger.db"), tmp_path / "there"
    place.mkdir()
    with pytest.raises(ValueError, match="save: expected a folder that does not exist"):
        trained(
            network(), supervised(), METHOD,
            save=place, checkpoint=tmp_path / "run", ledger=ledger, secret="rows", **FAST,
        )  # fmt: skip
    assert not list(ledger.entries("rows"))
    assert not (tmp_path / "run").exists()


def test_one_process_at_a_time_trains_a_checkpoint(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    run = prepared(network(), supervised(), METHOD, checkpoint=place, **FAST)
    with held(place / "run"), pytest.raises(ValueError, match="no other process is training in"):
        run.draw()
    run.draw()


def test_an_empty_first_batch_without_noise_is_no_error():
    inputs, targets = supervised(4)
    for seed in range(6):
        trained(network(), (inputs, targets), LoRAFA(rank=2), steps=3, batch=1, rng=seed)


def test_what_is_learned_from_changes_by_one_record():
    rows = {"input_ids": torch.randint(64, (40, 6))}

    def learned(part):
        return {tuple(row) for row in keep_apart(part, 0.3)[0]["input_ids"].tolist()}

    whole = learned(rows)
    for place in range(40):
        others = torch.arange(40) != place
        assert len(whole ^ learned({"input_ids": rows["input_ids"][others]})) <= 1
    assert 20 <= len(whole) <= 36


def test_no_record_is_learned_from_in_the_place_of_another():
    rows = {"input_ids": torch.arange(200)[:, None]}
    apart = own_places(rows, 0) < 0.3
    aside = rows["input_ids"][torch.from_numpy(apart)]
    with pytest.raises(ValueError, match="records to learn from beside those kept apart"):
        keep_apart({"input_ids": aside}, 0.3)
    one = torch.cat([aside, rows["input_ids"][torch.from_numpy(~apart)][:1]])
    assert len(keep_apart({"input_ids": one}, 0.3)[0]["input_ids"]) == 1


def test_padding_does_not_move_a_record():
    ids = torch.randint(64, (5, 4))
    wide = torch.cat([ids, torch.zeros(5, 3, dtype=torch.long)], dim=1)
    mask = (torch.arange(7) < 4).long().expand(5, 7)
    narrow = own_places({"input_ids": ids}, 0)
    assert (own_places({"input_ids": wide, "attention_mask": mask}, 0) == narrow).all()


def test_convexity_is_told():
    method = WithoutClipping(rank=2, bound=20.0, smoothness=50.0)
    settings = {**FAST, "rate": 1e-4, "steps": 2}
    run = prepared(torch.nn.Sequential(torch.nn.Linear(6, 3)), supervised(), method, **settings)
    assert any("convex" in one for one in run.guarantees[0].assumptions)


def low_rank_model():
    chosen = LoraConfig(r=2, target_modules=["q_proj"])
    return get_peft_model(llama(), chosen)


@pytest.mark.parametrize("trainable", ["lora_A", "embed_tokens", "lm_head"])
@pytest.mark.parametrize("begun", [False, True])
def test_what_became_trainable_is_refused_before_anything_is_spent(trainable, begun, tmp_path):
    ledger, model = Ledger(tmp_path / "ledger.db"), low_rank_model()
    given = {**FAST, "checkpoint": tmp_path / "run"}
    if begun:
        trained(low_rank_model(), tokens(), METHOD, ledger=ledger, secret="rows", **given)
    run = prepared(model, tokens(), METHOD, **given)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trainable in name or "lora_B" in name)
    with pytest.raises(ValueError, match=r"model: expected .* frozen, got"):
        run.draw(ledger=ledger, secret="rows")
    assert ledger.spent("rows").releases == int(begun)


def test_an_a_that_becomes_trainable_between_steps_stops_the_run():
    model = low_rank_model()
    steps = prepared(model, tokens(), METHOD, **FAST).run.steps
    steps.step()
    steps.layers[0].matrix_a.requires_grad_(True)
    with pytest.raises(ValueError, match="expected A frozen"):
        steps.step()


@pytest.mark.parametrize("method", [METHOD, DPSGD()])
def test_a_trainable_a_of_peft_is_frozen_by_preparing(method):
    model = low_rank_model()
    held = [value for name, value in model.named_parameters() if "lora_A" in name]
    assert all(value.requires_grad for value in held)
    before = [value.detach().clone() for value in held]
    trained(model, tokens(), method, **FAST)
    assert all(torch.equal(*both) for both in zip(before, held, strict=True))


def replaced(place, budgeted):
    """Put another ledger in a ledger's place, with an entry of the same number and secret."""
    for file in place.parent.glob(f"{place.name}*"):
        file.unlink()
    book = Ledger(place)
    if budgeted:
        book.set_budget("rows", epsilon=100.0, delta=0.1)
    prepared(network(), supervised(), METHOD, **FAST).draw(ledger=book, secret="rows")
    return book


@pytest.mark.parametrize("budgeted", [False, True])
def test_a_ledger_put_in_the_place_of_the_run_s_own_is_refused(budgeted, tmp_path):
    place, given = tmp_path / "ledger.db", {**FAST, "checkpoint": tmp_path / "run"}
    trained(network(), supervised(), METHOD, ledger=Ledger(place), secret="rows", **given)
    book = replaced(place, budgeted)
    run = prepared(network(), supervised(), METHOD, **given)
    with pytest.raises(ValueError, match=r"ledger: expected the one in which release 1 of") as told:
        run.draw(ledger=book, secret="rows")
    assert str(told.value).count("\n") == 0
    assert book.spent("rows").releases == 1
    with pytest.raises(ValueError, match="ledger: expected the one in which"):
        run.draw(ledger=Ledger(tmp_path / "new.db"), secret="rows")


def test_a_ledger_that_moved_is_still_the_run_s_own(tmp_path):
    place, given = tmp_path / "ledger.db", {**FAST, "checkpoint": tmp_path / "run"}
    trained(network(), supervised(), METHOD, ledger=Ledger(place), secret="rows", **given)
    moved = Ledger(place.rename(tmp_path / "moved.db"))
    trained(network(), supervised(), METHOD, ledger=moved, secret="rows", **given)
    assert moved.spent("rows").releases == 1


@pytest.mark.parametrize("where", ["save", "checkpoint"])
@pytest.mark.parametrize("method", [METHOD, DPSGD()])
def test_a_full_disk_is_refused_before_anything_is_spent(where, method, tmp_path):
    resource = pytest.importorskip("resource", reason="needs limits of POSIX")
    ledger, before = Ledger(tmp_path / "ledger.db"), resource.getrlimit(resource.RLIMIT_FSIZE)
    run = prepared(
        network(1500, 1500), supervised(width=1500), method, **{where: tmp_path / "it"}, **FAST
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, before[1]))
    try:
        with pytest.raises(ValueError, match=rf"^{where}: cannot write .* bytes in "):
            run.draw(ledger=ledger, secret="rows")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not ledger.secrets()
    assert not [one for one in tmp_path.iterdir() if "ledger" not in one.name]
    run.draw(ledger=ledger, secret="rows")
    assert ledger.spent("rows").releases == 1


def test_noise_through_rows_that_depend_on_each_other_is_refused():
    method = WithoutClipping(rank=2, bound=20.0, smoothness=50.0)
    factor = torch.tensor([[1.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    for steps in (1, 2):
        settings = {**FAST, "rate": 1e-4, "steps": steps, "projections": {"0": factor}}
        with pytest.raises(ValueError, match="A of independent rows"):
            prepared(torch.nn.Sequential(torch.nn.Linear(6, 3)), supervised(), method, **settings)


def test_a_buffer_that_learns_after_the_first_step_is_refused():
    class Late(torch.nn.Linear):
        learns = False

        def forward(self, inputs):
            if self.learns:
                self.seen += inputs.sum()
            return super().forward(inputs)

    layer = Late(6, 3)
    layer.register_buffer("seen", torch.zeros(()))
    held = prepared(torch.nn.Sequential(layer), supervised(), DPLoRAFA(rank=2), **FAST)
    step = held.run.steps.step

    def stepped():
        step()
        layer.learns = True

    held.run.steps.step = stepped
    with pytest.raises(ValueError, match=r"0\.seen to stay as it was"):
        held.draw()


class Attends(torch.nn.Module):
    """Attention of torch, whose output layer is never called, before a head."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, inputs):
        rows = inputs[:, None]
        return self.head(self.attention(rows, rows, rows)[0][:, 0])


def test_attention_of_torch_is_left_out_or_refused_with_its_cause():
    made = prepared(Attends(), supervised(), METHOD, **FAST)
    assert made.run.steps.layers[0].name == "head"
    chosen = {**FAST, "targets": ["out_proj", "head"]}
    with pytest.raises(ValueError, match=r"attention\.out_proj', whose weight nn.Multihead"):
        prepared(Attends(), supervised(), METHOD, **chosen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make", [torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm]
)
def test_a_layer_whose_weight_is_made_is_left_out_or_refused(make):
    model = torch.nn.Sequential(make(torch.nn.Linear(6, 4)), torch.nn.Linear(4, 3))
    made = prepared(model, supervised(), METHOD, **FAST)
    assert [one.name for one in made.run.steps.layers] == ["1"]
    with pytest.raises(ValueError, match="got '0', which is no linear layer"):
        prepared(model, supervised(), METHOD, **{**FAST, "targets": ["0"]})


def test_a_model_without_numbers_and_a_device_without_any():
    with pytest.raises(ValueError, match=r'^model: .* got 0.weight on the device "meta"'):
        prepared(network().to("meta"), supervised(), METHOD, **FAST)
    with pytest.raises(ValueError, match=r"^device: .* got 'meta'"):
        load_pretrained("tacit/small", device="meta")


def test_a_rank_above_the_widest_layer_shows_nothing_more():
    widest = max(max(one.shape) for one in network().parameters())
    prepared(network(), supervised(), DPLoRAFA(rank=widest), **FAST)
    with pytest.raises(ValueError, match=rf"^rank: expected at most {widest}, .* got 100000; DPS"):
        prepared(network(), supervised(), DPLoRAFA(rank=100_000), **FAST)


def test_a_promise_in_name_only_says_so():
    options = {**FAST, "delta": 0.5}
    release = trained(network(), supervised(), METHOD, **options)
    assert "δ = 0.5 is at least one in 12" in release.notes[0]
    load(json.loads(json.dumps(release.to_dict())))
    options = {**FAST, "multiplier": 0.05}
    release = trained(network(), supervised(), METHOD, **options)
    assert "protects hardly anybody" in release.notes[0]


def test_adapters_of_an_embedding_are_refused_and_not_left_as_they_are():
    targets = ["embed_tokens", "q_proj"]
    model = get_peft_model(llama(), LoraConfig(r=2, target_modules=targets))
    with pytest.raises(ValueError, match=r"got Embedding in .*embed_tokens, which would not be tr"):
        prepared(model, tokens(), METHOD, **FAST)
