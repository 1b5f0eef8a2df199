"""Mechanisms as values: words and values are each other's, and sweep and report know no word."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path

import pytest

import tacit
from tacit.hidden_states.audit import attackers, cells
from tacit.hidden_states.audit.attackers import ATTACKERS, Attacker, read_attacker
from tacit.hidden_states.audit.catalogue import (
    USUAL,
    mechanism_of,
    read_mechanism,
    register_mechanism,
)
from tacit.hidden_states.audit.cells import Argmax, CodebookMechanism
from tacit.hidden_states.audit.gaussians import StateNoise
from tacit.hidden_states.audit.mechanisms import Mechanism, Unknown
from tacit.hidden_states.audit.points import Setting
from tacit.hidden_states.audit.request import SweepRequest
from tacit.hidden_states.noise import shapes
from tacit.hidden_states.noise.shapes import SHAPES, read_shape
from tacit.hidden_states.spelling import SpelledValue

SOURCE = Path(tacit.__file__).parent
# who may know a mechanism by its word: its own file and nothing that measures, chooses or shows
BLIND = [
    *(
        SOURCE / "hidden_states" / "audit" / f"{name}.py"
        for name in ("sweep", "workflow", "laboratory", "points", "release", "recommendation",
                     "mechanisms")
    ),
    *sorted((SOURCE / "hidden_states" / "audit" / "page").glob("*.py")),
]  # fmt: skip
VALUES = {
    "isotropic": StateNoise(shapes.IsotropicNoise()),
    "inverse-fisher": StateNoise(shapes.InverseFisher()),
    "inverse-fisher-diagonal": StateNoise(shapes.InverseFisher(diagonal=True)),
    "mahalanobis-optimal": StateNoise(shapes.MahalanobisOptimal()),
    "mahalanobis-optimal(0.1)": StateNoise(shapes.MahalanobisOptimal(0.1)),
    "mahalanobis-bare": StateNoise(shapes.MahalanobisOptimal(0.0)),
    "complement": StateNoise(shapes.ComplementNoise()),
    "complement(3)": StateNoise(shapes.ComplementNoise(3)),
    "fisher-complement": StateNoise(shapes.FisherComplement()),
    "worst-case": StateNoise(shapes.WorstCase()),
    "power(0.5)": StateNoise(shapes.Power(0.5)),
    "power(12.123456)": StateNoise(shapes.Power(12.123456)),
    "generalized-eigen(4)": StateNoise(shapes.GeneralizedEigen(4)),
    "codebook-euclidean": CodebookMechanism(cells.EuclideanCells()),
    "codebook-fisher": CodebookMechanism(cells.FisherCells()),
    "codebook-behaviour": CodebookMechanism(cells.BehaviourCells()),
    "codebook-decision": CodebookMechanism(cells.BehaviourCells(decision_cost=4.0)),
    "codebook-behaviour(2)": CodebookMechanism(cells.BehaviourCells(decision_cost=2.0)),
    "argmax": Argmax(),
}
ASKED = SweepRequest(
    kl_budgets=(1.0, 2.0), epsilons=(3.0,), codewords=(4, 8),
    readings=("raw", "posterior-behaviour"),
)  # fmt: skip
SETS = {"calibration": 50, "vocabulary": 30}


@pytest.mark.parametrize("word", VALUES)
def test_a_word_names_a_value_and_the_value_its_word(word):
    assert read_mechanism(word) == VALUES[word]
    assert VALUES[word].name == word
    assert read_mechanism(VALUES[word]) is VALUES[word]


def test_values_are_frozen_and_told_apart():
    assert len(set(VALUES.values())) == len(VALUES)
    with pytest.raises(FrozenInstanceError):
        VALUES["power(0.5)"].design.alpha = 2.0
    assert {value.name for value in USUAL} <= set(VALUES)


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("gauss", "'isotropic'"),
        ("power", "power(alpha)"),
        ("power(x)", "alpha"),
        ("power(nan)", "alpha"),
        ("power(0.5,1)", "power(alpha)"),
        ("generalized-eigen(0)", "directions"),
        ("generalized-eigen(1.5)", "directions"),
        ("codebook-", "codebook-euclidean"),
        ("euclidean", "codebook-euclidean"),
        ("codebook-behaviour(-1)", "decision_cost"),
        ("inverse-fisher(1)", "'inverse-fisher'"),
        (3, "got 3"),
        (None, "got None"),
    ],
)
def test_a_word_of_nothing_is_refused_in_one_sentence(word, part):
    with pytest.raises(ValueError, match=r"^mechanisms: ") as refused:
        read_mechanism(word)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_shapes_and_attackers_have_words():
    assert read_shape("power(0.5)") == shapes.Power(0.5)
    assert read_attacker("mahalanobis") == attackers.MahalanobisAttacker()
    assert read_attacker(attackers.WeightedAttacker()) == attackers.WeightedAttacker()
    with pytest.raises(ValueError, match=r"^attackers: .*'euclidean'"):
        read_attacker("oracle")


def test_each_mechanism_takes_what_it_has_a_use_for():
    assert VALUES["isotropic"].settings(ASKED, **SETS) == (
        Setting(kl_budget=1.0),
        Setting(kl_budget=2.0),
        Setting(target_epsilon=3.0),
    )
    assert VALUES["isotropic"].readings(ASKED) == {"raw": "A", "posterior-behaviour": "B"}
    assert VALUES["codebook-fisher"].settings(ASKED, **SETS) == (
        Setting(codewords=4),
        Setting(codewords=8),
    )
    assert VALUES["argmax"].settings(ASKED, **SETS) == (Setting(codewords=30),)
    assert VALUES["argmax"].readings(ASKED) == {"states": "A", "table": "B"}
    with pytest.raises(ValueError, match="codewords"):
        VALUES["codebook-fisher"].settings(replace(ASKED, codewords=(51,)), **SETS)


def every_word() -> set[str]:
    """Words of mechanisms, cells and attackers, without the numbers."""
    kinds: list[type[SpelledValue]] = [*SHAPES, *ATTACKERS, *cells.CELLS, CodebookMechanism, Argmax]
    return {word.partition("(")[0] for kind in kinds for word in kind.spelling()}


def literals(path: Path) -> set[str]:
    """The words a program may compare with: its strings other than docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return {part for part in text.replace("'", '"').split('"') if part}
    tree = ast.parse(text)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    }


@pytest.mark.parametrize("path", BLIND, ids=lambda path: path.name)
def test_sweep_and_report_know_no_mechanism(path):
    families = {StateNoise.family, CodebookMechanism.family}
    known = literals(path) & (every_word() | families)
    assert not known, f"{path.name} knows {sorted(known)}"
    assert not any(word.startswith(("codebook-", "power(")) for word in literals(path))
    text = path.read_text(encoding="utf-8")
    for home in ("audit.gaussians", "audit.cells", "audit.noise_points", "audit.cell_points"):
        assert home not in text


def test_the_search_for_words_finds_them(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""isotropic"""\nfound = name == "argmax"\n', encoding="utf-8")
    assert literals(path) & every_word() == {"argmax"}


def test_words_and_findings_need_no_model():
    script = "import sys, tacit.hidden_states.audit.release; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_registered_kind_is_read_and_words_stay_its_own():
    @register_mechanism
    @dataclass(frozen=True)
    class Rounded(Mechanism):
        step: float
        family = "rounded"
        word = "rounded"

        def fit(self, laboratory, setting, seed):
            raise NotImplementedError

    assert read_mechanism("rounded(0.5)") == Rounded(0.5)
    assert register_mechanism(Rounded) is Rounded

    @dataclass(frozen=True)
    class Thief(Rounded):
        word = "argmax"

        @classmethod
        def spelling(cls):
            return ("argmax",)

    with pytest.raises(ValueError, match="'argmax'"):
        register_mechanism(Thief)


def test_a_point_of_a_mechanism_defined_elsewhere_is_shown_by_its_name():
    class Named:
        mechanism, codewords = "elsewhere(3)", None

    found = mechanism_of(Named)
    assert found == Unknown("elsewhere(3)")
    assert found.words(Named) == "elsewhere(3)"
    assert not found.control
    with pytest.raises(ValueError, match=r"elsewhere\(3\)"):
        found.fit(None, Setting(), 0)


def test_adding_one_takes_one_file_of_fifty_lines():
    pages = sorted((SOURCE.parents[1] / "docs").rglob("adding-a-mechanism.md"))
    if not pages:
        pytest.skip("docs are not beside an installed package")
    block = re.findall(r"```python\n(.*?)```", pages[0].read_text(encoding="utf-8"), re.S)[0]
    assert len(block.splitlines()) <= 50
    assert "(Mechanism)" in block


def test_every_attacker_is_one_kind():
    assert all(issubclass(kind, Attacker) for kind in ATTACKERS)


def test_the_name_of_a_number_is_read_back_as_that_number():
    for alpha in (1 / 3, 0.1 + 0.2, 0.5, 2.0, 1e-7):
        assert shapes.Power.read(shapes.Power(alpha).name) == shapes.Power(alpha)
    assert shapes.Power(0.5).name == "power(0.5)"
