"""Where states come from: digests of what was used, and nothing of secrets in what is published."""

import hashlib
import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import codec  # noqa: E402
from tacit.hidden_states import Origin  # noqa: E402
from tacit.hidden_states.origin import digest_of, served_digest, tokens_digest  # noqa: E402
from tacit.models import Prefixes, load  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

SECRETS = {"texts": "a" * 64, "prompts": "b" * 64}
PUBLIC = {"public_texts": "c" * 64}


@pytest.fixture(scope="module")
def origin():
    prefixes = Prefixes.draw(range(90), bank=4, calibration=3, held_out=2, length=9, rng=0)
    model = small_network(vocabulary=90, width=8)
    flags = {"seed": 3, "bank": 4}
    return Origin.of(model, 1, prefixes, flags=flags, texts={**SECRETS, **PUBLIC})


def test_what_is_published_has_no_digest_of_a_secret(origin):
    public = origin.public
    said = repr(codec.write(Origin, public))
    assert origin.bank_digest not in said
    assert not [digest for digest in SECRETS.values() if digest in said]
    assert "seed" not in said
    assert public.texts == PUBLIC
    assert (public.model_digest, public.layer) == (origin.model_digest, 1)
    assert dict(public.digests).keys() == {
        "model", "served", "layer", "public texts", "calibration",
    }  # fmt: skip
    assert "bank" in dict(origin.digests)


@pytest.mark.parametrize(
    ("changed", "flag"),
    [
        ({"model_digest": "0" * 64}, "--model"),
        ({"served_digest": "0" * 64}, "--model"),
        ({"layer": 2}, "--layer"),
        ({"length": 8}, "--length"),
        ({"texts": {"prompts": "0" * 64}}, "--prompts"),
        ({"texts": {"public_texts": "0" * 64}}, "--public-texts"),
        ({"calibration_digest": "0" * 64}, "--calibration"),
        ({"bank_digest": "0" * 64}, "--bank"),
    ],
)
def test_what_differs_is_named_by_its_flag(origin, changed, flag):
    origin.check(origin, "a file")
    origin.check(replace(origin, model="another name"), "a file")
    with pytest.raises(ValueError, match=f"{flag}: a file was made with another one"):
        origin.check(replace(origin, **changed), "a file")


def test_an_origin_survives_a_file_and_bad_ones_are_refused(origin):
    for held in (origin, origin.public):
        assert codec.read(Origin, codec.write(Origin, held), "origin") == held
    content = codec.write(Origin, origin)
    wrong = [{"more": 1}, {"layer": "1"}, {"layer": True}, {"model": 3}, {"texts": []},
             {"layer": 0}, {"bank_digest": None}]  # fmt: skip
    for bad in (None, [], {}, *({**content, **change} for change in wrong)):
        with pytest.raises(ValueError, match="origin"):
            codec.read(Origin, bad, "origin")


def test_digests_are_of_names_shapes_and_numbers():
    tokens = torch.arange(6).reshape(2, 3)
    said = b"(2, 3)" + tokens.numpy().astype("<i8").tobytes()
    assert tokens_digest(tokens) == hashlib.sha256(said).hexdigest()
    assert tokens_digest(tokens.reshape(3, 2)) != tokens_digest(tokens)
    one = {"a": torch.ones(2), "b": torch.zeros(1)}
    seen = {
        digest_of(one),
        digest_of({"a": torch.ones(2), "c": torch.zeros(1)}),
        digest_of({"a": torch.ones(1, 2), "b": torch.zeros(1)}),
        digest_of({"a": torch.ones(2).bfloat16(), "b": torch.zeros(1)}),
        digest_of({"a": torch.ones(2), "b": -torch.zeros(1)}),
        digest_of(one, "about"),
    }
    assert len(seen) == 6
    assert digest_of(dict(reversed(one.items()))) == digest_of(one)


def test_another_tokenizer_or_configuration_is_another_model(tmp_path):
    from tests.cli.small_model import WORDS, write_model

    write_model(tmp_path / "model", seed=0)
    made = load(tmp_path / "model")
    told = served_digest(made.network, made.tokenizer)
    made.tokenizer(["w1 w2", "w3"], truncation=True, max_length=1, padding=False)
    assert served_digest(made.network, made.tokenizer) == told
    assert served_digest(load(tmp_path / "model").network, made.tokenizer) == told
    tokens = tmp_path / "model" / "tokenizer.json"
    content = tokens.read_text()
    tokens.write_text(content.replace('"w3"', '"x"').replace('"w4"', '"w3"').replace('"x"', '"w4"'))
    other = load(tmp_path / "model")
    assert set(other.tokenizer.get_vocab()) == set(WORDS)
    assert served_digest(other.network, other.tokenizer) != told
    tokens.write_text(content)
    config = tmp_path / "model" / "config.json"
    scaled = {**json.loads(config.read_text()), "scale_attn_by_inverse_layer_idx": True}
    config.write_text(json.dumps(scaled))
    other = load(tmp_path / "model")
    assert served_digest(other.network, other.tokenizer) != told
