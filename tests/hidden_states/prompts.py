"""Prompts whose upper layers are a small network, for codebooks."""

import torch

from tacit.hidden_states import Codebook, CodebookFit


class UpperNetwork:
    """Layers above a state that also read something clean of each prompt."""

    def __init__(self, width, vocabulary, context, seed=0):
        source = torch.Generator().manual_seed(seed)
        self.first = torch.randn(width, 32, generator=source) / width**0.5
        self.last = 3.0 * torch.randn(32, vocabulary, generator=source) / 32**0.5
        self.context = context

    def __len__(self):
        return len(self.context)

    def logits(self, states):
        return torch.tanh(states @ self.first + self.context) @ self.last

    def select(self, index):
        chosen = object.__new__(UpperNetwork)
        chosen.__dict__ = {**vars(self), "context": self.context[index]}
        return chosen


def prompts(count=1200, width=12, vocabulary=40, seed=0):
    source = torch.Generator().manual_seed(seed)
    states = torch.randn(count, width, generator=source) * torch.linspace(2, 0.3, width)
    context = 0.3 * torch.randn(count, 32, generator=source)
    upper = UpperNetwork(width, vocabulary, context)
    return states, upper, upper.logits(states)


def divergence(logits, table):
    """KL(p_i ‖ q_c) of every pair, in float64."""
    clean = torch.log_softmax(logits.double(), 1)
    return (clean.exp() * clean).sum(1)[:, None] - clean.exp() @ table.double().T


def fitted(states, *, behaviours=None, fisher=None, continuation=None, rng=None, **how):
    """A codebook of the fields of a CodebookFit and of what is known of the states."""
    return Codebook.fit(
        states,
        CodebookFit(**how),
        behaviours=behaviours,
        fisher=fisher,
        continuation=continuation,
        rng=rng,
        progress=False,
    )
