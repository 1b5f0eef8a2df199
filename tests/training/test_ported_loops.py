"""Loops written as the tutorials of Opacus and accelerate are, and models that others wrote."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tacit.gradients import DPSGD, GivenNoise
from tacit.training import check_model, make_private
from tests.training.loops import NOISE, losses, network, records


def test_the_script_of_opacus_with_two_lines_changed():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(4, 8, 4, 2),
        nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(8 * 16, 10),
    )  # fmt: skip
    data = TensorDataset(torch.randn(40, 1, 28, 28), torch.randint(10, (40,)))
    loader = DataLoader(data, batch_size=20, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss(reduction="none")
    private = make_private(
        model, optimizer, loader, DPSGD(clip=1.0), GivenNoise(multiplier=1.1, delta=1e-5), epochs=1
    )
    for images, targets in private.loader:
        optimizer.zero_grad()
        loss = criterion(model(images), targets)
        private.backward(loss)
        optimizer.step()
    assert private.release().details.taken == 2


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"max_grad_norm": 1.2}, r"^max_grad_norm: .* Opacus calls so is the method DPSGD\(clip"),
        ({"target_epsilon": 8.0}, r"is the promise Table\(epsilon"),
        (
            {"micro_batch": 8},
            r"^micro_batch: expected it in settings=LoopSettings\(micro_b",
        ),
        ({"rounds": 8}, "^rounds: expected epochs, settings or no_budget, got another option"),
    ],
)
def test_what_is_called_otherwise_there_is_said(option, said):
    model = network()
    with pytest.raises(ValueError, match=said):
        make_private(
            model, torch.optim.SGD(model.parameters()), DataLoader(records(), batch_size=8),
            DPSGD(), NOISE, epochs=1, **option,
        )  # fmt: skip


@pytest.mark.parametrize("kept", ["model", "optimizer", "loader"])
@pytest.mark.filterwarnings("ignore")
def test_what_the_engine_of_opacus_makes_is_refused_by_name(kept):
    opacus = pytest.importorskip("opacus")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {
        "model": model, "optimizer": optimizer, "loader": DataLoader(records(), batch_size=8)
    }  # fmt: skip
    makes = {
        "model": opacus.GradSampleModule,
        "optimizer": lambda one: opacus.optimizers.DPOptimizer(
            one, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=8
        ),
        "loader": opacus.data_loader.DPDataLoader.from_data_loader,
    }
    given[kept] = makes[kept](given[kept])
    with pytest.raises(ValueError, match=f"^{kept}: expected the one that PrivacyEngine is given"):
        make_private(*given.values(), DPSGD(), NOISE, epochs=1)


def test_a_memory_manager_of_opacus_is_told_what_stands_in_its_place():
    memory = pytest.importorskip("opacus.utils.batch_memory_manager")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(records(), batch_size=8)
    private = make_private(model, optimizer, loader, DPSGD(), NOISE, epochs=1)
    manager = memory.BatchMemoryManager(
        data_loader=private.loader, max_physical_batch_size=4, optimizer=optimizer
    )
    with pytest.raises(AttributeError, match=r"LoopSettings\(micro_batch=…\) stands in"), manager:
        pass
    private.close()


def test_a_squeeze_that_takes_the_row_of_an_example_alone_is_named():
    """The text classifier of Opacus' tutorial, whose pooled words are squeezed."""

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, words):
            pooled = nn.functional.adaptive_avg_pool1d(self.words(words).transpose(1, 2), 1)
            return self.out(pooled.squeeze())

    said = r"got none of 1; one that passes alone loses its row to a squeeze\(\)"
    with pytest.raises(ValueError, match=said):
        check_model(
            Text(),
            torch.randint(9, (4, 5)),
            lambda model, rows: model(rows).reshape(len(rows), -1).sum(1),
        )


@pytest.mark.parametrize("prepared", ["before", "after"])
def test_a_loop_of_accelerate_with_two_lines_changed(prepared):
    """What accelerate makes of model, optimizer, loader and schedule is taken as it is."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    loader = DataLoader(records(), batch_size=8, shuffle=True)
    if prepared == "after":
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    private = make_private(model, optimizer, loader, DPSGD(), NOISE, epochs=1)
    if prepared == "before":
        model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    before = [one.detach().clone() for one in model.parameters()]
    for inputs, targets in private.loader:
        optimizer.zero_grad()
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        schedule.step()
    assert private.release().details.schedule.sampling_rate == 8 / 24
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_loader_whose_batches_are_divided_by_another_is_refused():
    batches = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(range(24)), 8, False)

    class Divided:
        split_batches, batch_sampler = True, batches

        def __iter__(self):
            return iter(batches)

    model = network()
    loader = DataLoader(records(), batch_sampler=Divided())
    with pytest.raises(ValueError, match="got batches of its own"):
        make_private(model, torch.optim.SGD(model.parameters()), loader, DPSGD(), NOISE, epochs=1)


# Each by its class, its configuration and what it reads; all but a few at length only.
SMALL = {
    "vocab_size": 60, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 1}
FAMILIES = {
    "OPT": ("OPTForCausalLM", {"vocab_size": 60, "hidden_size": 16, "ffn_dim": 32,
            "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32,
            "word_embed_proj_dim": 16}),
    "T5": ("T5ForConditionalGeneration", {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 32,
           "num_layers": 2, "num_heads": 2}),
    "Mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 3}),
    "Gemma3Text": ("Gemma3ForCausalLM", {**GROUPED, "head_dim": 8, "sliding_window": 4}),
    "Mamba": ("MambaForCausalLM", {"vocab_size": 60, "hidden_size": 16, "state_size": 4,
              "num_hidden_layers": 2}),
    "Phi": ("PhiForCausalLM", SMALL),
    "DeepseekV3": ("DeepseekV3ForCausalLM", {**SMALL, "num_key_value_heads": 2,
                   "moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 1,
                   "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 8, "kv_lora_rank": 8,
                   "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
                   "first_k_dense_replace": 1}),
    "ConvNextV2": ("ConvNextV2ForImageClassification", {"hidden_sizes": [8, 16], "depths": [1, 1],
                   "num_stages": 2, "image_size": 16}),
    "Qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "Mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 4}),
    "Falcon": ("FalconForCausalLM", {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2,
               "num_attention_heads": 2}),
    "Roberta": ("RobertaForSequenceClassification", SMALL),
    "Albert": ("AlbertForSequenceClassification", {**SMALL, "embedding_size": 8}),
    "DebertaV2": ("DebertaV2ForSequenceClassification", {**SMALL, "relative_attention": True,
                  "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    "ViT": ("ViTForImageClassification", {"hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 32, "image_size": 16, "patch_size": 8}),
    "Swin": ("SwinForImageClassification", {"image_size": 16, "patch_size": 2, "embed_dim": 8,
             "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}),
}  # fmt: skip
ALWAYS = ("OPT", "T5", "Mixtral")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "family", [one if one in ALWAYS else pytest.param(one, marks=pytest.mark.thorough)
               for one in FAMILIES]
)  # fmt: skip
def test_models_that_others_wrote_have_the_gradients_of_single_examples(family):
    transformers = pytest.importorskip("transformers")
    name, settings = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, name)(config)
    images = "image_size" in settings
    inputs = torch.randn(4, 3, 16, 16) if images else torch.randint(3, 60, (4, 6))

    def losses_of(held, rows):
        named = {"pixel_values": rows} if images else {"input_ids": rows}
        if family == "T5":
            named["decoder_input_ids"] = rows
        logits = held(**named).logits.flatten(0, -2)
        found = functional.cross_entropy(
            logits, torch.zeros(len(logits), dtype=torch.long), reduction="none"
        )
        return found.reshape(len(rows), -1).mean(1)

    found = check_model(model, inputs, losses_of)
    assert found.right
    assert max(one.error for one in found.layers) < 1e-5
