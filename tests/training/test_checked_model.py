"""Layers of a model, the way of each to the gradient of every example, and whether it is right."""

import json
import sys

import pytest
import torch
from torch import nn

from tacit.training import check_model
from tests.cli_runner import in_process, refused

MINE = """
import torch
from torch import nn

def losses(model, rows):
    return model(rows).square().sum(1)

def good():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), torch.randn(6, 3), losses

def coupling(model, rows):
    return losses(model, rows) * losses(model, rows).mean()

def coupled():
    # a loss that those of the others weigh
    return nn.Linear(3, 4), torch.randn(6, 3), coupling

def broken():
    raise KeyError("a cell")
"""


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.states = nn.GRU(4, 5, batch_first=True)
        self.frozen = nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(5, 3)

    def forward(self, words):
        return self.out(self.frozen(self.states(self.words(words))[0][:, -1]))


def test_every_layer_has_its_way_and_is_right():
    torch.manual_seed(0)
    model = Recurrent()
    found = check_model(model, torch.randint(9, (7, 4)), lambda m, rows: m(rows).square().sum(1))
    assert found.right
    assert [(one.path, one.way) for one in found.layers] == [
        ("words", "by a rule"), ("states", "run again for each example"), ("out", "by a rule"),
    ]  # fmt: skip
    assert found.frozen == 30
    assert sum(one.parameters for one in found.layers) == sum(
        one.numel() for one in model.parameters() if one.requires_grad
    )
    # the model is as it was
    assert model.training
    assert all(one.grad is None for one in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("inputs", "losses", "said"),
    [
        (torch.randn(6, 3), lambda m, rows: m(rows).mean(), "losses: expected one loss per"),
        (torch.randn(1, 3), lambda m, rows: m(rows).sum(1), "inputs: expected at least two"),
        (torch.full((6, 3), torch.nan), lambda m, rows: m(rows).sum(1), "finite gradients"),
        (torch.randn(6, 3), lambda m, rows: m(rows).sum(1), "model: expected parameters"),
    ],
)
def test_what_cannot_be_checked_is_refused(inputs, losses, said):
    model = nn.Linear(3, 2)
    model.requires_grad_(not said.startswith("model"))
    with pytest.raises(ValueError, match=said):
        check_model(model, inputs, losses)


class Coded(nn.Module):
    """A variational autoencoder, which draws in evaluation too, with a scale of its own."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 4), nn.Linear(2, 6)
        self.scale = nn.Parameter(torch.rand(2))

    def forward(self, rows):
        means, widths = self.inner(rows).chunk(2, dim=1)
        return self.outer(self.scale * (means + torch.randn_like(means) * widths.exp()))


def test_what_is_drawn_in_evaluation_is_drawn_for_an_example_alone_too():
    def missed(model, rows):
        # noise and a time for each example, as diffusion draws them
        times = torch.rand(len(rows), 1)
        return (model(rows + times * torch.randn_like(rows)) - rows).square().sum(1)

    torch.manual_seed(0)
    found = check_model(Coded(), torch.randn(5, 6), missed)
    assert found.right
    assert not found.double
    with pytest.raises(ValueError, match="losses: expected numbers that are drawn for each"):
        check_model(
            nn.Linear(6, 6), torch.randn(5, 6),
            lambda model, rows: model(rows).sum(1) * torch.rand(len(rows) ** 2)[: len(rows)],
        )  # fmt: skip


def test_a_model_that_writes_over_its_own_values_is_named():
    class Overwrites(nn.Linear):
        def forward(self, rows):
            found = super().forward(rows).exp()
            return found if self.training else found.mul_(2.0)

    with pytest.raises(ValueError, match="got one that writes over what its gradients need"):
        check_model(Overwrites(6, 6), torch.randn(5, 6), lambda model, rows: model(rows).sum(1))


def test_the_command_says_which_layer_is_wrong(tmp_path, monkeypatch, capsys):
    tacit = in_process(capsys)
    (tmp_path / "mine_checked.py").write_text(MINE)
    # beside the caller, who has the installed command
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    outcome = tacit("training", "check", "mine_checked:good", "--json", "-")
    told = json.loads(outcome.out)
    assert (outcome.code, told["right"], len(told["layers"])) == (0, True, 2)
    outcome = tacit("training", "check", "mine_checked:coupled")
    assert outcome.code == 1
    assert "(model)  Linear" in outcome.out
    assert "WRONG by" in outcome.out
    outcome = tacit("training", "check", "mine_checked:broken")
    assert outcome.code == 3
    assert "a cell" not in outcome.err
    refused(tacit("training", "check", "mine_checked:none"), "MODEL", "there is no")
    refused(tacit("training", "check", "mine.py"), "MODEL", "module:function")
    sys.modules.pop("mine_checked")


def test_a_loss_that_is_divided_by_the_size_of_its_batch_is_wrong():
    found = check_model(
        nn.Linear(3, 4), torch.randn(6, 3), lambda m, rows: m(rows).square().sum(1) / len(rows)
    )
    assert not found.right


def test_what_rounding_alone_moves_is_right_in_double_precision():
    torch.manual_seed(0)
    deep = [
        layer
        for _ in range(8)
        for layer in (nn.Linear(32, 32, bias=False), nn.GroupNorm(16, 32), nn.ReLU())
    ]
    model = nn.Sequential(nn.Linear(16, 32), *deep, nn.Linear(32, 3))
    found = check_model(model, torch.randn(3, 16), lambda m, rows: m(rows).exp().sum(1))
    assert found.right
    assert found.double
    assert "double precision: single precision rounds more" in str(found)
    assert next(model.parameters()).dtype == torch.float32
