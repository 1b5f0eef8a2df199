"""Adapters: the folder that is published, and everything beside it."""

import pytest

pytest.importorskip("peft")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tacit.adapters import DPSGD, DPLoRAFA, NoisyProjection
from tests.adapters.models import classifying_bert, gpt2, network, supervised, trained
from tests.cli.test_adapter import WORDS

from .registry import tells_nothing_beside

FLAGS = ["--longest", "8", "--steps", "2", "--rank", "2", "--epsilon", "4", "--out", "adapter"]
HELD = ["--json", "a.json", "--report", "a.html", "--ledger", "l.sqlite", "--secret", "s"]
HOLDERS = {"a.json", "a.html", "l.sqlite"}


def table(row=None):
    """Forty texts with a class, one of them replaced."""
    rows = [f"{WORDS[i % 60]} {WORDS[(i * i) % 60]},{('red', 'green', 'blue')[i % 3]}"
            for i in range(40)]  # fmt: skip
    if row is not None:
        rows[7] = row
    return "text,label\n" + "\n".join(rows) + "\n"


REPLACED = {
    "another": "w1 w2 w3,red",
    "empty": ",blue",
    "unknown words": "Ж ü 🙂,green",
    "long": " ".join(WORDS) + ",red",
    "a copy": table().splitlines()[4],
    "another form of a letter": "cafe\u0301,red",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    import transformers

    from tacit.models.small.storage import quiet

    found = {}
    for name, make in (("gpt2", gpt2), ("classifier", classifying_bert)):
        place = found[name] = tmp_path_factory.mktemp(name)
        with quiet():
            make().save_pretrained(place)
        marks = ["<unk>", "<mask>", "<pad>", "<s>"]
        vocabulary = {word: number for number, word in enumerate([*marks, *WORDS])}
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, mask_token="<mask>", pad_token="<pad>"
        ).save_pretrained(place)
    return found


@pytest.mark.parametrize("name", REPLACED)
@tells_nothing_beside("adapter fit", "adapter")
def test_an_adapter_tells_nothing_beside_its_noisy_sums(interference, folders, name):
    flags = ["adapter", "fit", folders["classifier"], "t.csv", *FLAGS, "--batch", "40", *HELD,
             "--classes", "red,green,blue"]  # fmt: skip
    pair = interference.commands(flags, {"t.csv": table()}, {"t.csv": table(REPLACED[name])})
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


@tells_nothing_beside("adapter fit")
def test_a_record_of_another_class_renumbers_no_other(interference, folders):
    """Of three classes 0 and 1 are there, and one record of the two tables has 2 or LABEL_1."""
    flags = ["adapter", "fit", folders["classifier"], "t.csv", *FLAGS, "--batch", "40", *HELD]
    rows = [f"{WORDS[i % 60]},{i % 2}" for i in range(40)]

    def named(label):
        return {"t.csv": "\n".join(["text,label", *rows[1:], f"w0,{label}"]) + "\n"}

    for label in ("2", "LABEL_1"):
        pair = interference.commands(flags, named("0"), named(label))
        pair.assert_equal(holder=HOLDERS, holder_terminal=True)
        assert pair.first.code == 0, pair.first.err


@tells_nothing_beside("adapter fit")
def test_what_is_measured_on_records_stays_with_them(interference, folders):
    flags = ["adapter", "fit", folders["gpt2"], "t.csv", *FLAGS, "--batch", "30",
             "--held-out", "10", *HELD]  # fmt: skip
    pair = interference.commands(flags, {"t.csv": table()}, {"t.csv": table(REPLACED["another"])})
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


@tells_nothing_beside("adapter show")
def test_what_is_shown_is_of_the_folder(interference, folders):
    flags = [
        ["adapter", "fit", folders["gpt2"], "t.csv", *FLAGS, "--batch", "40"],
        ["adapter", "show", "adapter"],
    ]
    pair = interference.commands(flags, {"t.csv": table()}, {"t.csv": table(REPLACED["empty"])})
    pair.assert_equal(holder_terminal=True)


@tells_nothing_beside("adapter fit", "adapter audit")
def test_a_dry_run_and_an_audit_tell_nothing_but_to_the_holder(interference, folders):
    dry = ["adapter", "fit", folders["gpt2"], "t.csv", *FLAGS, "--batch", "40", "--dry-run"]
    first, second = {"t.csv": table()}, {"t.csv": table(REPLACED["unknown words"])}
    interference.commands(dry, first, second).assert_equal(released=False)
    audit = ["adapter", "audit", folders["gpt2"], "t.csv", "--longest", "8", "--steps", "1",
             "--rank", "2", "--batch", "44", "--canaries", "8", "--json", "a.json"]  # fmt: skip
    pair = interference.commands(audit, first, second)
    pair.assert_equal(holder={"a.json"}, holder_terminal=True)


@pytest.mark.parametrize("method", [DPSGD(), DPLoRAFA(rank=2), NoisyProjection(rank=2)])
@pytest.mark.parametrize("value", [1e30, -1e-30, float("nan")])
@tells_nothing_beside("adapter")
def test_a_record_of_any_size_tells_nothing_of_itself(interference, method, value):
    """Under add or remove with a declared rate the number of records is no one's either."""

    def published(count):
        inputs, targets = supervised(count)
        targets = targets % 2
        if count == 13:
            inputs[12], targets[12] = (value, 2) if value == value else (0.0, 2)

        def loss(outputs, wanted):
            found = torch.nn.functional.cross_entropy(outputs, wanted, reduction="none")
            # the loss of the record that one of the two runs has alone
            return found * torch.where(wanted == 2, value if value != value else 1.0, 1.0)

        release = trained(
            network(), (inputs, targets), method, loss=loss, multiplier=2.0, delta=1e-3, steps=2,
            sampling_rate=1.0, batch=12, optimizer="sgd", rate=0.1,
        )  # fmt: skip
        return release.published()

    interference.calls(published, 12, 13).assert_equal()
