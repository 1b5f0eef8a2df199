"""Dropout where a module is run again: each example has the mask that it had among others."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.gradients.calibration import _rounded_once_more
from tacit.gradients.draws import DrawError, of_examples
from tacit.gradients.model import ModelGradients


class Depth(nn.Module):
    """Leaves a branch out for some examples, as stochastic depth of torchvision does."""

    def forward(self, values):
        shape = [len(values)] + [1] * (values.ndim - 1)
        kept = torch.empty(shape, dtype=values.dtype).bernoulli_(0.6)
        return values * kept.div_(0.6) if self.training else values


class Path(nn.Module):
    """The same as timm and transformers write it."""

    def forward(self, values):
        kept = 0.6 + torch.rand((len(values),) + (1,) * (values.ndim - 1))
        return values.div(0.6) * kept.floor_() if self.training else values


class ScaledBlock(nn.Module):
    """A convolution's block whose scale is a parameter of its own, as ConvNeXt's is."""

    def __init__(self, depth):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GELU())
        self.depth = depth

    def forward(self, values):
        found = self.depth(self.scale * self.inner(values))
        found += values
        return found


class Windows(nn.Module):
    """Attention in windows with a table of relative positions, as Swin's is."""

    def __init__(self):
        super().__init__()
        self.joint, self.out = nn.Linear(6, 18), nn.Linear(6, 6)
        self.table = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, values):
        # two windows of four positions, one after another
        inside = values.reshape(-1, 4, 6)
        queries, keys, contents = self.joint(inside).reshape(-1, 4, 3, 2, 3).permute(2, 0, 3, 1, 4)
        weights = (queries @ keys.mT + self.table).softmax(-1)
        weights = functional.dropout(weights, 0.3, training=self.training)
        mixed = (weights @ contents).transpose(1, 2).reshape(values.shape)
        return functional.dropout(self.out(mixed), 0.3, training=self.training)


class Classed(nn.Module):
    """A token of its own before the positions, as of ViT, and layers that drop."""

    def __init__(self):
        super().__init__()
        self.token, self.places = (
            nn.Parameter(torch.randn(1, 1, 8)),
            nn.Parameter(torch.randn(6, 8)),
        )
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True) for _ in range(2)
        )

    def forward(self, values):
        found = torch.cat([self.token.expand(len(values), -1, -1), values], dim=1) + self.places
        for layer in self.layers:
            # a layer is left out for all
            if not self.training or torch.rand([]) < 0.7:
                found = layer(functional.dropout(found, 0.2, training=self.training))
        return found[:, 0]


class Second(nn.Module):
    """What has examples second."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, values):
        found = self.inner(values.transpose(0, 1))
        return (found[0] if isinstance(found, tuple) else found).transpose(0, 1)


class Noised(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3))

    def forward(self, values):
        noise = torch.randn_like(values) + torch.empty_like(values).uniform_(0.0, 1.0)
        return self.scale * (values + noise if self.training else values)


def pictures():
    return torch.randn(5, 4, 3, 3)


def positions():
    return torch.randn(4, 5, 8)


MODELS = {
    "stochastic depth": (
        lambda: nn.Sequential(ScaledBlock(Depth()), ScaledBlock(Depth())), pictures,
    ),
    "drop path": (lambda: ScaledBlock(Path()), pictures),
    "windows": (Windows, lambda: torch.randn(3, 8, 6)),
    "a class token": (Classed, positions),
    "attention, batch second": (
        lambda: Second(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.4)), positions,
    ),
    "long short-term memory": (lambda: Second(nn.LSTM(8, 6, 2, dropout=0.5)), positions),
    "gated units": (
        lambda: nn.Sequential(nn.GRU(8, 6, 2, dropout=0.5, batch_first=True), First()), positions,
    ),
    "noise": (Noised, lambda: torch.randn(4, 3)),
    "a batch of one": (Windows, lambda: torch.randn(1, 8, 6)),
}  # fmt: skip


class First(nn.Module):
    def forward(self, values):
        return values[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_every_example_has_what_was_drawn_for_it(name):
    torch.manual_seed(0)
    make, given = MODELS[name]
    model, inputs = make(), given()
    parameters = dict(model.named_parameters())
    gradients = ModelGradients(model, parameters)
    gradients.attach()
    with torch.no_grad():
        weights = torch.randn_like(model(inputs))

    def losses():
        torch.manual_seed(5)
        return ((model(inputs) * weights).flatten(1)).sum(1)

    # the first pass is tried, and draws what any other does
    gradients.backward(losses())
    states = torch.get_rng_state()
    with gradients.paused():
        plain = _of_each(losses(), list(parameters.values()))
    assert torch.equal(states, torch.get_rng_state())
    assert gradients.again
    for index, found in enumerate(plain):
        picked = torch.eye(len(inputs), dtype=torch.float64)[index]
        length = torch.stack([one.norm() for one in found if one is not None]).norm()
        for (held, parameter), one in zip(parameters.items(), found, strict=True):
            true = torch.zeros_like(parameter) if one is None else one
            if held not in gradients.found:
                assert not true.any(), held
                continue
            mine = gradients.found[held].sums(picked)
            assert float((mine - true).norm()) <= 1e-5 * float(length), held
    gradients.detach()


@pytest.mark.parametrize("kept", [False, True])
def test_masks_are_the_same_in_half_precision_in_checkpoints_and_in_both_of_two_passes(kept):
    torch.manual_seed(0)
    inner, inputs = Windows(), torch.randn(4, 8, 6)
    model = Checkpointed(inner) if kept else inner
    parameters = dict(model.named_parameters())
    gradients = ModelGradients(model, parameters)
    gradients.attach()

    def losses():
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(inputs).float().square().flatten(1).sum(1)

    losses()
    gradients.forget()
    sums = gradients.sums_twice(losses(), lambda norms: dict.fromkeys(norms, torch.ones(4)))
    with gradients.paused():
        plain = torch.autograd.grad(losses().sum(), list(parameters.values()))
    for (name, found), true in zip(sorted(sums.items()), sorted_by(parameters, plain), strict=True):
        assert float((found - true).norm()) <= 0.02 * float(true.norm()), name
    gradients.detach()


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, values):
        return torch.utils.checkpoint.checkpoint(self.inner, values, use_reentrant=False)


def sorted_by(parameters, values):
    return [one for _, one in sorted(zip(parameters, values, strict=True))]


class Drawing(nn.Module):
    """Noise that is drawn in another way, times a number."""

    def __init__(self, draw):
        super().__init__()
        self.scale, self.draw = nn.Parameter(torch.ones(3)), draw

    def forward(self, values):
        return self.scale * (self.draw(values) if self.training else values)


REFUSED = {
    "draws of NumPy or Python": lambda values: values + torch.from_numpy(
        np.random.rand(*values.shape)  # noqa: NPY002
    ).float(),
    # its slopes are drawn where its values are made
    "dropout that is not told apart": lambda values: functional.rrelu(values, training=True),
    # all together draw another number than one of them alone for each
    "is run again":  lambda values: values + torch.rand(len(values) ** 2)[: len(values), None],
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_drawn_for_each_example_is_refused_by_name(said):
    model, inputs = nn.Sequential(nn.Linear(3, 3), Drawing(REFUSED[said])), torch.randn(4, 3)
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    losses = model(inputs).sum(1)
    with pytest.raises(ValueError, match=f"expected no .*{said}.*gradients of 1.scale"):
        gradients.backward(losses)
    gradients.detach()


def test_numbers_are_told_apart_by_the_only_dimension_in_which_there_are_more():
    drawn = torch.arange(24.0).reshape(2, 6, 2)
    assert torch.equal(of_examples(drawn, (2, 2, 2), 3)[1], drawn[:, 2:4])
    assert torch.equal(of_examples(drawn, (2, 6, 2), 3)[2], drawn)
    for shape in ((2, 3, 2), (6, 2), ()):
        with pytest.raises(DrawError, match="of which one alone draws"):
            of_examples(drawn, shape, 3)


JOINED = {
    "a partner of each": lambda values: (values + values[torch.randperm(len(values))]) / 2,
    "a partner among all": lambda values: values + values[torch.randint(len(values), (1,))],
    "a mask of all": lambda values: values * torch.bernoulli(values.mean(0).sigmoid()),
    "a mask of all, in place": lambda values: values * torch.empty_like(values).bernoulli_(
        values.mean(0).sigmoid()
    ),
    "a count of all": lambda values: values * torch.poisson(values.abs().mean(0)),
    "noise about a mean": lambda values: values + torch.normal(
        values.mean(0).expand_as(values), 1.0
    ),
    "a share of all": lambda values: functional.dropout(values, float(values.mean().sigmoid())),
}  # fmt: skip


class Drawn(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, values):
        return self.draw(values) if self.training else values


@pytest.mark.parametrize("name", JOINED)
def test_what_is_drawn_by_a_law_of_other_examples_is_refused(name):
    """The same numbers drawn again would hide who they follow from."""
    torch.manual_seed(0)
    model = nn.Sequential(Drawn(JOINED[name]), nn.Linear(3, 3))
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    with pytest.raises(ValueError, match="got some that another example of the batch moves"):
        model(torch.randn(5, 3))
    gradients.detach()


OWN = {
    "bernoulli": lambda values: torch.bernoulli(values.sigmoid()),
    "poisson": lambda values: torch.poisson(values.abs()),
    "multinomial": lambda values: values * torch.multinomial(values.softmax(1), 1),
}


class Always(Drawn):
    def forward(self, values):
        return self.draw(values)


@pytest.mark.parametrize("kind", [Drawn, Always])
@pytest.mark.parametrize("name", OWN)
def test_what_is_drawn_by_a_law_of_each_example_is_taken(name, kind):
    torch.manual_seed(0)
    model = nn.Sequential(kind(OWN[name]), nn.Linear(3, 3))
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    gradients.backward(model(torch.randn(5, 3)).sum(1))
    assert set(gradients.found) == {"1.weight", "1.bias"}
    assert not gradients.again
    gradients.detach()


def test_a_rounding_more_reaches_what_autocast_keeps_and_leaves_nothing_there():
    layer, inputs = nn.Linear(4, 4), torch.randn(3, 4)
    owner = ModelGradients(layer, dict(layer.named_parameters()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = layer(inputs)
        with _rounded_once_more(owner):
            moved = layer(inputs)
        assert not torch.equal(before, moved)
        assert torch.equal(before, layer(inputs))


def _of_each(losses, values):
    return [
        torch.autograd.grad(one, values, retain_graph=True, allow_unused=True) for one in losses
    ]
