"""A split-memory model is a model of transformers, and Tacit takes it apart as any other."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from tacit.hidden_states import (  # noqa: E402
    GeometryFit,
    Sizes,
    SweepRequest,
    least_signal,
    measure_geometry,
    sweep,
)
from tacit.models import (  # noqa: E402
    LanguageModel,
    Prefixes,
    SplitMemoryConfig,
    SplitMemoryForCausalLM,
    load,
)

TRUNK, MEMORY, VOCABULARY = 8, 24, 50


def network(seed=0, **sizes):
    """A network with random weights large enough that every part matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = SplitMemoryForCausalLM(
            SplitMemoryConfig(
                vocab_size=VOCABULARY, n_positions=32, trunk_width=TRUNK, memory_width=MEMORY,
                n_layer=3, trunk_heads=2, memory_heads=3, **sizes,
            )
        )  # fmt: skip
        with torch.no_grad():
            for part in found.parameters():
                part.add_(0.2 * torch.randn_like(part))
    return found.eval()


def prompts(count=6, length=7, seed=0):
    return torch.randint(VOCABULARY, (count, length), generator=torch.Generator().manual_seed(seed))


def test_it_is_saved_and_loaded_by_the_ordinary_way(tmp_path):
    made = network()
    made.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), SplitMemoryConfig)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, SplitMemoryForCausalLM)
    tokens = prompts()
    assert torch.equal(again(tokens).logits, made(tokens).logits)
    assert (again.config.trunk_width, again.config.memory_width) == (TRUNK, MEMORY)


@pytest.mark.parametrize("padded", [False, True])
def test_generation_with_a_cache_is_generation_without(padded):
    made, tokens = network(), prompts()
    mask = torch.ones_like(tokens)
    if padded:
        mask[:3, :4] = 0
    options = {"max_new_tokens": 10, "do_sample": False, "attention_mask": mask, "pad_token_id": 0}
    cached = made.generate(tokens, use_cache=True, **options)
    plain = made.generate(tokens, use_cache=False, **options)
    assert cached.shape == (6, 17)
    assert torch.equal(cached, plain)


def test_parts_continuation_and_generation_agree_with_plain_passes():
    model = load(network())
    assert (model.layers, model.width) == (3, TRUNK + MEMORY)
    tokens = prompts()
    states = model.states(tokens, 2)
    torch.testing.assert_close(
        model.continuation(tokens, 2).logits(states), model.logits(tokens), rtol=1e-4, atol=1e-4
    )
    greedy = model.network.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert torch.equal(model.generate(tokens, 1, None, steps=4), greedy[:, -4:])


def test_logits_are_read_from_the_trunk_alone():
    model = load(network())
    tokens = prompts()
    last = model.continuation(tokens, model.layers)
    moved = last.clean_states.clone()
    moved[:, TRUNK:] += 5.0
    assert torch.equal(last.logits(moved), last.logits(last.clean_states))
    below = model.continuation(tokens, 1)
    moved = below.clean_states.clone()
    moved[:, TRUNK:] += 5.0
    assert (below.logits(moved) - below.logits(below.clean_states)).abs().max() > 1e-3


def test_without_a_gate_the_memory_never_reaches_the_logits():
    made = network()
    with torch.no_grad():
        for block in made.transformer.h:
            block.gate.zero_()
    model = LanguageModel(made)
    found = measure_geometry(
        model, 1, prompts(40), GeometryFit(rank=4, label_source="model-exact"), rng=0
    )
    assert np.abs(found.dense_fisher[TRUNK:]).max() == 0.0


def rescaled(made, factor):
    """The same function with v in other units: v → a v."""
    other = copy.deepcopy(made)
    body = other.transformer
    with torch.no_grad():
        for table in (body.wte, body.wpe):
            table.weight[:, TRUNK:] *= factor
        for block in body.h:
            block.from_memory.weight /= factor
            block.from_trunk.weight *= factor
            for part in (block.memory.projection, block.memory.down):
                part.weight *= factor
                part.bias *= factor
            # an epsilon in a norm is in units of the square
            for norm in (block.memory.norm, block.memory.middle):
                norm.eps *= factor**2
    return other


def test_m_star_survives_other_units_of_the_memory_and_the_published_gain_does_not():
    made = network()
    tokens = prompts(200, seed=3)
    found = {}
    for factor in (1.0, 10.0):
        model = LanguageModel(rescaled(made, factor))
        torch.testing.assert_close(
            model.logits(tokens), LanguageModel(made).logits(tokens), rtol=1e-3, atol=1e-3
        )
        found[factor] = measure_geometry(
            model,
            2,
            tokens,
            GeometryFit(rank=4, label_source="model-exact", difference_scale="raw"),
            rng=0,
        )
    plain, moved = found[1.0], found[10.0]
    assert moved.least_signal == pytest.approx(plain.least_signal, rel=1e-3)
    assert moved.mahalanobis_gain > 3 * plain.mahalanobis_gain
    again = least_signal(plain.dense_fisher, plain.spread)
    assert again.value == pytest.approx(plain.least_signal, rel=1e-9)


def test_the_sweep_runs_on_it():
    model = load(network())
    sets = Prefixes.draw(
        torch.randint(VOCABULARY, (3000,), generator=torch.Generator().manual_seed(1)),
        bank=60, calibration=80, held_out=40, length=8, rng=0,
    )  # fmt: skip
    sizes = Sizes(geometry=60, pairs=40, prompts=40, generated=0, queries=20, held_out=8)
    request = SweepRequest(mechanisms=["isotropic"], kl_budgets=[0.5], readings=("raw",))
    (point, *_) = sweep(model, [2], request, prefixes=sets, sizes=sizes, rng=0)
    assert 0.0 <= point.agreement.value <= 1.0
    assert point.best_attack.top1.value >= 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trunk_width": 0}, "trunk_width: expected an integer >= 1"),
        ({"trunk_heads": 3}, "trunk_heads: expected a divisor of the width 64, got 3"),
        ({"memory_heads": 5}, "memory_heads: expected a divisor of the width 192, got 5"),
        ({"gate": -1.0}, "gate: expected a finite number >= 0"),
        ({"n_layer": 0}, "n_layer: expected an integer >= 1"),
    ],
)
def test_bad_sizes_get_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        SplitMemoryConfig(**change)


def test_tokens_or_embeddings_and_not_both():
    with pytest.raises(ValueError, match="input_ids: expected either"):
        network()(None)


def test_a_loss_comes_with_labels():
    made, tokens = network(), prompts()
    logits = made(tokens).logits
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    )
    torch.testing.assert_close(made(tokens, labels=tokens).loss, expected)


def test_logits_are_kept_at_chosen_places():
    made, tokens = network(), prompts()
    whole = made(tokens).logits
    places = torch.tensor([2, 6])
    assert torch.equal(made(tokens, logits_to_keep=places).logits, whole[:, places])
    assert torch.equal(made(tokens, logits_to_keep=2).logits, whole[:, -2:])


def test_more_positions_than_there_are_and_other_masks_are_refused():
    made = network()
    with pytest.raises(ValueError, match="at most 32 positions, got 33"):
        made(prompts(length=33))
    with pytest.raises(ValueError, match="attention_mask"):
        made(prompts(), attention_mask=torch.ones(6, 1, 7, 7))
