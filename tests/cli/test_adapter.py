"""``tacit adapter``: folders of three families fine-tuned, killed, taken up, shown, audited."""

import json
import re
import signal

import pytest
import torch
import transformers
from peft import PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers

from tacit import Ledger
from tacit.adapters import run
from tacit.adapters.steps import AdapterSteps
from tacit.gate import Policy, check_release
from tacit.models.small.storage import quiet
from tests.adapters.models import classifying_bert, gpt2, llama, masked_bert
from tests.cli_runner import refused
from tests.forks import die, dying_at, forked_tacit

WORDS = [f"w{place}" for place in range(60)]
# All of the records: the account is a closed form then.
ALL = ["--batch", "50"]
FAST = ["--longest", "8", "--steps", "2", "--rank", "2", "--insecure-seed", "1"]
MAKE = {"gpt2": gpt2, "llama": llama, "masked": masked_bert, "classifier": classifying_bert}


@pytest.fixture
def folder(tmp_path):
    def build(family):
        place = tmp_path / family
        network = MAKE[family]()
        with quiet():
            network.save_pretrained(place)
        marks = ["<unk>", "<mask>", "<pad>", "<s>"]
        vocabulary = {word: number for number, word in enumerate([*marks, *WORDS])}
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, mask_token="<mask>", pad_token="<pad>"
        ).save_pretrained(place)
        return place

    return build


@pytest.fixture
def text(tmp_path):
    place = tmp_path / "text.txt"
    place.write_text(" ".join(WORDS[(7 * i * i) % 60] for i in range(400)), encoding="utf-8")
    return place


@pytest.fixture
def table(tmp_path):
    place = tmp_path / "table.csv"
    rows = [
        f"{WORDS[i % 60]} {WORDS[(i * i) % 60]},{['red', 'green', 'blue'][i % 3]}"
        for i in range(40)
    ]
    place.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return place


@pytest.mark.parametrize("family", MAKE)
def test_one_command_trains_a_folder_that_peft_loads(family, folder, text, table, tacit, tmp_path):
    place, data = folder(family), table if family == "classifier" else text
    outcome = tacit(
        "adapter",
        "fit",
        place,
        data,
        *FAST,
        *(["--classes", "red,green,blue"] if family == "classifier" else []),
        "--batch",
        40 if family == "classifier" else 50,
        "--out",
        tmp_path / "a",
        "--json",
        tmp_path / "r.json",
        "--report",
        tmp_path / "r.html",
    )
    assert outcome.code == 0, outcome.err
    kind = type(MAKE[family]())
    trained = PeftModel.from_pretrained(kind.from_pretrained(place), tmp_path / "a").eval()
    plain = kind.from_pretrained(place).eval()
    ids = torch.arange(4, 12)[None]
    with torch.no_grad():
        assert not torch.equal(trained(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert "adapter" in (tmp_path / "r.html").read_text(encoding="utf-8")
    shown = tacit("adapter", "show", tmp_path / "a")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("No guarantee: ")
    assert "none of it may be published" in outcome.out
    assert tacit("show", tmp_path / "r.json").code == 0


def test_a_dry_run_trains_and_writes_nothing(folder, text, tacit, tmp_path):
    place = folder("gpt2")
    outcome = tacit(
        "adapter", "fit", place, text, *FAST, *ALL, "--out", tmp_path / "a", "--dry-run"
    )
    assert outcome.code == 0
    assert "nothing: this was a dry run" in outcome.out
    assert not (tmp_path / "a").exists()


def test_the_gate_reads_an_adapter(folder, text, tacit, tmp_path):
    place = folder("gpt2")
    flags = ["--longest", "8", "--steps", "1", "--rank", "2", "--epsilon", "4"]
    outcome = tacit("adapter", "fit", place, text, *flags, *ALL, "--out", tmp_path / "a")
    assert outcome.code == 0, outcome.err
    stored = tmp_path / "a" / "tacit.json"
    assert check_release(stored, Policy(max_success=0.99)).passed
    assert not check_release(stored, Policy(max_success=0.51)).passed


def test_without_noise_nothing_may_leave(folder, text, tacit, tmp_path):
    place = folder("gpt2")
    flags = [*FAST[:-2], "--method", "lora-fa"]
    refused(tacit("adapter", "fit", place, text, *flags, "--out", tmp_path / "a"), "Proposition 2")
    refused(
        tacit(
            "adapter", "fit", place, text, *flags, "--ledger", tmp_path / "l.db", "--secret", "s"
        ),
        "without noise",
    )
    outcome = tacit("adapter", "fit", place, text, *flags, "--out", tmp_path / "a", "--unprotected")
    assert outcome.code == 0, outcome.err
    assert "none of it may be published" in outcome.out
    assert "neither A nor B nor BA" in tacit("adapter", "show", tmp_path / "a").out


def test_an_audit_tells_what_it_proves(folder, text, tacit, tmp_path):
    place = folder("gpt2")
    outcome = tacit(
        "adapter",
        "audit",
        place,
        text,
        *FAST[:-2],
        "--method",
        "lora-fa",
        "--canaries",
        "16",
        "--steps",
        "20",
        "--json",
        tmp_path / "r.json",
    )
    assert outcome.code == 0, outcome.err
    stored = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert stored["attacks"][0]["trials"] == 16
    assert "Audit of this one run" in " ".join(outcome.out.split())


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["adapter", "fit"], ["--attack", "--no-attack"]),
        (["adapter", "audit"], ["--attack", "--ledger", "--secret", "--no-budget", "--dry-run"]),
        (["training", "poisoning"], ["--gram"]),
    ],
    ids=lambda given: given[-1],
)
def test_a_command_lists_no_flag_that_it_does_not_obey(command, flags, tacit):
    listed = set(re.findall(r"--[a-z-]+", tacit(*command, "--help").out))
    assert "--insecure-seed" in listed
    assert not listed & set(flags)
    for flag in flags:
        assert "has no such flag" in tacit(*command, flag).err


def dies_after_steps(count):
    plain, steps = AdapterSteps.step, []

    def step(self):
        plain(self)
        steps.append(1)
        if len(steps) == count:
            die()

    AdapterSteps.step = step
    run.SECONDS_BETWEEN_STATES = 0.0


MOMENTS = {
    "before the cost is counted": "tacit.ledger.ledger.Ledger.reserve",
    "before the noise": "tacit.ledger.reservation.Reservation.mark_drawn",
    "before the first step": "tacit.adapters.steps.AdapterSteps.step",
    "before the first state": "tacit.runs.folder.RunFolder.save",
    "before the proof": "tacit.adapters.run.check_reloaded",
    "before the end": "tacit.ledger.reservation.Reservation.commit",
    "before the page": "tacit.cli.publishing.Destination.store",
}


@pytest.mark.thorough
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_at_any_moment_is_paid_for_once(moment, folder, text, tacit, tmp_path):
    place, ledger = folder("gpt2"), tmp_path / "l.db"
    Ledger(ledger).set_budget("s", epsilon=4.5, delta=1e-4)
    files = {"--ledger": ledger, "--checkpoint": tmp_path / "run", "--out": tmp_path / "a"}
    flags = [*FAST[:-2], *ALL, "--epsilon", "4", "--secret", "s"]
    arguments = [
        "adapter",
        "fit",
        place,
        text,
        *flags,
        *(one for pair in files.items() for one in pair),
    ]
    arguments = [str(one) for one in arguments]
    done = forked_tacit(*arguments, before=dying_at(MOMENTS[moment]))
    assert done.code == -signal.SIGKILL, done.err
    assert Ledger(ledger).verify().holds
    assert not (tmp_path / "a").exists() or moment in ("before the end", "before the page")
    for _ in range(2):
        outcome = tacit(*arguments)
        assert outcome.code == 0, outcome.err
        spent = Ledger(ledger).spent("s")
        assert (spent.releases, spent.open) == (1, 0)
    assert Ledger(ledger).verify().holds
    assert tacit("adapter", "show", tmp_path / "a").code == 0


def test_a_killed_run_is_taken_up_and_paid_for_once(folder, text, tacit, tmp_path):
    place, ledger = folder("gpt2"), tmp_path / "l.db"
    Ledger(ledger).set_budget("s", epsilon=5.0, delta=1e-4)
    arguments = [
        "adapter",
        "fit",
        place,
        text,
        "--longest",
        "8",
        "--steps",
        "5",
        "--rank",
        "2",
        *ALL,
        "--epsilon",
        "4",
        "--ledger",
        ledger,
        "--secret",
        "s",
        "--checkpoint",
        tmp_path / "run",
        "--out",
        tmp_path / "a",
    ]
    arguments = [str(argument) for argument in arguments]
    done = forked_tacit(*arguments, before=lambda: dies_after_steps(2))
    assert done.code == -signal.SIGKILL, done.err
    assert not (tmp_path / "a").exists()
    spent = Ledger(ledger).spent("s")
    assert (spent.releases, spent.open) == (1, 1)
    outcome = tacit(*arguments)
    assert outcome.code == 0, outcome.err
    spent = Ledger(ledger).spent("s")
    assert (spent.releases, spent.open) == (1, 0)
    assert (tmp_path / "a" / "tacit.json").exists()
    # once more: the same adapter, nothing more is spent
    assert tacit(*arguments).code == 0
    assert Ledger(ledger).spent("s").releases == 1
    other = ["6" if one == "5" else one for one in arguments]
    refused(tacit(*other), "another settings")


def test_a_budget_that_is_too_small_is_told_before_training(folder, text, tacit, tmp_path):
    place, ledger = folder("gpt2"), tmp_path / "l.db"
    Ledger(ledger).set_budget("s", epsilon=1.0, delta=1e-4)
    outcome = tacit(
        "adapter",
        "fit",
        place,
        text,
        "--longest",
        "8",
        "--steps",
        "1",
        "--rank",
        "2",
        *ALL,
        "--epsilon",
        "4",
        "--ledger",
        ledger,
        "--secret",
        "s",
        "--out",
        tmp_path / "a",
        "--checkpoint",
        tmp_path / "run",
    )
    refused(outcome, "budget")
    assert not (tmp_path / "a").exists()
    assert Ledger(ledger).spent("s").releases == 0
    # the same folder takes a run that the budget allows
    assert not (tmp_path / "run" / "declared.json").exists()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (["--method", "magic"], "--method"),
        (["--target-modules", "nine"], "--target-modules: "),
        (["--longest", "99"], "--longest"),
        (["--clip", "0"], "clip"),
        (["--epsilon", "-1"], "epsilon"),
        (["--delta", "1"], "delta"),
        (["--rank", "0"], "rank"),
        (["--batch", "900"], "batch"),
        (["--clipping", "some"], "clipping"),
        (["--method", "dp-sgd", "--rank", "4"], "--rank: --method dp-sgd has none"),
        (["--method", "lora-fa", "--epsilon", "4"], "--epsilon: expected none"),
        (["--method", "lora-fa", "--clip", "2"], "--clip: --method lora-fa has none"),
        (["--method", "lora-fa", "--clipping", "joint"], "--clipping: --method lora-fa has none"),
    ],
)
def test_a_wrong_flag_is_one_sentence(change, part, folder, text, tacit, tmp_path):
    place = folder("gpt2")
    outcome = tacit(
        "adapter", "fit", place, text, "--longest", "8", *ALL, "--out", tmp_path / "a", *change
    )
    refused(outcome, part)
    assert not (tmp_path / "a").exists()


def test_files_that_are_not_there_or_not_fit(folder, text, table, tacit, tmp_path):
    place = folder("classifier")
    refused(tacit("adapter", "fit", tmp_path / "none", text), "name_or_path")
    refused(tacit("adapter", "fit", place, tmp_path / "none.csv"), "none.csv")
    refused(tacit("adapter", "fit", place, text), "expected a table")
    refused(tacit("adapter", "fit", place, table, "--column", "words"), "column 'words'")
    refused(tacit("adapter", "show", place), "tacit.json")
    many = tmp_path / "many.csv"
    many.write_text("text,label\n" + "".join(f"w1,c{i}\n" for i in range(9)), encoding="utf-8")
    outcome = tacit("adapter", "fit", place, many)
    refused(outcome, "expected one of the classes")
    assert "c0" not in outcome.err
    refused(tacit("adapter", "fit", place, table, "--classes", "a,b,c,d"), "at most the 3")
    # a file without a header: its first record is in no sentence
    bare = tmp_path / "bare.csv"
    bare.write_text("John Smith has a secret,red\nw1,blue\n", encoding="utf-8")
    outcome = tacit("adapter", "fit", place, bare)
    refused(outcome, "expected a column 'text' among the 2")
    assert "Smith" not in outcome.err
