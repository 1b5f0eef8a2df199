"""A language model in another process is the same one."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.hidden_states.networks import CONFIGURATIONS, random_model  # noqa: E402

READ = """
import pickle, sys
import torch
torch.set_num_threads(1)
model, tokens = pickle.load(open(sys.argv[1], "rb"))
hidden = model.network(tokens, output_hidden_states=True).hidden_states
found = [model.states(tokens, 2), model.logits(tokens), *hidden, model.generate(tokens, 1, None, 3)]
torch.save(found, sys.argv[2])
"""


@pytest.fixture(params=sorted(CONFIGURATIONS))
def model(request):
    return random_model(request.param)


@pytest.fixture
def tokens():
    return torch.from_numpy(np.random.default_rng(0).integers(61, size=(5, 7)))


@torch.no_grad()
def answers(model, tokens):
    hidden = model.network(tokens, output_hidden_states=True).hidden_states
    return [
        model.states(tokens, 2), model.logits(tokens), *hidden,
        model.generate(tokens, 1, None, 3),
    ]  # fmt: skip


def same(left, right):
    return len(left) == len(right) and all(map(torch.equal, left, right))


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_a_copy_has_the_same_bits(model, tokens, copied):
    expected = answers(model, tokens)
    made = copied(model)
    assert repr(made) == repr(model)
    assert made.network is made.anatomy.network is not model.network
    assert not any(parameter.requires_grad for parameter in made.network.parameters())
    assert same(answers(made, tokens), expected)
    assert same(answers(model, tokens), expected)
    # a copy of a copy, whose hooks were hung on again
    assert same(answers(copied(made), tokens), expected)


def test_another_process_has_the_same_bits(tmp_path, tokens):
    model = random_model("qwen3")
    torch.save(answers(model, tokens), tmp_path / "expected")
    (tmp_path / "model").write_bytes(pickle.dumps((model, tokens)))
    subprocess.run([sys.executable, "-c", READ, tmp_path / "model", tmp_path / "found"], check=True)
    assert same(torch.load(tmp_path / "found"), torch.load(tmp_path / "expected"))


def test_weights_that_are_shared_stay_shared():
    model = random_model("gpt2")
    made = pickle.loads(pickle.dumps(model))
    assert made.anatomy.head.weight is made.network.get_input_embeddings().weight


def test_a_hook_of_the_user_is_a_part_of_the_model(tokens):
    model = random_model("llama")
    plain = model.logits(tokens)
    model.anatomy.blocks[0].register_forward_hook(lambda _, __, output: output * 1.5)
    steered = model.logits(tokens)
    assert not torch.equal(plain, steered)
    assert torch.equal(pickle.loads(pickle.dumps(model)).logits(tokens), steered)
