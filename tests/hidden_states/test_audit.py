"""The audit: that what it recommends keeps the limits, and that its guarantee is the release's."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.gate import Policy, check_release
from tacit.guarantees import InformationBound, MaximalLeakage, RenyiDP, SuccessBound
from tacit.hidden_states import (
    Argmax,
    Codebook,
    CodebookFit,
    Sizes,
    SweepRequest,
    SweepRun,
    Wish,
    audit_layer,
    recommend,
)
from tacit.hidden_states.audit.cell_points import CodeTrial
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.measured import Interval
from tacit.models import Prefixes
from tacit.releases import Release, load
from tests.hidden_states.networks import small_network

SIZES = Sizes(
    geometry=100, pairs=50, prompts=150, generated=10, queries=100, held_out=40, trained=100
)


@pytest.fixture(scope="module")
def asked():
    stream = np.random.default_rng(1).integers(40, size=6000)
    prefixes = Prefixes.draw(stream, bank=300, calibration=300, held_out=150, length=6, rng=0)
    return small_network(vocabulary=40, width=16), prefixes


@pytest.fixture(scope="module")
def found(asked):
    model, prefixes = asked
    return audit_layer(
        model,
        1,
        Wish(max_attack=0.2, min_agreement=0.2),
        SweepRequest(
            mechanisms=["isotropic", "codebook-behaviour", "argmax"],
            kl_budgets=(0.02, 1.0),
            codewords=(16,),
        ),
        prefixes=prefixes,
        sizes=SIZES,
        rng=2,
    )


def test_what_is_recommended_keeps_every_limit(found):
    chosen, wish = found.details.recommendation.point, found.details.wish
    assert chosen in found.details.points
    assert chosen.leak <= wish.max_attack
    assert chosen.agreement.low >= wish.min_agreement
    assert chosen.protocol == wish.protocol
    rivals = [p for p in found.details.points if wish.holds(p) and p.bound is not None]
    assert chosen.kl.value == min(p.kl.value for p in rivals)


def test_its_guarantee_is_that_of_the_recommended_release(found):
    chosen = found.details.recommendation.point
    leakage, success, information = found.guarantees
    assert isinstance(leakage, MaximalLeakage)
    # cells of too few prompts were removed: fewer codes than asked for
    assert 1.0 < leakage.factor <= chosen.codewords
    assert leakage.releases == 1
    assert chosen.bound * chosen.bank <= leakage.factor
    assert isinstance(success, SuccessBound)
    assert isinstance(information, InformationBound)
    assert (success.success, information.nats) == (chosen.bound, chosen.information)
    assert success.evidence == "theorem"


def test_an_audit_comes_back_from_json(found):
    text = json.dumps(found.to_dict(), allow_nan=False)
    again = Release.from_dict(json.loads(text))
    assert again.to_dict() == json.loads(text)
    assert again.details.recommendation == found.details.recommendation
    assert again.guarantees == found.guarantees


def test_an_audit_from_stored_points_has_the_same_guarantees(asked, tmp_path):
    model, prefixes = asked
    options = {
        "prefixes": prefixes, "sizes": SIZES, "rng": 2,
        "wish": Wish(max_attack=0.2, min_agreement=0.05),
        "request": SweepRequest(mechanisms=[Argmax(), "codebook-euclidean"], codewords=(8, 16)),
        "run": SweepRun(out=tmp_path / "points.jsonl"),
    }  # fmt: skip
    first, again = (audit_layer(model, 1, **options) for _ in range(2))
    assert again.details.points == first.details.points
    assert again.guarantees == first.guarantees
    assert len(first.guarantees) == 3


@pytest.mark.parametrize("name", ["points", "seed", "wish", "clean"])
def test_an_audit_that_lacks_a_field_is_refused(found, name):
    content = found.to_dict()
    del content["details"][name]
    with pytest.raises(ValueError, match=rf"release\.details: .*{name}"):
        Release.from_dict(content)


def test_nothing_of_an_audit_is_published(found):
    assert list(found.published()) == ["withheld"]
    with pytest.raises(ValueError, match="for the holder of the prompts"):
        found.public()


def test_nothing_is_recommended_where_nothing_keeps_the_limits(found):
    none = recommend(found.details.points, Wish(max_attack=1e-6))
    assert none.point is None
    assert "0.0%" in none.reasons[0]
    strict = recommend(found.details.points, Wish(max_attack=0.2, min_agreement=1.0, protocol="B"))
    assert strict.point is None
    assert "agrees" in strict.reasons[0]


def test_a_proof_comes_before_a_better_attacked_release(found):
    book = found.details.recommendation.point
    noise = next(p for p in found.details.points if p.bound is None)
    tame = replace(
        noise,
        attacks=tuple(replace(a, top1=Interval(0.0, 0.0, 0.01)) for a in noise.attacks),
        kl=Interval(0.0, 0.0, 0.0),
        agreement=Interval(1.0, 1.0, 1.0),
    )
    wish = Wish(max_attack=0.2, min_agreement=0.2, max_gain=None)
    assert recommend([tame, book], wish).point == book
    assert recommend([tame], wish).point == tame
    assert "stronger attack" in " ".join(recommend([tame], wish).reasons)


@pytest.mark.parametrize(
    "bad",
    [{"max_attack": 0.0}, {"max_attack": 2.0}, {"min_agreement": -1.0}, {"max_kl": 0.0},
     {"protocol": "C"}, {"max_attack": math.nan}],
)  # fmt: skip
def test_a_wish_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Wish(**bad)


def test_a_gaussian_release_is_recommended_with_its_renyi_guarantee(asked):
    model, prefixes = asked
    noise = audit_layer(
        model,
        1,
        Wish(max_attack=1.0, min_agreement=0.1, max_gain=None),
        SweepRequest(mechanisms=["isotropic"], kl_budgets=(0.02, 1.0), readings=("raw",)),
        prefixes=prefixes,
        sizes=SIZES,
        rng=2,
    )
    (guarantee,) = noise.guarantees
    chosen = noise.details.recommendation.point
    assert isinstance(guarantee, RenyiDP)
    assert guarantee.epsilons[guarantee.orders.index(2.0)] == chosen.epsilon_nearest
    assert chosen.kl_budget == 0.02


def test_codes_of_the_last_positions_are_those_of_one_pass_and_count_together(asked):
    """Positions before the last against the network's own states of one whole pass."""
    model, prefixes = asked
    laboratory = Laboratory.prepare(model, 1, prefixes, SIZES, seed=0, releases=3)
    book = Codebook.fit(laboratory.calibration, CodebookFit(size=16), rng=0)
    trial = CodeTrial(laboratory, book)
    whole = model.network(prefixes.bank, output_hidden_states=True).hidden_states[1].detach()
    codes = np.stack([book.assign(whole[:, -1 - back]) for back in range(3)], axis=1)
    assert np.array_equal(codes[:, 0], trial.cells)
    joint = len({tuple(row) for row in codes.tolist()})
    assert trial.certificate.occupied == trial.rank == joint == len(set(trial.sequences.tolist()))
    assert joint > len(set(trial.cells.tolist()))
    leakage, success, _ = trial.certify()
    assert (leakage.factor, leakage.releases) == (float(book.size) ** 3, 3)
    assert success.success == pytest.approx(joint / 300)
    with pytest.raises(ValueError, match="releases: expected an integer <= 6"):
        Laboratory.prepare(model, 1, prefixes, SIZES, seed=0, releases=7)


def test_an_audit_of_several_releases_recommends_and_is_gated_by_all_of_them(asked, tmp_path):
    model, prefixes = asked
    request = SweepRequest(
        mechanisms=["isotropic", "codebook-euclidean"], kl_budgets=(1.0,), codewords=(8,)
    )
    one, two = (
        audit_layer(
            model,
            1,
            Wish(max_attack=1.0, min_agreement=0.0, max_gain=1.0, releases=times),
            request,
            prefixes=prefixes,
            sizes=SIZES,
            rng=2,
        )
        for times in (1, 2)
    )
    bounds = [audit.details.recommendation.point.bound for audit in (one, two)]
    assert None not in bounds
    assert bounds[1] > bounds[0]
    factor = two.guarantees[0].factor
    assert (factor, two.guarantees[0].releases) == (one.guarantees[0].factor ** 2, 2)
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(two.to_dict(), allow_nan=False), encoding="utf-8")
    assert check_release(path, Policy(max_factor=factor)).passed
    assert not check_release(path, Policy(max_factor=factor, releases=3)).passed
    assert load(path).details.wish.releases == 2
