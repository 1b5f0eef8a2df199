"""Codes in the place of cached positions: what is generated, against obvious twins."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from transformers import DynamicCache  # noqa: E402

from tacit.hidden_states import (  # noqa: E402
    CacheCoder,
    Codebook,
    CodebookFit,
    ProductCodebook,
    ProductFit,
    StateCoder,
    certify_trajectory,
    measure_generation,
)
from tacit.hidden_states.codebooks.certificates import codes_leakage  # noqa: E402
from tacit.models.anatomy import cache_argument, rewritten  # noqa: E402
from tacit.models.padding import pad  # noqa: E402
from tests.hidden_states.prompts import fitted  # noqa: E402

from .networks import random_model  # noqa: E402

FAMILIES = ("gpt2", "llama", "qwen3", "phi3")
STEPS = 5


def prompts(count=6, length=4):
    return torch.randint(61, (count, length), generator=torch.Generator().manual_seed(3))


def states_of(model, tokens, layer):
    return model.states(tokens, layer, positions="all").reshape(-1, model.width)


def exact_book(model, layer, tokens, steps):
    """A cell for every state that the model passes through: nothing is lost."""
    following = model.generate(tokens, 0, None, steps)
    whole = torch.cat([tokens, following], dim=1)
    # each state once: of two that are the same, a fit may leave one cell empty
    rows = states_of(model, whole, layer).float().unique(dim=0)
    return Codebook(
        metric="euclidean", kind="centroid", codewords=rows, table=None, centres=rows, root=None,
        predictor=None, calibration=len(rows),
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_codes_that_lose_nothing_generate_what_the_model_does(family):
    model = random_model(family)
    tokens = prompts()
    book = exact_book(model, 2, tokens, STEPS)
    found = measure_generation(model, StateCoder(book, 2), tokens, steps=STEPS)
    assert found.agreement.value == found.forced.value == 1.0
    # what float32 rounds otherwise in a batch of other shape
    assert found.kl < 0.02
    assert found.departure == STEPS + 1
    assert found.by_step == (1.0,) * STEPS
    assert np.array_equal(found.tokens, model.generate(tokens, 0, None, STEPS).numpy())


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_by_codes_of_states_is_that_of_a_loop_without_a_cache(family):
    model = random_model(family)
    tokens = prompts()
    book = Codebook.fit(states_of(model, prompts(20), 2), CodebookFit(size=5, least_cell=1), rng=0)
    found = measure_generation(model, StateCoder(book, 2), tokens, steps=STEPS)
    whole = tokens

    def coded(hidden):
        rows = hidden.reshape(-1, hidden.shape[-1]).float()
        return book.codewords[torch.from_numpy(book.assign(rows))].reshape(hidden.shape)

    for _ in range(STEPS):
        with rewritten(model.anatomy, 2, coded), torch.no_grad():
            logits = model.anatomy.forward(model.anatomy.inputs(whole))
        whole = torch.cat([whole, logits.argmax(dim=-1)[:, None]], dim=1)
    assert np.array_equal(found.tokens, whole[:, 4:].numpy())
    read = book.assign(states_of(model, whole[:, :-1], 2)).reshape(6, -1)
    assert np.array_equal(found.codes[:, :4, 0], read[:, :4])
    # KL along the model's own tokens, in one pass over all of them
    own = torch.cat([tokens, model.generate(tokens, 0, None, STEPS)], dim=1)[:, :-1]
    with torch.no_grad():
        plain = model.network(input_ids=own).logits[:, 3:].log_softmax(-1)
        with rewritten(model.anatomy, 2, coded):
            given = model.network(input_ids=own).logits[:, 3:].log_softmax(-1)
    kl = (plain.exp() * (plain - given)).sum(-1).mean()
    assert found.kl == pytest.approx(float(kl), rel=1e-3, abs=1e-5)
    assert found.forced.value == pytest.approx(
        float((plain.argmax(-1) == given.argmax(-1)).double().mean())
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_by_codes_of_a_cache_is_that_of_a_cache_rewritten_by_hand(family):
    model = random_model(family)
    tokens = prompts()
    coder = CacheCoder.fit(model, prompts(20), size=3, layers=[1, 3], rng=0)
    found = measure_generation(model, coder, tokens, steps=STEPS)
    cache = DynamicCache(config=model.network.config)
    name = cache_argument(model.anatomy.accepted)
    inputs, chosen, known = tokens[:, :1], [], 0
    for step in range(4 + STEPS - 1):
        with torch.no_grad():
            logits = model.network(input_ids=inputs, **{name: cache}).logits[:, -1]
        for layer, book in coder.books.items():
            held = cache.layers[layer - 1]
            heads = held.keys.shape[1]
            for row in range(len(tokens)):
                for place in range(known, held.keys.shape[2]):
                    for head in range(heads):
                        for kind, part in enumerate((held.keys, held.values)):
                            centres = book.parts[kind * heads + head]
                            vector = part[row, head, place]
                            nearest = ((centres - vector) ** 2).sum(1).argmin()
                            part[row, head, place] = centres[nearest]
        known = cache.layers[0].keys.shape[2]
        if step < 3:
            inputs = tokens[:, step + 1 : step + 2]
            continue
        inputs = logits.argmax(dim=-1)[:, None]
        chosen.append(inputs)
    assert np.array_equal(found.tokens, torch.cat(chosen, dim=1).numpy())
    assert found.codes.shape == (6, 4 + STEPS - 1, len(coder.sizes))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_code_for_every_position_leaves_the_last_token_alone_to_tell(family):
    model = random_model(family)
    tokens = prompts(12)
    tokens[:, -1] = torch.arange(12) % 3
    coder = CacheCoder.fit(model, prompts(20), size=1, rng=0)
    found = measure_generation(model, coder, tokens, steps=STEPS)
    assert found.certificate.leakage.factor == 1.0
    assert found.beside == ""
    for last in range(3):
        rows = found.tokens[last::3]
        assert (rows == rows[0]).all()
    # the model itself tells them apart
    own = model.generate(tokens, 0, None, STEPS).numpy()
    assert any((own[last::3] != own[last]).any() for last in range(3))
    assert found.by_step[0] < 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda model: CacheCoder({1: None}), "books: expected a ProductCodebook"),
        (lambda model: CacheCoder({"a": None}), "books"),
        (lambda model: CacheCoder.fit(model, prompts(20), layers=1), "layers: expected several"),
        (lambda model: StateCoder(None, 1), "book: expected a codebook"),
        (
            lambda model: CacheCoder.fit(model, prompts(20), size=2, rng=0).certify(
                np.full((2, 3, 16), 0.5)
            ),
            "codes: expected integers",
        ),
    ],
)
def test_what_makes_no_codes_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make(random_model("gpt2"))


def test_what_stands_for_a_position_is_kept_for_later_passes():
    model = random_model("gpt2")
    tokens = prompts()
    coder = CacheCoder.fit(model, prompts(20), size=2, rng=0)
    cache = DynamicCache(config=model.network.config)
    with coder.coding(model) as coded, torch.no_grad():
        model.anatomy.forward(model.anatomy.inputs(tokens), cache)
        coded.keep(cache)
        first = cache.layers[1].keys.clone()
        model.anatomy.forward({"input_ids": tokens[:, :1]}, cache)
        coded.keep(cache)
    assert torch.equal(cache.layers[1].keys[:, :, :4], first)
    assert coded.codes.shape == (6, 5, 24)


@pytest.mark.parametrize("kept", ["states", "cache"])
def test_prompts_of_other_lengths_beside_do_not_matter(kept):
    model = random_model("llama")
    book = Codebook.fit(states_of(model, prompts(20), 2), CodebookFit(size=5, least_cell=1), rng=0)
    coder = (
        StateCoder(book, 2)
        if kept == "states"
        else CacheCoder.fit(model, prompts(20), size=3, rng=0)
    )
    long, short = prompts(4, 6), prompts(3, 2)
    both = measure_generation(model, coder, pad([*long.tolist(), *short.tolist()]), steps=3)
    for rows, alone in ((slice(0, 4), long), (slice(4, 7), short)):
        found = measure_generation(model, coder, alone, steps=3)
        assert np.array_equal(both.tokens[rows], found.tokens)
        assert np.array_equal(both.codes[rows, -found.codes.shape[1] :], found.codes)
    assert (both.codes[4:, :4] == -1).all()
    # the length is told too: one more value of every position
    assert both.certificate.leakage.nats == pytest.approx(
        8 * math.log(math.prod(coder.sizes) + 1), rel=1e-9
    )


def test_a_codebook_of_behaviour_reads_codes_with_its_predictor():
    model = random_model("gpt2")
    rows, logits = states_of(model, prompts(40), 2), model.logits(prompts(160, 1))
    options = {"behaviours": logits, "metric": "behaviour", "size": 4, "least_cell": 1, "rng": 0}
    bare = fitted(rows, **options)
    with pytest.raises(ValueError, match="without a predictor"):
        measure_generation(model, StateCoder(bare, 2), prompts(), steps=2)
    book = fitted(rows, **options, predictor_epochs=2)
    found = measure_generation(model, StateCoder(book, 2), prompts(), steps=2)
    read = book.predict(states_of(model, prompts(), 2)).reshape(6, 4)
    assert np.array_equal(found.codes[:, :4, 0], read)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 30}, "prompts: expected at most 24 positions"),
        ({"prompts": [[1, 2]]}, "prompts: expected at least two"),
        ({"prompts": [[1, 99], [2, 3]]}, "prompts"),
        ({"confidence": 1.0}, "confidence"),
        ({"coder": "states"}, "coder: expected a StateCoder or a CacheCoder"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    model = random_model("gpt2")
    book = Codebook.fit(states_of(model, prompts(20), 2), CodebookFit(size=5, least_cell=1), rng=0)
    given = {"coder": StateCoder(book, 2), "prompts": prompts(), "steps": 2, **changes}
    with pytest.raises(ValueError, match=message):
        measure_generation(model, given.pop("coder"), given.pop("prompts"), **given)


def test_codes_of_another_model_are_refused():
    model, other = random_model("gpt2"), random_model("llama")
    coder = CacheCoder.fit(other, prompts(20), size=3, rng=0)
    with pytest.raises(ValueError, match="coder: expected 8 books of 8 numbers in layer 1"):
        measure_generation(model, coder, prompts(), steps=2)
    wide = ProductCodebook.fit(
        torch.randn(40, 64), ProductFit(parts=2, size=4, least_cell=1), rng=0
    )
    with pytest.raises(ValueError, match="coder: expected codes of 32 numbers, got of 64"):
        measure_generation(model, StateCoder(wide, 2), prompts(), steps=2)
    with pytest.raises(ValueError, match="keeps a window"):
        CacheCoder.fit(random_model("mistral"), prompts(20), size=3, rng=0)
    with pytest.raises(ValueError, match="codes: expected shape"):
        coder.certify(np.zeros((3, 4, 2), dtype=int))
    with pytest.raises(ValueError, match="codes: expected integers below"):
        coder.certify(np.full((3, 4, 12), 3))


def test_what_is_kept_beside_the_codes_is_what_the_cache_still_tells():
    model = random_model("gpt2")
    tokens = prompts()
    states = model.states(tokens, 1, positions="all").reshape(-1, model.width)
    coder = StateCoder(Codebook.fit(states, CodebookFit(size=2, least_cell=1), rng=0), 1)
    caches = [DynamicCache(config=model.network.config) for _ in range(2)]
    with torch.no_grad():
        model.anatomy.forward(model.anatomy.inputs(tokens), caches[0])
        with coder.coding(model) as coded:
            model.anatomy.forward(model.anatomy.inputs(tokens), caches[1])
            coded.keep(caches[1])
    clean = [
        layer
        for layer in range(1, model.layers + 1)
        if torch.equal(caches[0].layers[layer - 1].keys, caches[1].layers[layer - 1].keys)
    ]
    assert clean == [1]
    assert coder.beside(model) == "the keys and values of layers 1 … 1"
    found = measure_generation(model, coder, tokens, steps=2)
    assert coder.beside(model) in found.describe()
    assert found.describe().endswith("nats (95%).")
    # half of Student's law of n − 1 = 1 degree lies within ±1, as Cauchy's does
    some = measure_generation(model, coder, tokens[:2], steps=2, confidence=0.5)
    assert some.describe().endswith(f"{some.kl:.3f} ± {some.kl_error:.3f} nats (50%).")
    assert found.to_dict()["beside"] == coder.beside(model)


def test_codes_of_the_whole_cache_leave_nothing_beside():
    model = random_model("gpt2")
    whole = CacheCoder.fit(model, prompts(12), size=2, least_cell=1, rng=0)
    assert whole.beside(model) == ""
    lower = CacheCoder.fit(model, prompts(12), size=2, least_cell=1, layers=[1], rng=0)
    others = ", ".join(str(layer) for layer in range(2, model.layers + 1))
    assert lower.beside(model) == f"the keys and values of layers {others}"


def test_positions_with_one_number_of_codes_are_certified_as_before():
    codes = np.random.default_rng(0).integers(0, 3, (9, 4, 2))
    found = certify_trajectory(codes, [(3, 3)] * 4)
    assert found.leakage.factor == 9**4
    assert found.occupied == len({tuple(row) for row in codes.reshape(9, -1).tolist()})
    flat = certify_trajectory(codes[:, :, 0], [3] * 4)
    assert flat.leakage == codes_leakage(3, 4)


def test_a_shorter_prompt_has_one_code_more_at_every_position():
    codes = np.array([[0, 1, 2], [-1, 1, 2], [0, 1, 1]])
    found = certify_trajectory(codes, [2, 3, 4])
    assert (found.leakage.factor, found.occupied) == (3 * 4 * 5, 3)


def test_many_positions_of_many_codes_are_told_apart():
    codes = np.random.default_rng(1).integers(0, 1000, (5, 300))
    found = certify_trajectory(codes, range(1000, 1300))
    expected = sum(math.log(size) for size in range(1000, 1300))
    assert found.leakage.nats == pytest.approx(expected, rel=1e-12)
    assert found.leakage.nats >= expected * (1 - 1e-15)
    assert "300 codes are released" in " ".join(found.leakage.assumptions)


@pytest.mark.parametrize(
    ("codes", "sizes", "name"),
    [
        ([[0, 1], [1, 0]], [2], "sizes"),
        ([[0, 1], [1, 0]], 2, "sizes"),
        ([[0, 1], [1, 0]], "22", "sizes"),
        ([[0, 1], [1, 0]], [2, 0], "sizes"),
        ([[0, 1], [1, 0]], [2, (2, 2)], "sizes"),
        ([[0, 1], [1, 0]], [1, 2], "codes"),
        ([[0, -2], [1, 0]], [2, 2], "codes"),
        ([[0.0, 1.0], [1.0, 0.0]], [2, 2], "codes"),
        ([0, 1], [2], "codes"),
        ([[0, 1]], [2, 2], "codes"),
    ],
)
def test_bad_positions_are_named(codes, sizes, name):
    with pytest.raises(ValueError, match=rf"^{name}: expected"):
        certify_trajectory(codes, sizes)
