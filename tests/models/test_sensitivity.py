"""Gradients of a state by embedded tokens, beside differences of the state itself."""

from __future__ import annotations

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel

from tacit.models import LanguageModel
from tacit.models.sensitivity import embedding_gradients

TOKENS = torch.tensor([[3, 4, 5, 1], [7, 7, 2, 9]])


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=12, n_embd=16, n_layer=2, n_head=2, n_positions=8,
                   initializer_range=0.3, bos_token_id=None, eos_token_id=None)
    )  # fmt: skip


def gemma():
    """A model that scales what it embeds."""
    return Gemma2ForCausalLM(
        Gemma2Config(vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                     num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                     max_position_embeddings=8, initializer_range=0.3)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("build", "size", "tolerance"),
    # Gemma's norms compute in float32 whatever they are given
    [(gpt2, 1e-5, 1e-4), (gemma, 1e-3, 1e-2)],
)
@pytest.mark.parametrize("layer", [1, 2])
def test_the_gradient_is_the_limit_of_differences(build, size, tolerance, layer):
    torch.manual_seed(0)
    model = LanguageModel(build().double().eval())
    target = torch.randn(2, 16, dtype=torch.float64)
    found = embedding_gradients(model, layer, TOKENS, lambda states: states - target)
    table = model.network.get_input_embeddings().weight.data
    step = torch.randn(16, dtype=torch.float64)
    # what moves is the table; the module may scale what it looks up
    scale = model.network.get_input_embeddings()(torch.tensor([3]))[0, 0] / table[3, 0]

    def half_squares(row: int, place: int, size: float) -> float:
        # a token of its own, so that only this place moves; nobody else uses it
        own = TOKENS[row : row + 1].clone()
        own[0, place] = 11
        kept = table[11].clone()
        table[11] = table[TOKENS[row, place]] + size * step
        states = model.states(own, layer).double()
        table[11] = kept
        return 0.5 * float(((states - target[row]) ** 2).sum())

    for row, place in ((0, 0), (0, 3), (1, 2)):
        ends = [half_squares(row, place, end) for end in (size, -size)]
        difference = (ends[0] - ends[1]) / (2 * size)
        moved = float(scale * (found[row, place].double() @ step))
        assert moved == pytest.approx(difference, rel=tolerance)


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model = LanguageModel(gpt2().eval())
    before = model.states(TOKENS, 2)
    embedding_gradients(model, 2, TOKENS, torch.ones_like)
    assert torch.equal(model.states(TOKENS, 2), before)
    assert not any(held.requires_grad for held in model.network.parameters())
    assert not model.network.get_input_embeddings()._forward_hooks


def test_what_the_model_does_not_have_is_refused():
    model = LanguageModel(gpt2().eval())
    with pytest.raises(ValueError, match="layer"):
        embedding_gradients(model, 3, TOKENS, torch.ones_like)
    with pytest.raises(ValueError, match="tokens"):
        embedding_gradients(model, 1, TOKENS + 10, torch.ones_like)
