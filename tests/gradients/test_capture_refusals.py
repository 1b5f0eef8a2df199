"""What mixes examples, hides from the gradients or cannot make a step is refused by name."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tacit.gradients import per_example, verification, verify_examples
from tests.gradients.layers import CASES, Through, case, curved, parameter

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
GRAMS = ["exact", "forward", "none"]


def convolutional(norm):
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Flatten(), nn.Linear(36, 2))


def images():
    return torch.randn(6, 2, 5, 5), torch.randn(6, 2)


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)])
def test_batch_norm_is_refused_by_name(gram, norm):
    with pytest.raises(ValueError, match=r"^model: 1: BatchNorm2d mixes examples"):
        per_example(convolutional(norm), curved, *images(), gram=gram)


def test_batch_norm_without_statistics_of_its_own_is_refused_in_evaluation_too():
    model = convolutional(nn.BatchNorm2d(4, track_running_stats=False)).eval()
    with pytest.raises(ValueError, match=r"1: BatchNorm2d mixes examples"):
        per_example(model, curved, *images())


def test_batch_norm_as_a_function_is_refused():
    def call(self, values):
        return functional.batch_norm(values, None, None, self.weight, training=True)

    model = Through(call, weight=parameter(2))
    with pytest.raises(ValueError, match="weight belongs to a batch norm, which mixes examples"):
        per_example(model, curved, images()[0], torch.zeros(6, 2, 5, 5))


@pytest.mark.parametrize("gram", GRAMS)
def test_a_buffer_that_learns_of_the_examples_is_refused(gram):
    model = convolutional(nn.InstanceNorm2d(4, track_running_stats=True))
    with pytest.raises(ValueError, match=r"buffer 1\.running_mean changes"):
        per_example(model, curved, *images(), gram=gram)


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_embeddings_that_mix_examples_are_refused(option):
    model = nn.Sequential(nn.Embedding(9, 4, **option), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=f"0.weight is an embedding with {next(iter(option))}"):
        per_example(model, curved, torch.randint(0, 9, (6, 3)), torch.zeros(6, 3, 2))


@pytest.mark.parametrize("name", sorted(set(CASES) - {"resnet20", "transformer"}))
def test_separate_examples_pass(name):
    model, inputs, targets = case(name)
    verify_examples(model, curved, inputs, targets, examples=range(6))
    assert all(one.grad is None for one in model.parameters())


def test_random_layers_pass():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.PReLU(8), nn.Linear(8, 2))
    inputs, targets = torch.randn(6, 4), torch.randn(6, 2)
    state = torch.get_rng_state()
    verify_examples(model, curved, inputs, targets)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("exact", [True, False])
def test_a_statistic_of_the_batch_is_found(exact):
    def call(self, values):
        outputs = self.layer(values)
        return outputs - outputs.mean(dim=0)

    model = Through(call, layer=nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"layer\.weight for one example moves the loss"):
        verify_examples(model, curved, torch.randn(6, 4), torch.randn(6, 2), exact=exact)


def test_a_statistic_without_a_gradient_is_found():
    def call(self, values):
        outputs = self.layer(values)
        return outputs / outputs.detach().abs().max()

    torch.manual_seed(0)
    model = Through(call, layer=nn.Linear(4, 2))
    inputs = torch.randn(6, 4)
    inputs[5] *= 100.0
    with pytest.raises(ValueError, match="a loss changes with the examples that share its batch"):
        verify_examples(model, curved, inputs, torch.randn(6, 2))


def test_a_batch_along_another_dimension_is_found():
    def call(self, values):
        return self.layer(values.transpose(0, 1)).transpose(0, 1)

    model = Through(call, layer=nn.Linear(4, 2))
    # six positions and six examples
    with pytest.raises(ValueError, match=r"layer\.weight for one example moves the loss"):
        verify_examples(model, curved, torch.randn(6, 6, 4), torch.randn(6, 6, 2))


class Hidden(torch.autograd.Function):
    """A product that no function call shows."""

    @staticmethod
    def forward(ctx, values, weight):
        ctx.save_for_backward(values, weight)
        return values @ weight

    @staticmethod
    def backward(ctx, gradient):
        values, weight = ctx.saved_tensors
        return gradient @ weight.T, values.T @ gradient


def test_a_parameter_that_the_recorder_cannot_see_is_unused_or_found():
    def call(self, values):
        return Hidden.apply(values, self.weight) + self.layer(values)

    model = Through(call, weight=parameter(4, 2), layer=nn.Linear(4, 2))
    batch = torch.randn(6, 4), torch.randn(6, 2)
    with pytest.raises(ValueError, match="weight without a gradient"):
        per_example(model, curved, *batch).check()
    with pytest.raises(ValueError, match="the per-example gradient of weight is not the loss's"):
        verify_examples(model, curved, *batch)


@pytest.mark.parametrize("gram", GRAMS)
def test_an_unused_parameter_is_named(gram):
    model = Through(lambda self, values: self.used(values), used=nn.Linear(4, 2),
                    idle=nn.Linear(4, 2))  # fmt: skip
    found = per_example(model, curved, torch.randn(6, 4), torch.randn(6, 2), gram=gram)
    assert found.unused == ("idle.weight", "idle.bias")
    with pytest.raises(ValueError, match=r"got idle\.weight without a gradient \(2 of 4"):
        found.check()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpoints_are_refused(reentrant):
    def call(self, values):
        return self.last(checkpoint(self.first, values, use_reentrant=reentrant))

    model = Through(call, first=nn.Sequential(nn.Linear(4, 8), nn.Tanh()), last=nn.Linear(8, 2))
    with pytest.raises(ValueError, match="checkpoint"):
        per_example(model, curved, torch.randn(6, 4), torch.randn(6, 2)).check()
    assert all(one.requires_grad for one in model.parameters())


def test_an_input_that_changes_after_its_use_is_refused():
    def call(self, values):
        hidden = torch.sigmoid(self.first(values))
        outputs = self.second(hidden)
        hidden.mul_(2.0)
        return outputs

    model = Through(call, first=nn.Linear(4, 8), second=nn.Linear(8, 2))
    with pytest.raises((ValueError, RuntimeError), match=r"in ?place"):
        per_example(model, curved, torch.randn(6, 4), torch.randn(6, 2))
    assert all(one.requires_grad for one in model.parameters())


@pytest.mark.parametrize("gram", GRAMS)
def test_zero_gradients(gram):
    model = nn.Linear(4, 2)
    inputs = torch.randn(6, 4)
    found = per_example(model, curved, inputs, model(inputs).detach(), gram=gram)
    if gram == "none":
        found.check()
        return
    with pytest.raises(ValueError, match="a gradient that is not zero"):
        found.check()


def infinite_slope(model, inputs, targets):
    return (model(inputs)[:, 0] - targets[:, 0]).abs().sqrt()


@pytest.mark.parametrize("gram", GRAMS)
def test_gradients_that_are_not_finite(gram):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    inputs = torch.randn(6, 4)
    targets = model(inputs).detach()
    found = per_example(model, infinite_slope, inputs, targets, gram=gram)
    if gram != "none":
        with pytest.raises(ValueError, match="expected finite gradients"):
            found.check()
    with pytest.raises(ValueError, match=r"a bad one of 0\.weight"):
        found.weighted(np.ones(6))
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda m, x, y: curved(m, x, y).mean(), r"shape \(6,\), got shape \(\)"),
        (lambda m, x, y: curved(m, x, y)[:, None], r"got shape \(6, 1\)"),
        (lambda m, x, y: curved(m, x, y).tolist(), "got list"),
        (lambda m, x, y: curved(m, x, y).long(), "floating-point losses"),
        (lambda m, x, y: curved(m, x, y) / 0.0, "expected finite losses, got inf at 0"),
    ],
)
def test_losses_that_are_not_one_per_example(gram, loss, message):
    model = nn.Linear(4, 2)
    with pytest.raises(ValueError, match=f"^loss: .*{message}"):
        per_example(model, loss, torch.randn(6, 4), torch.randn(6, 2), gram=gram)
    assert all(one.requires_grad for one in model.parameters())


def test_arguments():
    model, inputs, targets = nn.Linear(4, 2), torch.randn(6, 4), torch.randn(6, 2)
    with pytest.raises(ValueError, match=r"^gram: expected one of 'exact'"):
        per_example(model, curved, inputs, targets, gram="ghost")
    with pytest.raises(ValueError, match=r"^micro_batch: expected an integer >= 1"):
        per_example(model, curved, inputs, targets, micro_batch=0)
    with pytest.raises(ValueError, match=r"^inputs: expected tensors of examples, got list"):
        per_example(model, curved, [1, 2], targets)
    with pytest.raises(ValueError, match=r"^inputs: expected at least one example"):
        per_example(model, curved, inputs[:0], targets[:0])
    found = per_example(model, curved, inputs, targets)
    with pytest.raises(ValueError, match=r"^coefficients: expected 6 entries"):
        found.weighted(np.ones(5))
    with pytest.raises(ValueError, match=r"^coefficients: expected finite numbers"):
        found.weighted(np.full(6, np.nan))
    with pytest.raises(ValueError, match=r"^examples: expected an integer <= 5"):
        verify_examples(model, curved, inputs, targets, examples=[6])
    with pytest.raises(ValueError, match=r"^model: expected a parameter that requires gradients"):
        per_example(model.requires_grad_(False), curved, inputs, targets)


def test_an_error_in_the_model_leaves_its_parameters_trainable():
    def call(self, values):
        self.layer(values)
        raise KeyError("broken")

    model = Through(call, layer=nn.Linear(4, 2))
    with pytest.raises(KeyError, match="broken"):
        per_example(model, curved, torch.randn(6, 4), torch.randn(6, 2))
    assert all(one.requires_grad for one in model.parameters())


@pytest.mark.parametrize("gram", ["forward", "none"])
def test_one_weighted_sum_without_gradients(gram):
    model, inputs, targets = nn.Linear(4, 2), torch.randn(6, 4), torch.randn(6, 2)
    found = per_example(model, curved, inputs, targets, gram=gram)
    found.weighted(np.ones(6))
    with pytest.raises(ValueError, match='expected "exact" for a second weighted sum'):
        found.weighted(np.ones(6))


@pytest.mark.parametrize("gram", ["forward", "none"])
def test_a_model_that_moved_since_is_refused(gram):
    model, inputs, targets = nn.Linear(4, 2), torch.randn(6, 4), torch.randn(6, 2)
    found = per_example(model, curved, inputs, targets, gram=gram, micro_batch=2)
    with torch.no_grad():
        model.weight += 1.0
    with pytest.raises(ValueError, match="expected the parameters of the capture"):
        found.weighted(np.ones(6))


def test_one_example():
    model = nn.Linear(4, 2)
    found = per_example(model, curved, torch.randn(1, 4), torch.randn(1, 2))
    assert found.gram.shape == (1, 1)
    verify_examples(model, curved, torch.randn(1, 4), torch.randn(1, 2))


@pytest.mark.parametrize("off", [1.0001, 1.5])
def test_rounding_in_float32_is_forgiven_and_a_wrong_gradient_is_not(monkeypatch, off):
    ordinary = verification._tolerance
    # as if float32 had rounded further than it did here
    monkeypatch.setattr(
        verification,
        "_tolerance",
        lambda losses: 1e-9 if losses.dtype == torch.float32 else ordinary(losses),
    )
    model, inputs, targets = nn.Linear(3, 2), torch.randn(6, 3), torch.randn(6, 2)

    def loss(model, inputs, targets):
        return (model(inputs) - targets).square().sum(dim=1)

    verify_examples(model, loss, inputs, targets)
    exact = verification.Exact.sums

    def wrong(self, weights):
        return {name: value * off for name, value in exact(self, weights).items()}

    monkeypatch.setattr(verification.Exact, "sums", wrong)
    with pytest.raises(ValueError, match="is not the loss's"):
        verify_examples(model, loss, inputs, targets)
