"""Projected and transplanted states against plain linear algebra; margins against brute force."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402

from tacit.hidden_states import GeometryFit  # noqa: E402
from tacit.hidden_states.geometry.estimation import measure_geometry  # noqa: E402
from tacit.hidden_states.geometry.margins import (  # noqa: E402
    MarginRounding,
    NextTokens,
    measure_margins,
)
from tacit.hidden_states.geometry.projections import (  # noqa: E402
    PROJECTORS,
    PROTOCOLS,
    measure_projections,
    transplantation,
)
from tacit.hidden_states.geometry.utility import compare, outcomes, quantile_interval  # noqa: E402
from tacit.models.next_states import following_states, next_states  # noqa: E402
from tests.hidden_states.networks import CONFIGURATIONS, random_model  # noqa: E402

WIDTH, VOCABULARY, LAYER = 32, 61, 1


@pytest.fixture(scope="module")
def model():
    return random_model("llama")


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (14, 7), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def basis():
    return np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, 5)))[0]


def kl_rows(clean, changed):
    p, q = clean.double().softmax(-1), changed.double().softmax(-1)
    return (p * (p / q).log()).sum(-1).numpy()


def test_projections_by_hand(model, prompts, basis):
    found = measure_projections(model, LAYER, prompts, basis, batch_size=5, rng=0)
    assert {(row.protocol, row.projector) for row in found.rows} == {
        (protocol, projector) for protocol in PROTOCOLS for projector in PROJECTORS
    }
    states = model.states(prompts, LAYER)
    inside = torch.tensor(basis @ basis.T, dtype=torch.float32)
    run = model.continuation(prompts, LAYER)
    body, head = model.network.model, model.network.lm_head
    for projector, kept in (("fisher", states @ inside), ("complement", states - states @ inside)):
        full = kl_rows(run.clean_logits, run.logits(kept))
        readout = kl_rows(head(body.norm(states)), head(body.norm(kept)))
        for protocol, values in (("full forward", full), ("direct readout", readout)):
            row = found.utility(protocol, projector)
            assert row.kl == pytest.approx(values.mean(), rel=1e-3)
            assert row.median == pytest.approx(np.median(values), rel=1e-3)
            assert row.count == len(prompts)
    assert found.utility("full forward", "fisher").kl > 0.01


def test_the_whole_space_changes_nothing_and_random_subspaces_are_haar(model, prompts, basis):
    wide = np.linalg.qr(np.random.default_rng(1).normal(size=(WIDTH, WIDTH - 1)))[0]
    found = measure_projections(model, model.layers, prompts, wide, rng=0)
    # at the last layer the readout and the full forward pass are one computation
    for projector in PROJECTORS:
        one, other = (found.utility(protocol, projector) for protocol in PROTOCOLS[:2])
        assert one.kl == pytest.approx(other.kl, rel=1e-4)
    first = measure_projections(model, LAYER, prompts, basis, rng=7)
    again = measure_projections(model, LAYER, prompts, basis, rng=7)
    other = measure_projections(model, LAYER, prompts, basis, rng=8)
    assert first == again
    assert first.utility("full forward", "random") != other.utility("full forward", "random")
    assert first.utility("full forward", "fisher") == other.utility("full forward", "fisher")


def test_random_projectors_keep_the_expected_share(model):
    from tacit.hidden_states.geometry.projections import _projectors

    rows = torch.randn(4000, 12, generator=torch.Generator().manual_seed(0))
    keep = _projectors(torch.eye(12)[:, :3], rows, np.random.default_rng(0))
    kept = keep["random"](rows)
    torch.testing.assert_close(keep["random"](rows), kept)
    shares = (kept.norm(dim=1) / rows.norm(dim=1)).square().numpy()
    # Prop. 1: ‖P u‖² ~ Beta(k/2, (d − k)/2); another dimension is told apart
    assert stats.kstest(shares, stats.beta(1.5, 4.5).cdf).pvalue > 1e-3
    assert stats.kstest(shares, stats.beta(2.0, 4.0).cdf).pvalue < 1e-3
    torch.testing.assert_close(kept + keep["random complement"](rows), rows)


def test_transplants_move_from_one_prompt_to_the_other(model, prompts, basis):
    found = transplantation(model, LAYER, prompts, basis, mixes=(0.0, 1.0), rng=2)
    rows = {(row.component, row.mix): row for row in found}
    for component in ("fisher", "complement"):
        assert rows[component, 0.0].to_own.kl < 1e-9
        assert rows[component, 0.0].to_own.agreement == 1.0
        assert rows[component, 1.0].to_own.kl > 1e-3
    # both components moved is the donor's own state: the two halves add up to it
    states = model.states(prompts, LAYER)
    run = model.continuation(prompts, LAYER)
    order = np.random.default_rng(2).permutation(len(prompts))
    partners = np.empty(len(prompts), dtype=int)
    partners[order] = np.roll(order, 1)
    inside = torch.tensor(basis @ basis.T, dtype=torch.float32)
    swapped = states + (states[partners] - states) @ inside
    expected = kl_rows(run.clean_logits, run.logits(swapped)).mean()
    assert rows["fisher", 1.0].to_own.kl == pytest.approx(expected, rel=1e-3)
    donor = kl_rows(run.clean_logits[partners], run.logits(swapped)).mean()
    assert rows["fisher", 1.0].to_donor.kl == pytest.approx(donor, rel=1e-3)
    assert (partners != np.arange(len(prompts))).all()


@pytest.mark.parametrize("family", sorted(CONFIGURATIONS))
def test_next_states_are_those_of_the_longer_prompt(family):
    model = random_model(family)
    candidates = torch.tensor([3, 60, 0, 17, 5])
    for length in (0, 1, 9):
        prefix = torch.arange(length) * 2 % VOCABULARY
        parts = list(next_states(model, prefix, candidates, [0, 2, 3], batch_size=2))
        longer = torch.cat([prefix.expand(5, -1), candidates[:, None]], dim=1)
        for layer, found in zip((0, 2, 3), zip(*parts, strict=True), strict=True):
            expected = model.states(longer, layer)
            scale = float(expected.abs().max())
            torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=3e-6 * scale)
    with pytest.raises(ValueError, match="tokens"):
        list(next_states(model, torch.zeros(24, dtype=torch.int64), candidates, [1]))


@pytest.mark.parametrize("family", sorted(CONFIGURATIONS))
def test_states_that_follow_many_prompts_are_those_that_follow_each(family, monkeypatch):
    model = random_model(family)
    prefixes = torch.arange(15).reshape(5, 3) * 7 % VOCABULARY
    tried = [torch.arange(count) * 11 % VOCABULARY for count in (2, 9, 1, 3, 4)]
    # batches of one prompt cut in two, of two prompts and of one
    monkeypatch.setattr("tacit.models.next_states.TOKENS_PER_BATCH", 20)
    for layer in (0, 2):
        found = list(following_states(model, prefixes, tried, layer))
        assert [len(part) for part in found] == [2, 5, 4, 4, 4]
        alone = [next_states(model, *pair, [layer]) for pair in zip(prefixes, tried, strict=True)]
        expected = torch.cat([part for parts in alone for (part,) in parts])
        scale = float(expected.abs().max())
        torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=3e-6 * scale)


def test_margins_by_brute_force(model, prompts, basis):
    followers = torch.arange(4) + 5
    calibration = model.states(prompts, LAYER)
    found = measure_margins(
        model,
        LAYER,
        NextTokens(prefixes=prompts[:4], next_tokens=followers),
        basis,
        MarginRounding(calibration=calibration, bits=(4, 8, 16)),
        batch_size=20,
        rng=0,
    )
    inside = basis @ basis.T
    for i in range(4):
        longer = torch.cat(
            [prompts[i].expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], 1
        )
        states = model.states(longer, LAYER).double().numpy()
        differences = np.delete(states, int(followers[i]), axis=0) - states[int(followers[i])]
        for projector, values in (
            (np.eye(WIDTH), found.full),
            (inside, found.leading),
            (np.eye(WIDTH) - inside, found.complement),
        ):
            lengths = np.linalg.norm(differences @ projector, axis=1)
            assert values[i] == pytest.approx(lengths.min(), rel=1e-4)
        nearest = differences[np.linalg.norm(differences, axis=1).argmin()]
        cosine = np.linalg.norm(inside @ nearest) / np.linalg.norm(nearest)
        assert math.cos(found.angles[i]) == pytest.approx(cosine, rel=1e-4)
    assert (found.pythagorean_ratio <= 1 + 1e-9).all()
    assert (found.random <= found.full).all()
    assert found.expected_fraction == pytest.approx(math.sqrt(5 / WIDTH))


def test_rounded_margins_stay_above_their_bound(model, prompts, basis):
    calibration = model.states(prompts, LAYER)
    found = measure_margins(
        model,
        LAYER,
        NextTokens(prefixes=prompts[:5], next_tokens=prompts[5:10, 0]),
        basis,
        MarginRounding(calibration=calibration),
        rng=0,
    )
    plain = {
        "full": found.full,
        "fisher": found.leading,
        "complement": found.complement,
        "random": found.random,
    }
    for row in found.quantised:
        assert (row.margins >= row.bounds).all()
        assert (row.bounds >= 0).all()
        if row.bits == 16 and row.clipped == 0:
            assert (row.bounds > 0.9 * plain[row.projection]).all()
    # a state within range moves ε_b at most, so an unclipped bound is m − 2 ε_b
    wide = measure_margins(
        model,
        LAYER,
        NextTokens(prefixes=prompts[:5], next_tokens=prompts[5:10, 0]),
        basis,
        MarginRounding(calibration=100 * calibration, bits=(12,)),
        rng=0,
    )
    for row in wide.quantised:
        assert row.clipped == 0
        expected = np.maximum(0, plain[row.projection] - 2 * row.rounding)
        np.testing.assert_allclose(row.bounds, expected, rtol=1e-6, atol=1e-9)
    # the bound has teeth: rounding does move margins, by less than it allows
    coarse = [row for row in found.quantised if row.bits == 4]
    assert any(np.abs(row.margins - plain[row.projection]).max() > 1e-3 for row in coarse)


@pytest.mark.parametrize(("share", "truth"), [(0.5, math.log(2.0)), (0.95, math.log(20.0))])
def test_quantile_interval_covers(share, truth):
    source = np.random.default_rng(0)
    intervals = [quantile_interval(source.exponential(size=120), share, 0.9) for _ in range(2000)]
    misses = np.mean([not low <= truth <= high for low, high in intervals])
    assert misses <= 0.1
    assert misses > 0.04  # not so wide that it says nothing
    assert quantile_interval(np.array([1.0, 2.0]), share, 0.95)[1] == math.inf


def test_outcomes_by_hand():
    clean = torch.tensor([[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125]]).double().log()
    changed = torch.tensor([[0.03125, 0.25, 0.125, 0.0625, 0.03125, 0.5]]).double().log()
    p, q = clean.exp().numpy()[0], changed.exp().numpy()[0]
    m = (p + q) / 2
    found = outcomes(clean, changed)
    assert found.kl[0] == pytest.approx((p * np.log(p / q)).sum())
    expected = 0.5 * (p * np.log(p / m)).sum() + 0.5 * (q * np.log(q / m)).sum()
    assert found.jensen_shannon[0] == pytest.approx(expected)
    assert (found.kept[0], outcomes(changed, changed).top5[0]) == (0.0, 1.0)
    # tokens 1, 2 and 3 stay among the five; ties beside them may break either way
    assert 0.6 <= found.top5[0] <= 1.0
    far = torch.tensor([[9.0, 8, 7, 6, 5, 0, 0, 0, 0, 0], [9.0, 8, 7, 6, 5, 0, 0, 0, 0, 0]])
    near = torch.tensor([[0.0, 0, 0, 0, 0, 9, 8, 7, 6, 5], [5.0, 6, 0, 0, 0, 9, 8, 7, 0, 0]])
    assert outcomes(far, near).top5.tolist() == [0.0, pytest.approx(0.4)]
    one, other = outcomes(far, near).jensen_shannon, outcomes(near, far).jensen_shannon
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert (one <= math.log(2.0)).all()


def test_compare_by_hand():
    clean = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    changed = torch.tensor([[math.log(3.0), 0.0], [2.0, 0.0]])
    found = compare(clean, changed, predicted=0.5)
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert found.kl == pytest.approx(expected / 2, rel=1e-6)
    assert found.ratio == pytest.approx(expected, rel=1e-6)
    assert found.agreement == 1.0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"geometry": np.ones((WIDTH, 2))}, "geometry"),
        ({"geometry": np.eye(WIDTH)}, "geometry"),
        ({"geometry": "x"}, "geometry"),
        ({"rank": 3}, "rank"),
        ({"confidence": 1.0}, "confidence"),
        ({"batch_size": 0}, "batch_size"),
        ({"prefixes": [[1, 2]]}, "prefixes"),
        ({"layer": 7}, "layer"),
        ({"rng": "x"}, "rng"),
    ],
)
def test_refusals(model, prompts, basis, change, name):
    arguments = {"layer": LAYER, "prefixes": prompts, "geometry": basis, **change}
    with pytest.raises(ValueError, match=f"^{name}"):
        measure_projections(model, **arguments)


def test_a_geometry_of_another_layer_is_refused(model, prompts):
    found = measure_geometry(model, LAYER, prompts, GeometryFit(rank=4), rng=0)
    assert measure_projections(model, LAYER, prompts, found, rng=0).rank == 4
    assert measure_projections(model, LAYER, prompts, found, rank=2, rng=0).rank == 2
    with pytest.raises(ValueError, match=r"^geometry: expected one of layer 2"):
        measure_projections(model, 2, prompts, found)
    with pytest.raises(ValueError, match=r"^mixes"):
        transplantation(model, LAYER, prompts, found, mixes=(2.0,))
    with pytest.raises(ValueError, match=r"^candidates"):
        measure_margins(
            model,
            LAYER,
            NextTokens(prefixes=prompts, next_tokens=prompts[:, 0] * 0, candidates=[0]),
            found,
            MarginRounding(calibration=np.ones((2, WIDTH))),
        )
    with pytest.raises(ValueError, match=r"^bits"):
        MarginRounding(calibration=np.ones((2, WIDTH)), bits=[1])
