"""Per-example gradients of whole models, taken in somebody else's loop, against single passes."""

import pytest
import torch
from torch import nn

from tacit.gradients.batches import part
from tacit.gradients.calibration import outputs_of
from tacit.gradients.model import ModelGradients
from tests.gradients.models import FAMILIES

VOCABULARY = 13


class Recurrent(nn.Module):
    def __init__(self, kind, *, first):
        super().__init__()
        self.first = first
        self.table = nn.Embedding(VOCABULARY, 6, padding_idx=0)
        self.inner = kind(6, 5, batch_first=first)
        self.last = nn.Linear(5, 3)

    def forward(self, tokens):
        held = self.table(tokens)
        if self.first:
            return self.last(self.inner(held)[0][:, -1])
        return self.last(self.inner(held.transpose(0, 1))[0][-1])


class Positions(nn.Module):
    """A parameter of its own beside a layer whose batch comes second."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)

    def forward(self, inputs):
        return self.layer((inputs + self.places).transpose(0, 1)).transpose(0, 1)


class Tied(nn.Module):
    """A table that also gives the logits, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 6)
        self.twice = nn.Linear(6, 6)
        self.head = nn.Linear(6, VOCABULARY, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.twice(self.twice(self.table(tokens)).tanh()))


class Routed(nn.Module):
    """Two experts, each of which sees the positions that are sent to it."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 2)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def forward(self, inputs):
        flat = inputs.reshape(-1, 6)
        weights = self.gate(flat).softmax(dim=1)
        found = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            here = (weights.argmax(dim=1) == index).nonzero().flatten()
            found = found.index_add(0, here, expert(flat[here]) * weights[here, index, None])
        return found.reshape(inputs.shape)


class Experts(nn.Module):
    """Many experts of which most see no position of the examples that are tried."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 24)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 6)) for _ in range(24)]
        )

    def forward(self, inputs):
        flat = inputs.reshape(-1, 6)
        weights = self.gate(flat).softmax(dim=1)
        found = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            here = (weights.argmax(dim=1) == index).nonzero().flatten()
            if len(here):
                found = found.index_add(0, here, expert(flat[here]) * weights[here, index, None])
        return found.reshape(inputs.shape)


class BySign(nn.Module):
    """Whole examples by their sign: those that are made up to be tried all go one way."""

    def __init__(self):
        super().__init__()
        self.first, self.ways = nn.Linear(6, 6), nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, inputs):
        found = inputs.new_zeros(len(inputs), 3)
        for index, way in enumerate(self.ways):
            here = ((inputs.sum(dim=1) > 0) == (index == 0)).nonzero().flatten()
            if len(here):
                found = found.index_add(0, here, way(self.first(inputs)[here].tanh()))
        return found


class Sorted(nn.Module):
    """Examples by size, as packed sequences are, and back: those that are tried come sorted."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        order = inputs[:, 0].argsort(descending=True)
        return self.outer(self.inner(inputs[order]).tanh()[order.argsort()])


class Scaled(nn.Module):
    """A layer of which a hook makes the weight, times a number that is trained."""

    def __init__(self):
        super().__init__()
        self.inner = nn.utils.weight_norm(nn.Linear(6, 3))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, inputs):
        return self.inner(inputs) * self.scale.exp()


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=4, padding="same"), nn.ReLU(inplace=True),
        nn.Conv2d(8, 4, 2, padding="same", padding_mode="reflect"), nn.Conv2d(4, 16, 4),
        nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 5), nn.RMSNorm(5),
    )  # fmt: skip


def lines_and_volumes():
    return nn.Sequential(
        nn.Conv3d(1, 2, 3), nn.Flatten(2), nn.Conv1d(2, 3, 5, dilation=2), nn.Flatten(),
        nn.Linear(624, 2),
    )  # fmt: skip


def adapted(family, **settings):
    """A model with low-rank adapters as peft makes them, A and B both trained."""
    peft = pytest.importorskip("peft")
    made = peft.get_peft_model(FAMILIES[family][0](), peft.LoraConfig(**settings))
    for parameter in made.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.3)
    return made


def tokens(rows=4):
    return torch.randint(1, VOCABULARY, (rows, 6), generator=torch.Generator().manual_seed(1))


class ScaledTable(nn.Embedding):
    """A table whose rows are scaled as they are looked up, as Gemma's and Bart's are."""

    embed_scale = 3.0

    def forward(self, tokens):
        return super().forward(tokens) * self.embed_scale


MODELS = {
    "a table that scales": (
        lambda: nn.Sequential(ScaledTable(VOCABULARY, 4), nn.Linear(4, 3)),
        tokens,
    ),
    "convolutions": (convolutions, lambda: torch.randn(4, 3, 8, 8)),
    "lines and volumes": (lines_and_volumes, lambda: torch.randn(3, 1, 8, 8, 8)),
    "long short-term memory": (lambda: Recurrent(nn.LSTM, first=True), tokens),
    "gated units, batch second": (lambda: Recurrent(nn.GRU, first=False), tokens),
    "attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: torch.randn(4, 5, 8),
    ),
    "positions, batch second": (Positions, lambda: torch.randn(4, 5, 8)),
    "tied": (Tied, tokens),
    "routed": (Routed, lambda: torch.randn(4, 5, 6)),
    "experts that none was sent to yet": (Experts, lambda: torch.randn(4, 5, 6)),
    "examples that part after the trial": (BySign, lambda: torch.randn(4, 6)),
    "sorted within": (Sorted, lambda: torch.randn(4, 6)),
    "a weight that is made, and one number": (Scaled, lambda: torch.randn(4, 6)),
    "adapters of any rank": (
        lambda: adapted(
            "llama", r=4, target_modules=["q_proj", "v_proj"], rank_pattern={"q_proj": 2}
        ),
        tokens,
    ),
    "adapters with a magnitude": (
        lambda: adapted("llama", r=2, target_modules=["q_proj"], use_dora=True),
        tokens,
    ),
    "adapters beside a trained head": (
        lambda: adapted("bert", r=2, target_modules=["query"], modules_to_save=["classifier"]),
        tokens,
    ),
    "as many examples as positions": (FAMILIES["gpt2"][0], lambda: tokens(6)),
    **{name: (make, tokens) for name, (make, _) in FAMILIES.items()},
}


def weighted(outputs, weights):
    return sum((one * held).sum() for one, held in zip(outputs, weights, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_single_passes(name):
    torch.manual_seed(0)
    make, given = MODELS[name]
    model, inputs = make(), given()
    parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
    gradients = ModelGradients(model, parameters)
    gradients.attach()
    outputs = outputs_of(model(inputs), len(inputs))
    weights = [torch.randn_like(one) for one in outputs]
    gradients.backward(weighted(outputs, weights))
    norms = gradients.squared_norms()
    assert all(one.grad is None for one in parameters.values())
    for index in range(len(inputs)):
        with gradients.paused():
            alone = outputs_of(model(part(inputs, slice(index, index + 1), len(inputs))), 1)
        total = weighted(alone, [one[index : index + 1] for one in weights])
        found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        length = torch.stack([one.norm() for one in found if one is not None]).norm()
        picked = torch.eye(len(inputs), dtype=torch.float64)[index]
        for (held, parameter), one in zip(parameters.items(), found, strict=True):
            true = torch.zeros_like(parameter) if one is None else one
            if held not in gradients.found:
                assert not true.any(), held
                continue
            mine = gradients.found[held].sums(picked)
            assert float((mine - true).norm()) <= 1e-5 * float(length), held
            # the norm that clips is no less than that of what is summed, and not much more
            assert float(norms[held][index]) ** 0.5 >= float(mine.norm()) * (1 - 1e-12)
            assert float(norms[held][index]) ** 0.5 <= float(mine.norm()) + 1e-4 * float(length)
    gradients.detach()


@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_with_experts_moves_by_one_clip_with_one_record(passes):
    """Which expert a position goes to, and how many go there, differs from step to step."""
    torch.manual_seed(0)
    model, records = Experts(), torch.randn(12, 5, 6)
    parameters = dict(model.named_parameters())
    gradients = ModelGradients(model, parameters)
    gradients.attach()

    def clipped(inputs):
        losses = model(inputs).square().sum(dim=(1, 2)) * 1e3

        def factors(norms):
            factor = 1.0 / torch.stack(list(norms.values())).sum(dim=0).sqrt()
            return dict.fromkeys(norms, factor)

        if passes == 2:
            found = gradients.sums_twice(losses, factors)
        else:
            gradients.backward(losses)
            found = gradients.sums(factors(gradients.squared_norms()))
        gradients.forget()
        return found

    for count in (2, 5, 11):
        less, more = clipped(records[:count]), clipped(records[: count + 1])
        moved = [held - less.get(name, 0.0) for name, held in more.items()]
        length = float(torch.stack([one.square().sum() for one in moved]).sum().sqrt())
        assert length == pytest.approx(1.0, abs=1e-5)
    gradients.detach()


def test_a_parameter_that_hardly_matters_is_not_left_out():
    """A bias that is read without its layer, with a gradient below what comparisons see."""

    class Read(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, inputs):
            hidden = inputs @ self.first.weight.mT + 1e-7 * self.first.bias
            return self.second(hidden)

    model, inputs = Read(), torch.randn(4, 6)
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    gradients.backward(model(inputs).square().sum(1))
    assert set(gradients.found) == set(gradients.parameters)
    # the norm of a gradient that is right
    assert 0.0 < float(gradients.squared_norms()["first.bias"].max()) < 1e-8
    gradients.detach()


def test_a_model_that_cannot_be_run_back_in_evaluation_is_named():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, inputs):
            found = self.layer(inputs).exp()
            return found if self.training else found.mul_(2.0)

    model = Overwrites()
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    with pytest.raises(ValueError, match="got one that writes over what its gradients need"):
        model(torch.randn(4, 6))
    gradients.detach()


class WeighedBack(torch.autograd.Function):
    """The identity, whose gradients are weighed by a power of how many examples there are."""

    @staticmethod
    def forward(ctx, inputs, power):
        ctx.weight = len(inputs) ** -power
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradients):
        return gradients * ctx.weight, None


@pytest.mark.parametrize("power", [0.05, 0.5, 1.0])
def test_gradients_that_are_weighed_by_how_many_there_are_are_no_rounding(power):
    class Weighed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)

        def forward(self, inputs):
            return self.last(WeighedBack.apply(self.first(inputs).relu(), power))

    torch.manual_seed(0)
    model, inputs = Weighed(), torch.randn(5, 8)
    kept = {name: one.clone() for name, one in model.state_dict().items()}
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    gradients.backward(model(inputs).sum(1))
    # all is run again for each example, where the weight is 1
    assert gradients.again == ("",)
    found = gradients.sums(dict.fromkeys(gradients.parameters, torch.ones(5)))
    with gradients.paused():
        alone = [
            torch.autograd.grad(model(one[None]).sum(), list(model.parameters())) for one in inputs
        ]
    for (name, _), true in zip(model.named_parameters(), zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(found[name], sum(true).double(), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(one, kept[name]) for name, one in model.state_dict().items())
    gradients.detach()


def test_a_model_that_makes_much_of_rounding_is_not_refused():
    """Groups of two numbers, whose norm is lost where they are near each other, 26 deep."""
    torch.manual_seed(2)
    first = nn.Linear(16, 64)
    deep = [
        layer
        for _ in range(26)
        for layer in (nn.Linear(64, 64, bias=False), nn.GroupNorm(32, 64), nn.ReLU())
    ]
    model, inputs = nn.Sequential(first, *deep, nn.Linear(64, 3)), torch.randn(3, 16)
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    gradients.backward(model(inputs).sum(1))
    # each layer has its rule, and the gradients of all together are those of a plain pass
    assert not gradients.again
    found = gradients.sums(dict.fromkeys(gradients.parameters, torch.ones(3)))
    with gradients.paused():
        plain = torch.autograd.grad(model(inputs).sum(), list(model.parameters()))
    for (name, _), true in zip(model.named_parameters(), plain, strict=True):
        assert float((found[name] - true).norm()) <= 1e-5 * float(true.norm())
    gradients.detach()


class Twice(nn.Module):
    """What looks a table up for all, in passes of one kind."""

    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(4, 4), nn.Embedding(6, 4)

    def forward(self, values, *, looked=False):
        found = self.layer(values)
        return found + self.table(torch.arange(3)).sum(0) if looked else found


def test_a_second_pass_of_a_batch_may_show_what_is_taken_further_out():
    """Uses of the first one are still counted."""
    torch.manual_seed(0)
    model, first, second = Twice(), torch.randn(5, 4), torch.randn(5, 4)
    parameters = dict(model.named_parameters())
    gradients = ModelGradients(model, parameters)
    gradients.attach()
    losses = (model(first) + model(second, looked=True)).square().sum(1)
    norms = gradients.norms_alone(losses)
    assert gradients.again == ("",)
    with gradients.paused():
        losses = (model(first) + model(second, looked=True)).square().sum(1)
    for index, loss in enumerate(losses):
        true = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
        for name, one in zip(parameters, true, strict=True):
            assert float(norms[name][index]) == pytest.approx(float(one.norm()) ** 2, rel=1e-4)
    gradients.detach()


class Heavy(nn.Module):
    """What needs more memory than there is, once it is run for more than what is tried."""

    def __init__(self):
        super().__init__()
        self.scale, self.room = nn.Parameter(torch.ones(4)), True

    def forward(self, values):
        if not self.room:
            raise torch.OutOfMemoryError("no room for a batch")
        return self.scale * values


def test_a_device_that_is_full_is_told_as_it_is():
    model = nn.Sequential(Heavy(), nn.Linear(4, 2))
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    losses = model(torch.randn(5, 4)).sum(1)
    model[0].room = False
    with pytest.raises(torch.OutOfMemoryError, match="no room for a batch"):
        gradients.backward(losses)
    gradients.detach()
