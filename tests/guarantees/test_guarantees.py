"""Guarantees: what they hold, say, write and refuse; that they are true is in soundness/."""

import dataclasses
import json
import math

import pytest

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    Indistinguishability,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    ResidualPrivacy,
    SuccessBound,
    compose_leakage,
    guarantee_from_dict,
    guarantee_from_json,
    membership_bound,
)

CERTAIN = {
    "evidence": "theorem",
    "assumptions": ("the secret is drawn as stated", "the noise is fresh"),
    "source": "a paper, Theorem 1",
}
SURE = {
    "evidence": "statistical",
    "assumptions": (),
    "source": "a paper, Algorithm 1",
    "confidence": 0.999,
}
EXAMPLES = [
    ApproximateDP(epsilon=0.1, delta=1e-5, adjacency="replace one record", **CERTAIN),
    ApproximateDP(epsilon=math.inf, delta=0.0, adjacency="replace one record", **SURE),
    RenyiDP(orders=(1.5, 2, 64), epsilons=(0.1, 1 / 3, math.inf), adjacency="add one", **CERTAIN),
    InformationBound(nats=1e-300, secret="which rows were used", **SURE),
    InformationBound(nats=math.inf, secret="which rows were used", **CERTAIN),
    SuccessBound(success=0.55, prior=0.5, task="membership", **CERTAIN),
    SuccessBound(success=1, prior=1 / 3, task="the class of a digit “7”", **SURE),
    Indistinguishability(
        references=("without Ada", "without Bob"), divergence="tv", bounds=(0.1, 1), **CERTAIN
    ),
    Indistinguishability(references=("r",), divergence=("renyi", 2), bounds=(math.inf,), **CERTAIN),
    Indistinguishability(
        references=("r",), divergence=("hockey-stick", 0.5), bounds=(0.0,), **CERTAIN
    ),
    ResidualPrivacy(intrinsic=-0.25, leaked=0.1, reference="the uniform law", **CERTAIN),
    ResidualPrivacy(intrinsic=-math.inf, leaked=math.inf, reference="the uniform law", **CERTAIN),
    GaussianDP(mu=0.75, adjacency="replace one record", **CERTAIN),
    GaussianDP(mu=math.inf, adjacency="replace one record", **SURE),
    MaximalLeakage(factor=64, secret="the prompt", **CERTAIN),
    MaximalLeakage(nats=1e-20, secret="the prompt", releases=3, **SURE),
    MaximalLeakage(nats=2000.0, secret="the prompt", **CERTAIN),
    MaximalLeakage(nats=math.inf, secret="the prompt", **CERTAIN),
    SuccessBound(success=0.1, prior=0.01, task="a name", law="that it is one of 100", **CERTAIN),
]
NAMES = [f"{type(example).__name__}-{i}" for i, example in enumerate(EXAMPLES)]


@pytest.mark.parametrize("guarantee", EXAMPLES, ids=NAMES)
def test_json_gives_back_an_equal_guarantee(guarantee):
    document = guarantee.to_json()
    assert guarantee_from_json(document) == guarantee
    assert guarantee_from_dict(json.loads(document)) == guarantee
    assert guarantee_from_dict(guarantee.to_dict()) == guarantee
    assert hash(guarantee_from_json(document)) == hash(guarantee)


@pytest.mark.parametrize("guarantee", EXAMPLES, ids=NAMES)
def test_json_is_strict_and_says_what_it_is(guarantee):
    def refuse(constant):
        raise AssertionError(constant)

    content = json.loads(guarantee.to_json(), parse_constant=refuse)
    assert content["type"] == type(guarantee).__name__
    assert content["schema"] == 1
    assert set(content) == {"type", "schema"} | {f.name for f in dataclasses.fields(guarantee)}


@pytest.mark.parametrize("guarantee", EXAMPLES, ids=NAMES)
def test_description_is_one_line(guarantee):
    line = guarantee.describe()
    assert line.endswith(".")
    assert "\n" not in line
    assert ("confidence 99.9%" in line) == (guarantee.evidence == "statistical")


@pytest.mark.parametrize("guarantee", EXAMPLES, ids=NAMES)
def test_guarantees_are_frozen(guarantee):
    for field in dataclasses.fields(guarantee):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(guarantee, field.name, None)


def test_every_type_has_an_example():
    assert {type(example) for example in EXAMPLES} == set(Guarantee.__subclasses__())


def test_the_base_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Guarantee(**CERTAIN)


def test_numbers_and_sequences_are_normalised():
    curve = RenyiDP(orders=[2, 3], epsilons=[1, 2], adjacency="a", **CERTAIN)
    assert curve.orders == (2.0, 3.0)
    assert curve == RenyiDP(orders=(2.0, 3.0), epsilons=(1.0, 2.0), adjacency="a", **CERTAIN)
    bound = Indistinguishability(
        references=["r"], divergence=["renyi", 2], bounds=[1], **CERTAIN | {"assumptions": ["x"]}
    )
    assert bound.divergence == ("renyi", 2.0)
    assert bound.assumptions == ("x",)


@pytest.mark.parametrize(
    ("success", "prior", "shown", "blind"),
    [
        (0.55, 0.5, "55%", "50%"),
        (0.5500000001, 0.5, "55.01%", "50%"),
        (0.999999, 0.5, "100%", "50%"),
        (0.000123, 0.0001, "0.0123%", "0.01%"),
        (1.0, 0.001, "100%", "0.1%"),
    ],
)
def test_success_is_shown_rounded_up(success, prior, shown, blind):
    bound = SuccessBound(success=success, prior=prior, task="membership", **CERTAIN)
    assert bound.describe() == (
        f"An attacker is right about membership at most {shown} of the time (guessing blind: "
        f"{blind}), if all it knows of the secret is its distribution, as assumed."
    )


def test_a_success_says_its_law_and_older_documents_have_none():
    bound = EXAMPLES[-1]
    assert "knows of the secret is that it is one of 100" in bound.describe()
    content = bound.to_dict()
    del content["law"]
    assert guarantee_from_dict(content) == dataclasses.replace(bound, law="")
    with pytest.raises(ValueError, match="law: expected text"):
        dataclasses.replace(bound, law=3)


def test_a_factor_and_its_nats_say_the_same():
    bound = MaximalLeakage(factor=64, secret="the prompt", **CERTAIN)
    assert bound.factor == 64.0
    assert math.log(64) < bound.nats < math.log(64) * (1 + 1e-14)
    assert MaximalLeakage(nats=bound.nats, secret="x", **CERTAIN).factor >= 64
    tiny = MaximalLeakage(nats=1e-20, secret="x", **CERTAIN)
    assert tiny.nats == 1e-20
    assert tiny.factor > 1
    large = MaximalLeakage(nats=2000.0, secret="x", **CERTAIN)
    assert math.isinf(large.factor)
    assert large.success(0.5, "it").success == 1.0
    for fields, message in [
        ({}, "factor: expected a factor"),
        ({"factor": 0.5}, "factor: expected a number >= 1"),
        ({"factor": math.nan}, "factor: expected a number"),
        ({"nats": -1.0}, "nats: expected"),
        ({"factor": 64, "nats": 4.0}, "nats: expected the logarithm"),
        ({"factor": math.inf, "nats": 4.0}, "nats: expected the logarithm"),
        ({"factor": 2, "releases": 0}, "releases: expected"),
    ]:
        with pytest.raises(ValueError, match=message):
            MaximalLeakage(secret="x", **fields, **CERTAIN)


def test_a_factor_is_described_for_every_prior_and_multiplies():
    bound = MaximalLeakage(factor=4096, secret="the prompt", **CERTAIN)
    assert bound.describe() == (
        "Seeing one release multiplies any attacker's chance of guessing anything about the prompt "
        "right by at most 4,096 (8.318 nats), for every prior and all side information but the "
        "coins of the release."
    )
    twice = bound.repeated(2)
    assert (twice.factor, twice.releases) == (4096.0**2, 2)
    assert "Seeing 2 releases multiplies" in twice.describe()
    assert "e^8318" in bound.repeated(1000).describe()
    assert bound.repeated(10**9).nats >= 10**9 * math.log(4096)
    together = compose_leakage([bound, MaximalLeakage(factor=2, secret="the prompt", **SURE)])
    assert (together.factor, together.releases) == (8192.0, 2)
    assert (together.evidence, together.confidence) == ("statistical", 0.999)
    with pytest.raises(ValueError, match="parts: expected one secret"):
        compose_leakage([bound, MaximalLeakage(factor=2, secret="another", **CERTAIN)])
    unsure = MaximalLeakage(factor=2, secret="the prompt", **{**SURE, "confidence": 0.4})
    with pytest.raises(ValueError, match=r"parts: expected failures.* less than 1, got 1\.2"):
        compose_leakage([unsure, unsure])
    with pytest.raises(ValueError, match="parts: expected guarantees"):
        compose_leakage([])


def test_what_follows_from_a_factor():
    bound = MaximalLeakage(factor=64, secret="the prompt", **CERTAIN)
    known = bound.success(0.003, "its last word")
    assert 0.192 <= known.success < 0.1920001
    assert known.assumptions == bound.assumptions
    assert "is enough to be right 0.3% of the time without the release" in known.describe()
    assert bound.information().nats == bound.nats
    sizes = dict(bound.success_by_candidates([2, 64, 65, 4000]))
    assert sizes[2] == sizes[64] == 1.0
    assert sizes[4000] == 0.016
    with pytest.raises(ValueError, match="candidates: expected an integer >= 2"):
        bound.success_by_candidates([1])


def test_confidence_is_shown_rounded_down():
    bound = InformationBound(nats=0.1, secret="x", **SURE | {"confidence": 0.9999999})
    assert "true with confidence 99.99999%" in bound.describe()
    bound = InformationBound(nats=0.1, secret="x", **SURE | {"confidence": 0.98765})
    assert "true with confidence 98.76%" in bound.describe()


def test_other_descriptions_round_against_us():
    assert EXAMPLES[0].describe() == (
        "Between neighbouring inputs (replace one record) no outcome is more than e^ε times as "
        "likely under one as under the other, but for a probability of δ: ε = 0.1, δ = 1e-5."
    )
    nats = InformationBound(nats=0.00500123, secret="which rows were used", **CERTAIN)
    assert nats.describe() == (
        "The release tells at most 0.005002 nats about which rows were used, "
        "whatever is computed from it."
    )
    residual = ResidualPrivacy(
        intrinsic=-0.25001, leaked=0.100001, reference="the uniform law", **CERTAIN
    )
    assert residual.describe() == (
        "Of an intrinsic privacy of -0.2501 nats relative to the uniform law, the release takes at "
        "most 0.1001 nats and leaves at least -0.3501 nats."
    )
    assert "total variation distance of 1 of what each of 2 references" in EXAMPLES[7].describe()
    assert "(loosest: without Bob)" in EXAMPLES[7].describe()
    assert "order 2 of ∞ of what its reference" in EXAMPLES[8].describe()
    assert "0.3334 nats at order 2" in EXAMPLES[2].describe()
    large = InformationBound(nats=1234.5, secret="x", **CERTAIN)
    assert "at most 1235 nats" in large.describe()
    curve = RenyiDP(orders=(2, 3, 4, 5), epsilons=(1, 2, 3, 4), adjacency="a", **CERTAIN)
    assert curve.describe().endswith("3 nats at order 4 (and bounded at 1 more).")


def test_residual_is_rounded_down():
    bound = ResidualPrivacy(intrinsic=-1.0, leaked=1e-20, reference="r", **CERTAIN)
    assert bound.residual == math.nextafter(-1.0, -2.0)
    exact = ResidualPrivacy(intrinsic=-1.0, leaked=0.5, reference="r", **CERTAIN)
    assert exact.residual == -1.5


def test_derived_guarantees_keep_evidence_and_confidence():
    information = InformationBound(nats=0.01, secret="rows", **SURE)
    bound = membership_bound(information, 0.5)
    assert bound.success == pytest.approx(0.570592570, abs=5e-10)
    assert (bound.evidence, bound.confidence) == ("statistical", 0.999)
    assert bound.assumptions == information.assumptions
    assert bound.source == "a paper, Algorithm 1; residual-pac, Eq. 17"
    success = EXAMPLES[0].success(0.25)
    assert success.prior == 0.75
    assert success.assumptions == EXAMPLES[0].assumptions
    converted = EXAMPLES[2].approximate(1e-5)
    assert isinstance(converted, ApproximateDP)
    assert converted.delta == 1e-5
    assert converted.adjacency == "add one"


@pytest.mark.parametrize("prior", [0.3, 1.0, math.nan, 0.0])
def test_membership_needs_the_success_of_the_best_guess(prior):
    with pytest.raises(ValueError, match="prior: expected"):
        membership_bound(InformationBound(nats=0.01, secret="rows", **CERTAIN), prior)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ApproximateDP, {"epsilon": -1.0, "delta": 0.0, "adjacency": "a"}, "epsilon: expected"),
        (ApproximateDP, {"epsilon": 1.0, "delta": 2.0, "adjacency": "a"}, "delta: expected"),
        (ApproximateDP, {"epsilon": 1.0, "delta": 0.0, "adjacency": ""}, "adjacency: expected"),
        (RenyiDP, {"orders": (), "epsilons": (), "adjacency": "a"}, "orders: expected"),
        (RenyiDP, {"orders": (1.0,), "epsilons": (1.0,), "adjacency": "a"}, "orders: expected"),
        (RenyiDP, {"orders": (3, 2), "epsilons": (1, 1), "adjacency": "a"}, "orders: expected"),
        (RenyiDP, {"orders": (2,), "epsilons": (1, 1), "adjacency": "a"}, "epsilons: expected"),
        (RenyiDP, {"orders": (2,), "epsilons": (-1,), "adjacency": "a"}, r"epsilons\[0\]: expec"),
        (InformationBound, {"nats": math.nan, "secret": "s"}, "nats: expected"),
        (InformationBound, {"nats": True, "secret": "s"}, "nats: expected a number, got True"),
        (InformationBound, {"nats": 0.1, "secret": None}, "secret: expected"),
        (SuccessBound, {"success": 0.4, "prior": 0.5, "task": "t"}, "success: expected"),
        (SuccessBound, {"success": 1.1, "prior": 0.5, "task": "t"}, "success: expected"),
        (SuccessBound, {"success": 0.6, "prior": 0.0, "task": "t"}, "prior: expected"),
        (
            Indistinguishability,
            {"references": (), "divergence": "kl", "bounds": ()},
            "references: expected",
        ),
        (
            Indistinguishability,
            {"references": ("a", "a"), "divergence": "kl", "bounds": (1, 1)},
            "references: expected distinct",
        ),
        (
            Indistinguishability,
            {"references": "ab", "divergence": "kl", "bounds": (1, 1)},
            "references: expected a sequence",
        ),
        (
            Indistinguishability,
            {"references": ("a",), "divergence": abs, "bounds": (1,)},
            "divergence: expected 'kl'",
        ),
        (
            Indistinguishability,
            {"references": ("a",), "divergence": "kl", "bounds": (1, 2)},
            "bounds: expected one for each",
        ),
        (
            ResidualPrivacy,
            {"intrinsic": 0.1, "leaked": 0.1, "reference": "r"},
            r"intrinsic: expected -D\(X \|\| R\) <= 0",
        ),
        (ResidualPrivacy, {"intrinsic": 0, "leaked": -1, "reference": "r"}, "leaked: expected"),
    ],
)
def test_bad_fields_are_named(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields, **CERTAIN)


@pytest.mark.parametrize(
    ("common", "message"),
    [
        (CERTAIN | {"evidence": "proof"}, "evidence: expected one of 'theorem'"),
        (CERTAIN | {"confidence": 0.9}, "confidence: expected None with theorem evidence"),
        (SURE | {"confidence": None}, "confidence: expected a number"),
        (SURE | {"confidence": 1.0}, "confidence: expected a number in"),
        (CERTAIN | {"assumptions": "fresh noise"}, "assumptions: expected a sequence"),
        (CERTAIN | {"assumptions": (3,)}, r"assumptions\[0\]: expected a non-empty string"),
        (CERTAIN | {"source": " "}, "source: expected a non-empty string"),
    ],
)
def test_bad_evidence_is_named(common, message):
    with pytest.raises(ValueError, match=message):
        InformationBound(nats=0.1, secret="s", **common)


def damaged(**changes):
    content = EXAMPLES[0].to_dict() | changes
    return {name: value for name, value in content.items() if value is not ...}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (damaged(type="Promise"), "type: expected one of .*'ApproximateDP'"),
        (damaged(type=...), "type: expected one of"),
        (damaged(type=["x"]), "type: expected one of"),
        (damaged(schema=2), "schema: expected 1, got 2"),
        (damaged(schema=True), "schema: expected 1, got True"),
        (damaged(schema=...), "schema: expected 1, got None"),
        (damaged(delta=...), "delta: missing from a ApproximateDP"),
        (damaged(gamma=1), "gamma: not a field of ApproximateDP"),
        (damaged(epsilon="much"), "epsilon: expected a number, got 'much'"),
        (damaged(epsilon=None), "epsilon: expected a number"),
        (damaged(epsilon=[1.0]), "epsilon: expected a number"),
        (damaged(assumptions=None), "assumptions: expected a sequence"),
        ([1, 2], "guarantee: expected an object, got list"),
    ],
)
def test_bad_documents_are_named(content, message):
    with pytest.raises(ValueError, match=message):
        guarantee_from_dict(content)
    with pytest.raises(ValueError, match=message):
        guarantee_from_json(json.dumps(content))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "document: the text is not JSON"),
        ('{"type": "InformationBound", "nats": NaN}', "it holds NaN"),
        ('{"type": "InformationBound", "nats": Infinity}', "it holds Infinity"),
        ('{"type": "InformationBound", "nats": 1, "nats": 2}', "the field .nats. twice"),
    ],
)
def test_documents_that_are_not_strict_json(document, message):
    with pytest.raises(ValueError, match=message):
        guarantee_from_json(document)


def test_parameters_of_a_divergence_are_rounded_to_where_its_bound_still_holds():
    # N(0, 2) beside N(0, 1) has no divergence of order 2, and one of every order below
    below = math.nextafter(2.0, 0.0)
    common = {"evidence": "theorem", "assumptions": (), "source": "example"}
    curve = RenyiDP(orders=(below,), epsilons=(9.0,), adjacency="replace one record", **common)
    assert curve.describe().endswith("at order 1.99999.")
    for kind, told in ((("renyi", below), "1.99999"), (("hockey-stick", 1.0000001), "1.00001")):
        held = Indistinguishability(references=("a",), divergence=kind, bounds=(0.5,), **common)
        assert f" {told} " in held.describe()
