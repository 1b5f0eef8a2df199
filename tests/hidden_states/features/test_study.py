"""Scores, margins and flips of features against hooks, enumeration and planted networks."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.attacks.inversion import attack  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Scoring,
    Transcoder,
    TranscoderFit,
    inversions,
    measure_features,
    score_features,
    surface_edits,
    train_transcoder,
)
from tacit.hidden_states.features import codes, edits, replacing, study  # noqa: E402
from tacit.hidden_states.features.replacing import conditions  # noqa: E402
from tacit.hidden_states.features.scored import BACKBONE, SCAFFOLD  # noqa: E402
from tacit.releases import load  # noqa: E402
from tests.hidden_states.networks import random_model  # noqa: E402

WIDTH, SIZE, LAYER = 32, 6, 2


def prompts(count=12, length=5, seed=3):
    return torch.randint(61, (count, length), generator=torch.Generator().manual_seed(seed))


def coder_of(model, size=SIZE, **more):
    rng = torch.Generator().manual_seed(2)
    weights = torch.randn(2, size, model.width, generator=rng) / model.width**0.5
    return Transcoder(encoder=weights[0], encoder_bias=torch.zeros(size), decoder=weights[1],
                      decoder_bias=torch.zeros(model.width), **more)  # fmt: skip


@pytest.mark.parametrize("family", ["gpt2", "llama", "phi", "phi3"])
def test_a_score_is_the_kl_of_a_network_whose_mlp_is_changed_by_a_hook(family):
    model = random_model(family)
    coder, tokens = coder_of(model), prompts()
    found = score_features(model, LAYER, coder, tokens, Scoring(each=None), rng=0)
    block = model.anatomy.blocks[LAYER - 1].mlp
    values = [[] for _ in range(SIZE)]
    for row in tokens:
        with torch.no_grad():
            clean = model.network(input_ids=row[None]).logits[0, -1].double().log_softmax(0)
        for feature in range(SIZE):
            amount = []

            def changed(_, given, output, feature=feature, amount=amount):
                x = given[0][0, -1]
                amount.append(float((coder.encoder[feature] @ x).clamp_min(0.0)))
                result = output.clone()
                result[0, -1] -= amount[0] * coder.decoder[feature]
                return result

            handle = block.register_forward_hook(changed)
            with torch.no_grad():
                other = model.network(input_ids=row[None]).logits[0, -1].double().log_softmax(0)
            handle.remove()
            if amount[0] > 0:
                values[feature].append(float((clean.exp() * (clean - other)).sum()))
    assert found.active.tolist() == [len(held) for held in values]
    for feature, held in enumerate(values):
        if held:
            assert found.score[feature] == pytest.approx(np.mean(held), rel=1e-2, abs=1e-9)
        if len(held) > 1:
            error = np.std(held, ddof=1) / len(held) ** 0.5
            assert found.error[feature] == pytest.approx(error, rel=1e-2, abs=1e-9)


def test_a_direction_that_nothing_reads_scores_nothing_and_another_does():
    model = random_model("gpt2")
    direction = torch.zeros(WIDTH)
    direction[0], direction[1] = 1.0, -1.0
    # a last block that adds nothing, and a head that reads the two coordinates alike
    last = model.anatomy.blocks[-1]
    with torch.no_grad():
        for part in (last.attn.c_proj, last.mlp.c_proj):
            part.weight.zero_()
            part.bias.zero_()
        head = model.network.lm_head.weight
        head[:, 1] = head[:, 0]
    # the final norm sees the length: planted where its square does not change
    tokens = prompts()
    layer = model.layers
    state = model.states(tokens, layer)
    apart = state[:, 0] - state[:, 1]
    reader = Transcoder(
        encoder=torch.stack([direction, -direction, torch.ones(WIDTH)]),
        encoder_bias=torch.zeros(3), decoder=torch.stack([direction, -direction, state[0]]),
        decoder_bias=torch.zeros(WIDTH), reads="stream",
    )  # fmt: skip
    found = score_features(model, layer, reader, tokens, Scoring(each=None), rng=0)
    # h − (h·u) u swaps the two coordinates, for |u|² = 2: mean and length stay
    assert int((apart > 0).sum()) == found.active[0]
    assert float(found.score[:2].max()) < 1e-9
    assert found.score[2] > 1e-2
    assert found.classes.tolist() == [SCAFFOLD, SCAFFOLD, BACKBONE]


def test_a_feature_that_never_fires_is_neither_class():
    model = random_model("gpt2")
    coder = coder_of(model)
    asleep = Transcoder(encoder=coder.encoder, decoder=coder.decoder,
                        encoder_bias=torch.tensor([0.0] * 5 + [-1e4]),
                        decoder_bias=coder.decoder_bias)  # fmt: skip
    found = score_features(model, LAYER, asleep, prompts(), Scoring(threshold=1e-9), rng=0)
    assert found.classes[5] == -1
    assert found.summary()["silent"] >= 1
    assert not found.told()[5]


def test_margins_and_overlaps_are_those_of_enumeration():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((9, 20)) < 0.3, rng.random((9, 20)), 0.0)
    on = rows > 0
    hamming, length = (
        codes.nearest_others(rows, support=True),
        codes.nearest_others(rows, support=False),
    )
    for i in range(9):
        others = [j for j in range(9) if j != i]
        assert hamming[i] == min(int((on[i] != on[j]).sum()) for j in others)
        assert length[i] == pytest.approx(min(np.linalg.norm(rows[i] - rows[j]) for j in others))
    backbone = np.arange(20) < 5
    pairs = np.array([[0, 1], [2, 3], [4, 5]])
    found = codes.overlaps(rows, backbone, pairs)
    shares = [(on[i] & on[j]).sum() / (on[i] | on[j]).sum() for i, j in pairs]
    assert found.full[0] == pytest.approx(np.mean(shares))


def test_flips_at_random_have_the_share_of_the_base_rate():
    rng = np.random.default_rng(1)
    backbone = np.arange(200) < 30
    before = (rng.random((300, 200)) < 0.2).astype(float)
    # whatever its class, an active feature flips with one chance
    after = before * (rng.random(before.shape) < 0.5)
    only_scaffold = before * (backbone | (rng.random(before.shape) < 0.5))
    told, _ = codes.flips({"random": (before, after), "told": (before, only_scaffold)}, backbone)
    assert abs(told["random"].excess) < 5 * told["random"].excess_error
    assert told["random"].scaffold == pytest.approx(0.85, abs=0.02)
    assert told["told"].scaffold == 1.0
    assert told["told"].excess > 5 * told["told"].excess_error


def test_naming_counts_codes_that_prompts_share():
    found = codes.name_prompts(np.array([[1.0, 0], [1, 0], [0, 1], [1, 1]]), 0.95)
    assert found.distinct == 3
    assert found.top1[0] == pytest.approx(3 / 4)


def test_the_nearest_state_far_from_the_origin_is_that_of_whole_numbers():
    # integers, whose differences are exact, at a length that a squared distance drowns in
    rng = np.random.default_rng(4)
    whole = rng.integers(-50, 50, size=(700, 6)) * np.array([1, 1, 1, 1, 0, 0])
    whole[1] = whole[0]
    far = whole + np.array([0, 0, 0, 0, 10**9, 0])
    found = codes.nearest_others(far.astype(float), support=False)
    squares = [
        min(sum((int(a) - int(b)) ** 2 for a, b in zip(whole[i], other, strict=True))
            for j, other in enumerate(whole.tolist()) if j != i)
        for i in range(0, 700, 70)
    ]  # fmt: skip
    assert found[::70] == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert found[1] == 0.0


def test_the_random_control_is_a_function_of_the_support():
    rng = np.random.default_rng(0)
    model = random_model("gpt2")
    scores = score_features(model, LAYER, coder_of(model, 40), prompts(), rng=0)
    some = np.where(scores.measured > 0)[0]
    assert 0 < scores.count(BACKBONE) < len(some)
    # prompts of four supports, with amplitudes of their own
    on = (rng.random((4, 40)) < 0.4).repeat(25, axis=0)
    active = torch.from_numpy(np.where(on, rng.random(on.shape) + 0.01, 0.0)).float()
    held = conditions(active, scores, np.random.default_rng(1))
    drawn = held["random"].numpy() > 0
    assert not (drawn & ~on).any()
    assert (drawn.sum(axis=1) == (held["backbone"].numpy() > 0).sum(axis=1)).all()
    assert all(len(np.unique(part, axis=0)) == 1 for part in np.split(drawn, 4))
    named = codes.name_prompts(drawn.astype(float), 0.95).top1[0]
    assert named <= codes.name_prompts(on.astype(float), 0.95).top1[0] == pytest.approx(0.04)
    # another order keeps others
    other = conditions(active, scores, np.random.default_rng(2))["random"].numpy() > 0
    assert (other != drawn).any()


def test_copies_of_one_prompt_are_named_by_chance_whatever_the_code():
    model = random_model("gpt2")
    tokens = prompts(40)
    coder = coder_of(model, 40)
    levels = score_features(model, LAYER, coder, tokens[20:], rng=0).score
    found = measure_features(
        model, LAYER, coder, tokens[:1].repeat(20, 1), tokens[20:],
        Scoring(threshold=float(np.median(levels[levels > 0]))), edited=2, rng=0,
    )  # fmt: skip
    details = found.details
    assert 0 < details.share < 1
    assert {name: code.top1[0] for name, code in details.named.items()} == pytest.approx(
        dict.fromkeys(details.named, 1 / 20)
    )
    # the outputs are one vector up to rounding: no share of their variance exists
    assert {left.unexplained for left in details.replaced.values()} == {None}
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert load(stored).to_dict() == stored


def test_an_mlp_that_adds_one_vector_leaves_no_variance_to_explain():
    model = random_model("gpt2")
    block = model.anatomy.blocks[LAYER - 1].mlp.c_proj
    with torch.no_grad():
        block.weight.zero_()
        block.bias.fill_(0.3)
    tokens = prompts(40)
    how = TranscoderFit(features=40, top_k=8, steps=5)
    coder = train_transcoder(model, LAYER, tokens[20:], how, progress=False)
    assert coder.trained["explained"] == 0.0
    found = measure_features(
        model, LAYER, coder_of(model, 40), tokens[:20], tokens[20:], edited=2, rng=0
    )
    assert found.details.replaced["full"].unexplained is None
    # a correlation of two prompts' ranks has no test
    assert found.details.margins["step"].spearman is None
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert load(stored).to_dict() == stored


def test_features_beyond_what_the_network_can_compute_are_refused():
    model = random_model("gpt2")
    coder = coder_of(model, 40)
    tokens = prompts(40)
    for reading in (1.0, 1e30):
        # the second overflows before the network reads it
        huge = Transcoder(
            encoder=coder.encoder * reading, encoder_bias=coder.encoder_bias,
            decoder=coder.decoder * 1e30, decoder_bias=coder.decoder_bias,
        )  # fmt: skip
        with pytest.raises(ValueError, match=r"transcoder: .* beyond single precision"):
            score_features(model, LAYER, huge, tokens)
    # every feature alone is small, the bias is not
    bias = Transcoder(encoder=coder.encoder, encoder_bias=coder.encoder_bias,
                      decoder=coder.decoder, decoder_bias=torch.full((WIDTH,), 1e30))  # fmt: skip
    with pytest.raises(ValueError, match=r"transcoder: .* beyond single precision"):
        measure_features(model, LAYER, bias, tokens[:20], tokens[20:], rng=0)


def test_public_prompts_of_the_bank_are_refused():
    model = random_model("gpt2")
    tokens = prompts(40)
    padded = torch.cat([torch.full((3, 2), -1), tokens[:3]], dim=1)
    others = torch.randint(61, (9, 7), generator=torch.Generator().manual_seed(8))
    coder = coder_of(model, 40)
    for public, message in (
        (tokens[:20], "got 20 of 20 that are"),
        (torch.cat([padded, others]), "got 3 of 12 that are"),
    ):
        with pytest.raises(ValueError, match=f"public: expected prompts .* {message}"):
            measure_features(model, LAYER, coder, tokens[:20], public, rng=0)


JUNK = (5, -1, 0.5, "x", None, True, [], {}, [1.0], [3, 2, 1], ["a", "b"], {"a": 1})


def test_a_malformed_study_is_one_sentence():
    model = random_model("gpt2")
    tokens = prompts(24)
    found = measure_features(
        model, LAYER, coder_of(model, 6), tokens[:8], tokens[8:], edited=2, rng=0
    )
    stored = json.loads(json.dumps(found.to_dict()))
    details = stored["details"]
    places = [(name,) for name in details] + [
        (name, inner)
        for name in ("scores", "named", "state", "replaced")
        for inner in details[name]
    ]
    places += [("named", "support", "top1"), ("replaced", "full", "kl"),
               ("replaced", "without scaffold", "agreed"),
               ("replaced", "without scaffold", "kl_error")]  # fmt: skip
    refused = {}
    for place in places:
        for junk in JUNK:
            changed = json.loads(json.dumps(stored))
            inner = changed["details"]
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = junk
            try:
                again = load(changed)
            except ValueError as error:
                refused[place, str(junk)] = str(error)
            else:
                # what passes can be read by page and gate, and stored again
                json.dumps(again.to_dict(), allow_nan=False)
    for message in refused.values():
        assert ": " in message
        assert not any(word in message for word in ("unpack", "format code", "could not"))
    for place in places:
        if place != ("trained",):
            assert any(held == place for held, _ in refused), place
    for place in ("named", "state", "replaced", "scores"):
        assert all(((place,), str(junk)) in refused for junk in JUNK), place


@pytest.mark.parametrize(
    "name", ["title", "secret", "method", "withheld", "notes", "attacks", "use"]
)
def test_a_study_that_says_another_thing_than_its_details_is_refused(name):
    model = random_model("gpt2")
    tokens = prompts(24)
    found = measure_features(
        model, LAYER, coder_of(model, 6), tokens[:8], tokens[8:], edited=2, rng=0
    )
    stored = json.loads(json.dumps(found.to_dict()))
    stored[name] = f"{stored[name]}." if isinstance(stored[name], str) else stored[name][:-1]
    with pytest.raises(ValueError, match=f"contradicts itself: its details give another {name}"):
        load(stored)


def test_training_recovers_planted_features():
    model = random_model("gpt2")
    how = TranscoderFit(features=256, top_k=24, steps=300)
    coder = train_transcoder(model, LAYER, prompts(300, 6), how, progress=False)
    assert coder.trained["explained"] > 0.3
    assert coder.trained["active"] <= 24
    assert torch.allclose(coder.decoder.norm(dim=1), torch.ones(256), atol=1e-4)
    again = train_transcoder(
        model, LAYER, prompts(300, 6),
        TranscoderFit(features=64, top_k=None, penalty=0.01, steps=30), seed=1, progress=False,
    )  # fmt: skip
    assert again.activation == "relu"


def test_a_study_is_stored_read_back_and_certifies_nothing():
    model = random_model("gpt2")
    tokens = prompts(40)
    found = measure_features(model, LAYER, coder_of(model, 40), tokens[:20], tokens[20:], rng=0)
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    again, details = load(stored), found.details
    assert again == found
    assert again.guarantees == ()
    assert any("certifies nothing" in note for note in again.notes)
    assert details.replaced["without backbone"].kl >= 0.0
    full, none = details.replaced["full"], details.replaced["none"]
    assert none.active == 0.0 < full.active
    # of the MLP one part of the state: the rest names every prompt
    assert details.state.told[0] == 1.0


def test_the_replaced_state_is_that_of_a_hook():
    model = random_model("gpt2")
    coder, tokens = coder_of(model, 40), prompts(10)
    found = measure_features(model, LAYER, coder, tokens, prompts(20, seed=9), rng=0)
    values = []
    block = model.anatomy.blocks[LAYER - 1].mlp

    def written(_, given, output):
        result = output.clone()
        result[:, -1] = coder.decode(coder.encode(given[0][:, -1]))
        return result

    with torch.no_grad():
        clean = model.network(input_ids=tokens).logits[:, -1].double().log_softmax(1)
        handle = block.register_forward_hook(written)
        other = model.network(input_ids=tokens).logits[:, -1].double().log_softmax(1)
        handle.remove()
    values = (clean.exp() * (clean - other)).sum(1)
    assert found.details.replaced["full"].kl == pytest.approx(float(values.mean()), rel=1e-3)


def test_bad_arguments_are_refused():
    model = random_model("gpt2")
    coder, tokens = coder_of(model), prompts()
    with pytest.raises(ValueError, match="layer: expected an integer <= 3, got 4"):
        score_features(model, 4, coder, tokens)
    with pytest.raises(ValueError, match="layer: expected an integer >= 1"):
        score_features(model, 0, coder, tokens)
    with pytest.raises(ValueError, match="threshold"):
        score_features(model, 1, coder, tokens, Scoring(threshold=0.0))
    with pytest.raises(ValueError, match="transcoder: expected a Transcoder, got int"):
        score_features(model, 1, 3, tokens)
    narrow = Transcoder(encoder=torch.ones(2, 3), encoder_bias=torch.ones(2),
                        decoder=torch.ones(2, 32), decoder_bias=torch.ones(32))  # fmt: skip
    with pytest.raises(ValueError, match="from 32 to 32 numbers, got 3 to 32"):
        score_features(model, 1, narrow, tokens)
    with pytest.raises(ValueError, match="prompts: expected"):
        measure_features(model, 1, coder, tokens[:0], tokens)
    with pytest.raises(ValueError, match="prompts: expected at least four"):
        measure_features(model, 1, coder, tokens[:3], tokens)
    with pytest.raises(ValueError, match="prompts: expected at least 20 positions"):
        train_transcoder(model, 1, tokens[:2])
    with pytest.raises(ValueError, match="penalty: expected 0 beside top_k"):
        train_transcoder(model, 1, tokens, TranscoderFit(penalty=1.0))


def test_edits_without_a_tokenizer_are_those_of_tokens():
    found = surface_edits(random_model("gpt2"), prompts(), rng=0)
    assert set(found) == {"another word", "another end"}
    before, after = found["another end"]
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert bool((before[:, -1] != after[:, -1]).all())


def test_the_kinds_that_a_stored_study_knows_are_those_that_are_measured():
    assert set(study.EDITED) == {*edits.SURFACE, *edits.DEEPER}
    assert set(study.CONDITIONS) == set(replacing.WORDS)
    assert set(inversions.BASELINES) == set(attack.BASELINES)
