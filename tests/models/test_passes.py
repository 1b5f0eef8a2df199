"""What is read of many prompts: kept, made again, or taken from what is going to be continued."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import DynamicCache  # noqa: E402

from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    Sizes,
)
from tacit.hidden_states.audit.laboratory import Laboratory  # noqa: E402
from tacit.models.continuation import prefilled  # noqa: E402
from tacit.models.generation import Prefilled  # noqa: E402
from tacit.models.padding import before_last, pad  # noqa: E402
from tacit.models.passes import Pass, Passes, Rerun, lone_states  # noqa: E402
from tacit.models.texts.prefixes import Prefixes  # noqa: E402
from tests.hidden_states.networks import random_model, small_network  # noqa: E402

VOCABULARY, WIDTH = 40, 16


@pytest.fixture(scope="module")
def model():
    return small_network(vocabulary=VOCABULARY, width=WIDTH)


@pytest.fixture(scope="module")
def tokens():
    source = np.random.default_rng(5)
    return pad(
        [source.integers(VOCABULARY, size=source.integers(1, 9)).tolist() for _ in range(90)]
    )


def test_what_is_run_again_is_what_would_be_stored(model, tokens):
    stored, again = Pass.of(model, tokens, [1]), Pass.of(model, tokens, [1], most=0)
    assert isinstance(again.behaviours, Rerun)
    assert torch.equal(stored.states[1], again.states[1])
    assert torch.equal(stored.behaviours.argmax(), again.behaviours.argmax())
    whole = stored.behaviours.probabilities(slice(None))
    assert torch.equal(whole, again.behaviours.probabilities(slice(None)))
    rows = torch.tensor([80, 3, 3, 41])
    for found in (again.behaviours.select(rows).probabilities(slice(0, 4)),
                  again.behaviours.probabilities(rows)):  # fmt: skip
        torch.testing.assert_close(found, whole[rows], rtol=1e-3, atol=0)
    book = Codebook.fit(
        stored.states[1],
        CodebookFit(size=4, metric="behaviour", codewords="centroid", least_cell=1),
        behaviours=stored.behaviours,
        rng=0,
        progress=False,
    )
    codes = [
        book.assign(part.states[1], behaviours=part.behaviours).tolist() for part in (stored, again)
    ]
    assert codes[0] == codes[1]


def test_no_bit_of_a_prompt_that_is_released_depends_on_the_others(model, tokens):
    whole, states = Pass.alone(model, tokens, 1), lone_states(model, 1, tokens)
    plain = Pass.of(model, tokens, [1])
    torch.testing.assert_close(whole.states[1], plain.states[1], rtol=1e-4, atol=1e-5)
    for rows in ([0], [7, 3], list(range(1, 90, 2))):
        some = Pass.alone(model, tokens[rows], 1)
        assert torch.equal(some.states[1], whole.states[1][rows])
        assert torch.equal(
            some.behaviours.probabilities(slice(None)),
            whole.behaviours.probabilities(torch.tensor(rows)),
        )
        assert torch.equal(lone_states(model, 1, tokens[rows]), states[rows])


@pytest.mark.parametrize("trained", [37, 60])
def test_prompts_that_are_continued_are_read_with_the_same_bits(model, trained):
    stream = np.random.default_rng(1).integers(VOCABULARY, size=4000)
    drawn = Prefixes.draw(stream, bank=20, calibration=60, held_out=10, length=6, rng=0)
    plain = Passes.of(model, drawn, [1, 2], trained)
    kept = Passes.of(model, drawn, [1], trained, continues=True)
    assert plain.learnt is None
    assert len(kept.learnt) == trained
    for name in ("bank", "calibration"):
        one, other = getattr(plain, name), getattr(kept, name)
        assert torch.equal(one.states[1], other.states[1])
        assert torch.equal(one.behaviours.probabilities(slice(None)),
                           other.behaviours.probabilities(slice(None)))  # fmt: skip


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "phi3"])
def test_a_prefix_that_was_read_once_serves_every_continuation(family):
    model = random_model(family)
    source = np.random.default_rng(2)
    for lengths in ((5,) * 6, (1,) * 3, (1, 4, 5, 2, 5)):
        prompts = pad([source.integers(30, size=length).tolist() for length in lengths])
        layer, width = 2, model.width
        run = Prefilled.of(model.anatomy, prompts)
        assert len(run) == len(lengths)
        plain = model.generate(prompts, layer, None, 4)
        for seed in range(3):
            states = torch.randn(len(lengths), width, generator=torch.Generator().manual_seed(seed))
            found = run.generate(layer, 3 * states, 4)
            # the first token is that of the layers above, and all are those of a fresh prefix
            first = model.continuation(prompts, layer).logits(3 * states).argmax(dim=1)
            assert torch.equal(found[:, 0], first)
            assert torch.equal(found, model.generate(prompts, layer, 3 * states, 4))
            assert torch.equal(run.generate(layer, None, 4), plain)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen2", "phi3"])
def test_the_last_block_ends_where_its_keys_and_values_are_kept(family):
    model = random_model(family)
    anatomy, source = model.anatomy, np.random.default_rng(3)
    prompts = pad([source.integers(30, size=length).tolist() for length in (9, 9, 4, 7)])
    inputs = before_last(anatomy.inputs(prompts))
    whole = DynamicCache(config=model.network.config)
    anatomy.forward(inputs, whole)
    ended = []
    hooks = [
        block.register_forward_hook(lambda *_, place=place: ended.append(place))
        for place, block in enumerate(anatomy.blocks)
    ]
    earlier = prefilled(anatomy, anatomy.inputs(prompts))
    for hook in hooks:
        hook.remove()
    assert ended == list(range(model.layers - 1))
    for held, full in zip(earlier, whole.layers, strict=True):
        assert torch.equal(held.keys, full.keys)
        assert torch.equal(held.values, full.values)


def test_what_is_ready_to_be_continued_is_measured_without_another_pass(model):
    stream = np.random.default_rng(4).integers(VOCABULARY, size=4000)
    drawn = Prefixes.draw(stream, bank=24, calibration=60, held_out=10, length=6, rng=0)
    sizes = Sizes(geometry=40, trained=50, prompts=10, generated=0)
    tokens, found = {}, {}
    for kept in (False, True):
        passes = Passes.of(model, drawn, [1], sizes.within(drawn).trained, continues=kept)
        read = []
        hook = model.anatomy.blocks[0].register_forward_hook(
            lambda _, given, __, read=read: read.append(given[0].shape[:2])
        )
        found[kept] = Laboratory.prepare(model, 1, drawn, sizes, seed=0, passes=passes)
        hook.remove()
        tokens[kept] = sum(rows * positions for rows, positions in read if positions > 1)
    # all positions but the last, of the ten held-out prompts alone
    assert tokens[True] == 10 * 5
    assert tokens[False] == (10 + 40) * 5
    assert np.allclose(found[True].geometry.fisher, found[False].geometry.fisher, rtol=1e-5)
