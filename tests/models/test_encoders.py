"""Embeddings of texts are the pooled states of each text alone, whatever stands beside it."""

import json
import shutil
import socket

import numpy as np
import pytest

tokenizers = pytest.importorskip("tokenizers")
torch = pytest.importorskip("torch")
hub = pytest.importorskip("transformers")

from tacit.models import encode, load, load_encoder  # noqa: E402
from tacit.models.encoders import POOLINGS, Encoder, pool  # noqa: E402
from tests.models.families import CONFIGURATIONS, words  # noqa: E402

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 20, "pad_token_id": 2}  # fmt: skip
ENCODERS = {
    "bert": lambda: hub.BertConfig(**SIZES),
    "roberta": lambda: hub.RobertaConfig(**{**SIZES, "bos_token_id": 0, "eos_token_id": 1}),
    "distilbert": lambda: hub.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=20,
        pad_token_id=2,
    ),
}  # fmt: skip
TEXTS = ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13 w14", "w5 w6 w7", "w20 w21"]


@pytest.fixture(scope="module", params=sorted(ENCODERS))
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    network = hub.AutoModel.from_config(ENCODERS[request.param]())
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    network.save_pretrained(place)
    words().save_pretrained(place)
    return place


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_embedding_is_the_pooled_state_of_the_text_alone(folder, pooling):
    encoder = load_encoder(folder, pooling=pooling)
    found = encode(encoder, TEXTS, batch_size=2)
    assert found.shape == (5, 16)
    assert found.dtype == torch.float32
    for text, row in zip(TEXTS, found, strict=True):
        tokens = torch.tensor([[0, *(int(word[1:]) for word in text.split())]])
        with torch.no_grad():
            states = encoder.network(tokens).last_hidden_state[0]
        expected = {"mean": states.mean(dim=0), "cls": states[0], "last": states[-1]}[pooling]
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found[0], found[3])
    assert float((found[0] - found[1]).abs().max()) > 0.1


def test_what_a_folder_says_of_pooling_is_taken_over(folder, tmp_path):
    plain = encode(folder, TEXTS)
    torch.testing.assert_close(plain, load_encoder(folder, pooling="mean").encode(TEXTS))
    (folder / "1_Pooling").mkdir()
    modes = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True,
             "pooling_mode_mean_tokens": False}  # fmt: skip
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    kinds = [{"type": f"sentence_transformers.models.{k}"}
             for k in ("Transformer", "Pooling", "Normalize")]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(kinds))
    try:
        found = encode(folder, TEXTS)
        first = load_encoder(folder, pooling="cls", normalise=False).encode(TEXTS)
        torch.testing.assert_close(found, torch.nn.functional.normalize(first, dim=1))
        (folder / "modules.json").write_text(json.dumps([*kinds, {"type": "models.Dense"}]))
        with pytest.raises(ValueError, match="expected steps Transformer, Pooling, Normalize"):
            load_encoder(folder)
        modes["pooling_mode_max_tokens"] = True
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
        with pytest.raises(ValueError, match="pooling_mode_max_tokens"):
            load_encoder(folder)
    finally:
        (folder / "modules.json").unlink()
        (folder / "1_Pooling" / "config.json").unlink()
        (folder / "1_Pooling").rmdir()


def test_what_a_folder_says_of_serving_is_taken_over(folder, tmp_path):
    served = tmp_path / "served"
    shutil.copytree(folder, served)
    (served / "1_Pooling").mkdir()
    pooled = served / "1_Pooling" / "config.json"
    pooled.write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (served / "modules.json").write_text(json.dumps([{"type": "models.Transformer"}]))
    (served / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 5, "do_lower_case": True})
    )
    prompts = {"prompts": {"query": "W7 w8 "}, "default_prompt_name": "query"}
    (served / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    encoder, plain = load_encoder(served), load_encoder(folder)
    assert encoder.context == 5
    first = plain.encode(["w7 w8 w9 w10"])
    torch.testing.assert_close(encoder.encode(["  W9 w10 w11 w12 "]), first)
    assert encoder.lengths(["w9 w10 w11"]) == [6]
    pooled.write_text(json.dumps({"pooling_mode_mean_tokens": True, "include_prompt": False}))
    with pytest.raises(ValueError, match="includes the prompt"):
        load_encoder(served)
    (served / "sentence_bert_config.json").write_text("[")
    with pytest.raises(ValueError, match="cannot read"):
        load_encoder(served)


def test_a_text_without_a_token_is_the_zero_vector(folder):
    encoder = load_encoder(folder)
    encoder.tokenizer.backend_tokenizer.post_processor = tokenizers.processors.Sequence([])
    found = encoder.encode(["", "w3 w4", ""])
    assert not found[[0, 2]].any()
    torch.testing.assert_close(found[1:2], encoder.encode(["w3 w4"]))
    assert not encoder.encode([""]).any()


def test_long_texts_are_cut_where_the_encoder_ends(folder):
    encoder = load_encoder(folder)
    assert encoder.context == (17 if "roberta" in str(folder) else 20)
    long = " ".join(f"w{3 + i % 30}" for i in range(60))
    cut = " ".join(long.split()[: encoder.context - 1])
    torch.testing.assert_close(encode(encoder, [long]), encode(encoder, [cut]))


def test_pooling_sees_padding_on_either_side():
    states = torch.arange(8.0).reshape(2, 4, 1)
    mask = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1]])
    assert pool(states, mask, "mean")[:, 0].tolist() == [1.5, 6.5]
    assert pool(states, mask, "cls")[:, 0].tolist() == [1.0, 6.0]
    assert pool(states, mask, "last")[:, 0].tolist() == [2.0, 7.0]


class Careless(torch.nn.Module):
    """An encoder that looks at padding."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    def get_input_embeddings(self):
        return self.inner.get_input_embeddings()

    def forward(self, input_ids, attention_mask):
        return self.inner(input_ids, torch.ones_like(attention_mask))


def test_an_encoder_that_looks_at_padding_is_refused():
    torch.manual_seed(0)
    network = hub.AutoModel.from_config(ENCODERS["bert"]())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(8.0 if parameter.ndim == 2 else 1.0)
    assert Encoder(network, words()).width == 16
    with pytest.raises(ValueError, match="encoder: padding changes embeddings of Careless by"):
        Encoder(Careless(network), words())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: load_encoder(""), "name_or_path: expected a name or a folder"),
        (lambda f: load_encoder("./no/such"), "name_or_path: cannot load './no/such'"),
        (lambda f: load_encoder(f, pooling="max"), "pooling: expected one of 'mean'"),
        (lambda f: encode(f, []), "texts: expected at least one text"),
        (lambda f: encode(f, ["w5", "w6 \ud800"]), "texts: .* surrogate pair in text 1"),
        (lambda f: encode(f, "one text"), "texts: expected at least one text in a list"),
        (lambda f: encode(f, ["w5", 3]), "texts: expected at least one text"),
        (lambda f: encode(f, ["w5"], batch_size=0), "batch_size: expected an integer >= 1"),
        (lambda f: Encoder(None, words()), "encoder: expected a transformers model"),
        (lambda f: Encoder(hub.AutoModel.from_config(ENCODERS["bert"]()), None), "tokenizer"),
    ],
)
def test_bad_input_gets_a_sentence(folder, call, message):
    with pytest.raises(ValueError, match=message):
        call(folder)


def without(folder, place, part):
    """Copy a stored model without the weights whose names hold ``part``; say how many they are."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, place)
    weights = load_file(place / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if part not in name}
    save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
    return len(weights) - len(kept)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_weights_that_a_checkpoint_lacks_are_not_drawn_at_random(folder, tmp_path):
    lost = without(folder, tmp_path / "cut", "layer.1.")
    assert lost > 0
    with pytest.raises(ValueError, match=r"name_or_path: cannot load '.*cut': its check.* lack"):
        load_encoder(tmp_path / "cut")
    without(folder, tmp_path / "bare", "pooler.")
    whole, bare = load_encoder(folder), load_encoder(tmp_path / "bare")
    torch.testing.assert_close(encode(bare, TEXTS), encode(whole, TEXTS), rtol=0, atol=0)
    again = load_encoder(tmp_path / "bare").network.state_dict()
    assert all(torch.equal(again[name], w) for name, w in bare.network.state_dict().items())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "3"),
        ("config.json", '{"model_type": ["bert"]}'),
        ("config.json", '{"model_type": "bert", "num_attention_heads": 0}'),
        ("config.json", '{"model_type": "bert", "dtype": "no such"}'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"tokenizer_class": 3}'),
    ],
)
@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_settings_of_the_wrong_kind_are_no_crash(folder, file, content, tmp_path):
    shutil.copytree(folder, tmp_path / "odd")
    (tmp_path / "odd" / file).write_text(content)
    with pytest.raises(ValueError, match=r"name_or_path: cannot load '.*odd'"):
        load_encoder(tmp_path / "odd")


def test_a_decoder_without_its_head_is_refused(tmp_path):
    network = hub.AutoModelForCausalLM.from_config(CONFIGURATIONS["qwen3"]())
    network.base_model.save_pretrained(tmp_path / "body")
    words().save_pretrained(tmp_path / "body")
    with pytest.raises(ValueError, match=r"lacks 1 of the weights of a Qwen3For.* lm_head.weight"):
        load(tmp_path / "body")


def test_a_decoder_embeds_by_its_last_token():
    network = hub.AutoModel.from_config(CONFIGURATIONS["qwen3"]())
    encoder = Encoder(network, words(), pooling="last", normalise=True)
    found = encoder.encode(TEXTS)
    np.testing.assert_allclose(found.norm(dim=1), 1.0, rtol=1e-6)
    torch.testing.assert_close(found[:1], encoder.encode(TEXTS[:1]))


@pytest.mark.parametrize("reading", [load_encoder, load])
@pytest.mark.parametrize("name", ["nofolder", "nobody/nothing", "a/b/c", "/no/such/folder"])
def test_a_name_of_nothing_is_refused_without_asking_again(reading, name, monkeypatch):
    asked = []

    def unreachable(*given, **_):
        asked.append(given)
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(ValueError, match=f"name_or_path: cannot load '{name}': there is no such"):
        reading(name)
    # the libraries ask for once more themselves, and no longer five times with pauses
    assert len(asked) <= 2


def test_a_folder_asks_nobody(folder, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    assert load_encoder(folder).width > 0


def test_no_bit_of_an_embedding_depends_on_the_other_texts(folder):
    encoder = load_encoder(folder)
    whole = encoder.encode(TEXTS)
    for place, text in enumerate(TEXTS):
        others = [other for at, other in enumerate(TEXTS) if at != place]
        assert torch.equal(encoder.encode([text])[0], whole[place])
        assert torch.equal(encoder.encode([*others[:2], text])[-1], whole[place])
