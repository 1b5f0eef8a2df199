"""Checkpoints of every family, from folders: read, replaced, padded as the model itself does it."""

import copy

import pytest

torch = pytest.importorskip("torch")
hub = pytest.importorskip("transformers")

from tacit.models import load  # noqa: E402
from tacit.models.next_states import next_states  # noqa: E402
from tacit.models.padding import PADDING, pad  # noqa: E402
from tests.models.families import (  # noqa: E402
    CONFIGURATIONS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    folder,
    network,
    words,
)

# of the largest logit, in every prompt; rounding to bfloat16 keeps 8 bits
CLOSE = {"float32": 2e-6, "bfloat16": 2e-2}


@pytest.fixture(scope="module", params=sorted(CONFIGURATIONS))
def stored(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    return {dtype: folder(request.param, place / dtype, getattr(torch, dtype)) for dtype in CLOSE}


@pytest.fixture(scope="module", params=sorted(CLOSE))
def model(request, stored):
    return load(stored[request.param], dtype="stored")


def prompts(count=5, length=11):
    return torch.randint(VOCABULARY, (count, length), generator=torch.Generator().manual_seed(3))


def stack(model):
    """The decoder blocks by the names that families give them."""
    body = model.network.base_model
    body = getattr(body, "decoder", body)
    return body.h if hasattr(body, "h") else body.layers


@torch.no_grad()
def hooked(model, tokens, layer, states):
    """The obvious way: replace what the decoder block returns in a plain forward pass."""

    def replace(_, arguments, output):
        changed = (output[0] if isinstance(output, tuple) else output).clone()
        changed[:, -1] = states.to(changed.dtype)
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    handle = stack(model)[layer - 1].register_forward_hook(replace)
    try:
        return model.network(tokens).logits[:, -1].float()
    finally:
        handle.remove()


def close(model, found, expected):
    assert found.dtype == torch.float32
    bound = CLOSE[str(model.anatomy.dtype).removeprefix("torch.")]
    error = (found - expected).abs().amax(dim=1) / expected.abs().max()
    assert float(error.max()) <= bound


def drawn(count, seed):
    return 2.0 * torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def test_continuation_is_the_hooked_forward(model):
    tokens = prompts()
    clean = model.network(tokens).logits[:, -1].float()
    close(model, model.logits(tokens, batch_size=2), clean)
    for layer in range(1, LAYERS + 1):
        states = drawn(len(tokens), layer)
        expected = hooked(model, tokens, layer, states)
        continued = model.continuation(tokens, layer, batch_size=3)
        close(model, continued.logits(states), expected)
        close(model, continued.logits(continued.clean_states), clean)
        rows = [4, 0, 4]
        close(model, continued.select(rows).logits(states[rows]), expected[rows])
        assert float((expected - clean).abs().max() / clean.abs().max()) > 0.1


def test_padded_prompts_are_those_alone(model):
    tokens = prompts()
    lengths = [11, 1, 4, 7, 2]
    alone = [row[-length:][None] for row, length in zip(tokens, lengths, strict=True)]
    padded = pad([row[0].tolist() for row in alone])
    assert padded.shape == tokens.shape
    assert int((padded == PADDING).sum()) == 5 * 11 - sum(lengths)
    states = drawn(5, 9)
    plain = torch.cat([model.network(row).logits[:, -1].float() for row in alone])
    close(model, model.logits(padded), plain)
    for layer in (1, LAYERS):
        found = torch.cat([model.states(row, layer) for row in alone])
        close(model, model.states(padded, layer, batch_size=2), found)
        expected = torch.cat(
            [hooked(model, row, layer, state[None])
             for row, state in zip(alone, states, strict=True)]
        )  # fmt: skip
        close(model, model.continuation(padded, layer).logits(states), expected)


def test_states_stop_before_the_final_norm(model):
    tokens = prompts()
    with torch.no_grad():
        listed = model.network(tokens, output_hidden_states=True).hidden_states
    for layer in range(LAYERS):
        close(model, model.states(tokens, layer), listed[layer][:, -1].float())
    last = model.states(tokens, LAYERS)
    run = model.continuation(tokens, LAYERS)
    close(model, model.anatomy.read_out(last), model.logits(tokens))
    if model.anatomy.norm is None:
        return
    with torch.no_grad():
        normed = model.anatomy.norm(last[:, None].to(model.anatomy.dtype))[:, 0].float()
    if listed[-1].shape[-1] == WIDTH:
        close(model, normed, listed[-1][:, -1].float())
        assert not torch.allclose(last, normed, rtol=0.1)
    with pytest.warns(UserWarning, match=r"after the final norm, as transformers' hidden_states"):
        run.logits(normed)


@pytest.mark.parametrize("family", ["gpt2", "bloom", "opt", "gemma3", "mistral", "qwen3_moe"])
def test_padded_prompts_generate_what_they_do_alone(family):
    model = load(network(family))
    alone = [[3, 7, 9, 12, 30, 2, 8], [5, 6], [4, 4, 4, 9]]
    states = drawn(3, 4)
    found = model.generate(pad(alone), 2, states, steps=6)
    for place, prompt in enumerate(alone):
        expected = model.generate([prompt], 2, states[place : place + 1], steps=6)
        assert torch.equal(found[place : place + 1], expected)


@pytest.mark.parametrize("family", ["bloom", "falcon-alibi", "gemma3", "gptj", "mixtral"])
def test_states_of_candidates_are_those_of_whole_prompts(family):
    model = load(network(family))
    prompt, candidates = pad([[5, 9, 3, 22, 8, 7], [4]])[0], torch.arange(VOCABULARY)
    whole = torch.cat([prompt.expand(VOCABULARY, -1), candidates[:, None]], dim=1)
    for start in (prompt, pad([prompt.tolist(), [0] * 9])[0]):
        for first, last in next_states(model, start, candidates, [1, LAYERS], batch_size=17):
            rows = slice(0, len(first))
            close(model, first, model.states(whole[rows], 1))
            close(model, last, model.states(whole[rows], LAYERS))
            whole = whole.roll(-len(first), 0)


def test_a_stored_model_is_held_as_asked(tmp_path):
    place = folder("llama", tmp_path / "m", torch.bfloat16)
    as_stored, single, half = (load(place, dtype=d) for d in ("stored", "float32", "bfloat16"))
    assert as_stored.anatomy.dtype == half.anatomy.dtype == torch.bfloat16
    assert single.anatomy.dtype == torch.float32
    tokens = prompts()
    assert torch.equal(as_stored.logits(tokens), half.logits(tokens))
    assert not torch.equal(as_stored.logits(tokens), single.logits(tokens))
    with pytest.raises(ValueError, match="dtype: expected one of 'float32', 'bfloat16', 'stored'"):
        load(place, dtype="int8")


def test_a_network_with_a_vision_tower_is_a_language_model_too():
    text = CONFIGURATIONS["gemma3"]().to_dict()
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
              "num_attention_heads": 2, "image_size": 16, "patch_size": 8}  # fmt: skip
    images = {"mm_tokens_per_image": 4, "image_token_index": 39, "boi_token_index": 38,
              "eoi_token_index": 37}  # fmt: skip
    config = hub.Gemma3Config(text_config=text, vision_config=vision, **images)
    torch.manual_seed(0)
    model = load(hub.AutoModelForImageTextToText.from_config(config))
    assert (model.layers, model.width) == (LAYERS, WIDTH)


def changing(block, change):
    """Let a block return something else than it computes."""
    inner = block.mlp.forward
    block.mlp.forward = lambda x: change(inner(x))


def broken(what):
    found = network("llama")
    body = found.model
    if what == "a block that is different every time":
        noise = torch.Generator().manual_seed(0)
        changing(body.layers[1], lambda x: x + torch.randn(x.shape, generator=noise))
    elif what == "a block that knows the length":
        changing(body.layers[1], lambda x: x * (1 + x.shape[1]))
    elif what == "positions that count padding":
        own = body.rotary_emb.forward
        body.rotary_emb.forward = lambda x, position_ids: own(
            x, (position_ids * position_ids.shape[1]).clamp_min(0)
        )
    elif what == "tokens that see what follows":
        for layer in body.layers:
            layer.self_attn.is_causal = False
            layer.register_forward_pre_hook(
                lambda _, given, named: (given, {**named, "attention_mask": None}),
                with_kwargs=True,
            )
    elif what == "something between the blocks":
        body.layers[1].register_forward_pre_hook(
            lambda _, given, named: ((given[0] * 1.5, *given[1:]), named),
            with_kwargs=True,
        )
    return found


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("a block that is different every time", "logits differ"),
        ("a block that knows the length", "logits continued from layer 0 differ"),
        ("positions that count padding", "logits continued from layer 0 differ"),
        ("tokens that see what follows", "logits continued from layer 0 differ"),
    ],
)
def test_a_model_that_does_not_agree_is_refused_by_what_does_not(what, words):
    load(network("llama"))
    with pytest.raises(
        ValueError, match="name_or_path: cannot take .* apart: its " + words
    ) as told:
        load(broken(what))
    assert str(told.value).count("\n") == 0


def test_blocks_that_do_not_follow_each_other_are_refused():
    with pytest.raises(ValueError, match=r"one stack of decoder blocks, got .* with 0 of them"):
        load(broken("something between the blocks"))


def test_what_is_no_causal_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a causal language model of transformers"):
        load(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"with an output head, got 'LlamaModel'"):
        load(network("llama").base_model)
    sizes = {
        "vocab_size": 30,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 16,
        "num_layers": 2,
        "num_heads": 2,
    }
    with pytest.raises(ValueError, match="does not predict from tokens alone"):
        load(hub.T5ForConditionalGeneration(hub.T5Config(**sizes)))
    masked = hub.BertForMaskedLM(
        hub.BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                       intermediate_size=16)
    )  # fmt: skip
    with torch.no_grad():
        for parameter in masked.parameters():
            parameter.mul_(20.0 if parameter.ndim > 1 else 1.0)
    with pytest.raises(ValueError, match="logits continued from layer 0 differ"):
        load(masked)


def hooks_of(module):
    return sum(len(p._forward_hooks) + len(p._forward_pre_hooks) for p in module.modules())


def test_verification_leaves_no_trace():
    model = load(network("mixtral"))
    before = {name: vars(part).get("forward") for name, part in model.network.named_modules()}
    assert not any(before.values())
    hooks = hooks_of(model.network)
    model.continuation(prompts(), 2).logits(drawn(5, 1))
    assert hooks_of(model.network) == hooks
    assert not any(vars(part).get("forward") for part in model.network.modules())
    assert torch.equal(copy.deepcopy(model.network)(prompts()).logits[:, -1],
                       model.network(prompts()).logits[:, -1])  # fmt: skip


def test_prompts_are_tokens_as_the_model_is_served_them(tmp_path):
    model = load(folder("llama", tmp_path / "m"))
    texts = ["w5 w6", "w7", "w8 w9 w10"]
    assert model.prompts(texts).tolist() == [[-1, 0, 5, 6], [-1, -1, 0, 7], [0, 8, 9, 10]]
    assert model.encode("w5 w6") == [5, 6]
    with pytest.raises(ValueError, match=r"chat_template: the tokenizer of .* has none"):
        model.prompts(texts, chat_template=True)
    model.tokenizer.chat_template = (
        "{{ bos_token }} w4 {% for m in messages %}{{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}w11{% endif %}"
    )
    found = model.prompts(texts, chat_template=True)
    assert found[0].tolist() == [-1, 0, 4, 5, 6, 11]
    assert words().decode(found[1, 2:]) == "<s> w4 w7 w11"
    with pytest.raises(ValueError, match="texts: expected texts that are not empty, got none at 1"):
        model.prompts(["w5", ""])
