"""What a step does where the sums are: nothing is read by the host, and devices do not mix."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit._ground import bits
from tacit._ground.random import normals_from_words
from tacit.design import StepFactor
from tacit.gradients import DPSGD, AdaptiveDPSGD, NoisyProjection, randomness
from tacit.gradients.device_noise import _normals, _words, device_normal, key_stream
from tacit.gradients.model import ModelGradients
from tacit.gradients.pieces import _numbered
from tacit.gradients.publication import _publish_there, publish_tensor
from tacit.gradients.randomness import StepRandomness
from tacit.gradients.steps import StepLayer
from tacit.training.noisy_steps import NoisySteps
from tacit.training.workers import Workers
from tests.training.networks import Transformer

CPU = torch.device("cpu")
# Tensors there have shapes, a device and no numbers: what asks for a number, or adds one of the
# host's, is an error.
THERE = torch.device("meta")


def test_the_stream_is_that_of_the_standard():
    """RFC 8439, section 2.3.2: a key, a nonce, and a counter of 1."""
    found = key_stream(
        bytes(range(32)), 1, CPU, nonce=bytes.fromhex("000000090000004a00000000"), first=1
    )
    assert found.numpy().tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


# appendix A.1, vectors 1 to 5: the last byte of the key, that of the nonce, the block, its words
@pytest.mark.parametrize(
    ("key", "nonce", "block", "start"),
    [
        (b"", b"", 0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (b"", b"", 1, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"),
        (b"\1", b"", 1, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"),
        (b"\xff" + bytes(30), b"", 2, "72d54dfbf12ec44b362692df94137f328fea8da73990265e"),
        (b"", b"\2", 0, "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"),
    ],
)
def test_blocks_are_the_standards(key, nonce, block, start):
    whole = key.rjust(32, b"\0"), nonce.rjust(12, b"\0")
    found = key_stream(whole[0], block + 1, CPU, nonce=whole[1])[16 * block :]
    assert found.numpy().tobytes().hex().startswith(start)


def test_every_block_is_that_of_openssl():
    pytest.importorskip("cryptography")
    key = bits.fresh_key()
    assert key_stream(key, 300, CPU).numpy().tobytes() == bits.key_stream(key, 64 * 300)


def test_normal_numbers_are_those_of_the_processor():
    """Of the same words: the rare second words in the order of the values that need them."""
    words = torch.cat(
        [torch.tensor([0, -(2**63), 5, 2**63 - 1, -1, 2**54, 2**54 - 1]), _words(5000, CPU)]
    )
    count = len(words) - 600
    high, rest = words[:count].numpy().view(np.uint64), words[count:].numpy().view(np.uint64)
    low = np.zeros(count, dtype=np.uint64)
    short = np.flatnonzero((high & np.uint64(2**63 - 1)) < np.uint64(2**54))
    low[short] = rest[: len(short)]
    assert len(short) >= 4
    expected = normals_from_words(high, low)
    assert np.allclose(_normals(words, count).numpy(), expected, rtol=1e-14, atol=0)


def test_draws_are_normal_and_never_repeat():
    found = device_normal((200, 100), CPU)
    ordered = found.flatten().sort().values
    places = (torch.arange(20_000) + 0.5) / 20_000
    # Kolmogorov and Smirnov's distance of 20,000 draws is above .0141 once in a thousand
    assert float((torch.special.ndtr(ordered) - places).abs().max()) < 0.0165
    assert not torch.equal(found, device_normal((200, 100), CPU))


@pytest.mark.parametrize("deviation", [1e-3, 1.0, 3.7, 2.0**40])
def test_sums_are_rounded_as_on_the_processor(deviation):
    value = torch.randn(2000, dtype=torch.float64) * deviation * torch.logspace(-20, 30, 2000)
    noise = torch.randn(2000, dtype=torch.float64) * deviation
    # halves of the grid, decided by what the sum loses
    grid = 2.0 ** (np.floor(np.log2(deviation)) - 20)
    value[:500] = (torch.randint(-9, 9, (500,)) + 0.5) * grid
    noise[:500] = torch.randint(-9, 9, (500,)) * grid + 1e-30 * torch.randn(500)
    value[-1] = 1.7e308
    noise[-1] = 1.7e308
    ours = _publish_there(value, noise, deviation)
    assert torch.equal(ours, publish_tensor(value, noise, deviation))
    assert not bool(torch.signbit(ours[ours == 0.0]).any())
    each = torch.full((2000,), deviation, dtype=torch.float64)
    assert torch.equal(ours, _publish_there(value, noise, each))


def test_rows_that_occur_are_numbered_alike():
    class There(torch.Tensor):
        device = THERE

    keys = torch.randint(9, (3, 7))
    seen, numbers = _numbered(keys.as_subclass(There))
    assert torch.equal(seen[numbers].as_subclass(torch.Tensor), keys)
    assert len(set(numbers.flatten().tolist())) == len(keys.unique())


def images():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 10), nn.RMSNorm(10),
    )  # fmt: skip


def adapted():
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["joint"])
    return peft.get_peft_model(Transformer(20, 8, 6), settings)


def rows():
    return torch.randn(4, 5, 3)


class Last(nn.Module):
    def forward(self, found):
        return found[0][:, -1]


def tokens():
    return torch.randint(20, (4, 6))


class RootRMSNorm(nn.Module):
    """As transformers writes it; with more than its weight's part where ``one`` is not 0."""

    def __init__(self, one):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))
        self.variance_epsilon, self.one = 1e-6, one

    def forward(self, values):
        rate = torch.rsqrt(values.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.one + self.weight) * values * rate


def norms():
    return nn.Sequential(nn.Linear(3, 6), RootRMSNorm(0.0), RootRMSNorm(1.0))


CASES = {
    "norms of transformers": (norms, rows),
    "norms of vectors": (norms, lambda: torch.randn(4, 3)),
    "convolutions": (images, lambda: torch.randn(4, 3, 4, 4)),
    "attention, tied": (lambda: Transformer(20, 8, 6), tokens),
    "adapters": (adapted, tokens),
    "run again": (lambda: nn.Sequential(nn.GRU(3, 2, batch_first=True), Last()), rows),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("passes", "owners"), [(1, None), (2, [0, 0, 1, 2])])
@pytest.mark.parametrize("name", CASES)
def test_a_step_reads_nothing_and_stays_on_its_device(name, passes, owners, monkeypatch):
    make, given = CASES[name]
    model, inputs = make(), given()
    # noise has tests of its own
    monkeypatch.setattr(randomness, "device_normal", zeros)
    gradients = ModelGradients(model, trained(model))
    gradients.attach()
    # the first batch is tried, which compares numbers: once a run and not once a step
    model(inputs)
    # every norm has a rule
    assert not (gradients.again and "norms" in name)
    gradients.forget()
    model.to(THERE)
    gradients.parameters = trained(model)
    steps = NoisySteps(
        DPSGD(clip=1.0), 1.0, gradients.parameters, expected=4.0,
        randomness=StepRandomness(None), workers=Workers(),
    )  # fmt: skip

    def factors(norms):
        return steps.factors(norms, counted=True)

    whose = None if owners is None else torch.tensor(owners)
    found = model(inputs.to(THERE)).flatten(1).square().sum(1)
    if passes == 2:
        steps.add(gradients.sums_twice(found, factors, whose))
    else:
        gradients.backward(found)
        steps.add(gradients.sums(factors(gradients.squared_norms())))
    assert set(steps.sums) == set(gradients.parameters)
    steps.write(0)
    for one in gradients.parameters.values():
        assert one.grad.device == THERE
        assert one.grad.shape == one.shape
    gradients.detach()


def zeros(shape, device):
    return torch.zeros(shape, dtype=torch.float64, device=device)


def trained(model):
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def test_what_follows_norms_reads_the_device_once():
    """Noised counts move the next clip, a number of the host: the one that a step waits for."""
    parameters = {"w": nn.Parameter(torch.zeros(3, device=THERE))}
    steps = NoisySteps(
        AdaptiveDPSGD(clip=1.0),
        1.0,
        parameters,
        expected=4.0,
        randomness=StepRandomness(None),
        workers=Workers(),
    )
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        steps.write(0)
    assert parameters["w"].grad.device == THERE


def test_tied_noise_that_was_stored_goes_on_where_the_sums_are(monkeypatch):
    """What is read from a file lies with the host."""
    monkeypatch.setattr(randomness, "device_normal", zeros)
    parameters = {"w": nn.Parameter(torch.zeros(3, device=THERE))}
    steps = NoisySteps(
        DPSGD(clip=1.0), 1.0, parameters, expected=4.0, randomness=StepRandomness(None),
        workers=Workers(), factor=StepFactor(bands=(0.8, 0.6), shares=(0.5,), decays=(0.5,)),
    )  # fmt: skip
    stored = torch.zeros(3, dtype=torch.float64)
    steps.take_up({"w": ([stored], [stored])})
    steps.write(1)
    assert parameters["w"].grad.device == steps.tied["w"].buffers[0].device == THERE


def test_a_projected_step_publishes_where_its_sums_are(monkeypatch):
    total = torch.zeros(4, 6, dtype=torch.float64, device=THERE)
    draw = StepRandomness(None).normal(0, 0, THERE)
    assert DPSGD().publish(total, None, 1.0, draw).device == THERE
    # noise of the host goes where the sum is
    assert publish_tensor(total, torch.zeros(4, 6), 1.0).device == THERE
    # a seed's numbers are those of the processor, wherever they go
    assert torch.equal(
        StepRandomness(1).normal(0, 0, THERE)((3,)), StepRandomness(1).normal(0, 0)((3,))
    )
    held = torch.ones(2, 6, dtype=torch.float64)
    with pytest.raises((RuntimeError, NotImplementedError), match="copy out of meta"):
        # the grid of each column is set on the host by the lengths of A
        NoisyProjection(rank=2).publish(total, held.to(THERE), 1.0, draw)
    # a fresh A comes from the host, and products of both are no error there
    found = []
    monkeypatch.setattr(NoisyProjection, "publish", lambda *given: found.append(given[2].device))
    NoisyProjection(rank=2).noised(total, StepLayer(total, lambda: held, draw), 1.0)
    assert found == [THERE]
