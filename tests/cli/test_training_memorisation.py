"""``tacit training memorisation``: from texts to a model whose canaries hardly come out."""

import json

import pytest
import torch
import transformers

from tacit.ledger import Ledger
from tests.cli_runner import refused

WORDS = (
    [str(digit) for digit in range(10)] + ["the", "is", "'", "s", "secret", "code"]
) + [f"w{i}" for i in range(20)]  # fmt: skip
QUICK = (
    *("--canaries", 4, "--copies", 2, "--length", 20, "--sequences", 8),
    *("--batch", 8, "--samples", 4),
)  # fmt: skip


def write_language(folder, words):
    """Write a model of one layer of width 16 whose tokens are words."""
    import tokenizers

    level = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[-1])
    tokenizer = tokenizers.Tokenizer(level)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 24}
    transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=len(words), **sizes)
    ).save_pretrained(folder)


@pytest.fixture
def language(tmp_path):
    write_language(tmp_path / "model", WORDS)
    draws = torch.randint(16, len(WORDS), (40, 10), generator=torch.Generator().manual_seed(0))
    lines = [" ".join(WORDS[i] for i in row) for row in draws.tolist()]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def asked(folder, *more):
    return (
        *("training", "memorisation", folder / "texts.txt", "--model", folder / "model"),
        *QUICK,
        *more,
    )


def test_a_model_is_trained_saved_shown_and_gated(language, tacit):
    out, page, book = language / "r.json", language / "r.html", language / "book.db"
    saved = language / "tuned"
    done = tacit(
        *asked(
            language, "--json", out, "--report", page, "--out", saved, "--learning-rate", "0.001"
        ),
        *("--ledger", book, "--secret", "texts"),
    )
    assert done.code == 0, done.err
    content = json.loads(out.read_text(encoding="utf-8"))["details"]
    assert len(content["references"]) == 4 + 8
    assert content["rounds"] == 2
    spent = max(Ledger(book).spent("texts").gaussian.values())
    assert spent >= max(content["squared"]) ** 0.5
    tuned = transformers.AutoModelForCausalLM.from_pretrained(saved).state_dict()
    first = transformers.AutoModelForCausalLM.from_pretrained(language / "model").state_dict()
    assert any(not torch.equal(first[name], one) for name, one in tuned.items())
    assert "no guarantee of privacy" in page.read_text(encoding="utf-8")
    shown = tacit("show", out).out
    assert "perplexity of unseen sequences" in shown
    assert tacit("gate", out, "--max-success", "0.99").code == 0
    assert tacit("gate", out, "--max-success", "0.5").code == 1


def test_a_dry_run_tells_the_guarantee_and_writes_nothing(language, tacit):
    before = sorted(path.name for path in language.iterdir())
    done = tacit(*asked(language, "--dry-run", "--checkpoint", language / "run"))
    assert done.code == 0, done.err
    assert "with the noise of this run either way" in done.out
    assert sorted(path.name for path in language.iterdir()) == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--canaries", "1"), "canaries: expected"),
        (("--copies", "0"), "copies: expected"),
        (("--copies", "9"), "batch: expected room"),
        (("--batch", "9"), "learned: expected at least the 9 sequences of a batch"),
        (("--length", "30"), "--length: expected at most the 24"),
        (("--length", "8"), "length: expected at least"),
        (("--optimizer", "muon"), "--optimizer: expected"),
        (("--protect", "some"), "protect: expected"),
        (("--learning-rate", "0"), "--learning-rate: expected"),
        (("--epsilon", "nan"), "epsilon"),
        (("--out", "model"), "--out: expected a folder that does not exist"),
        (("--model", "nowhere/at/all"), "nowhere/at/all"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(language, monkeypatch, tacit, more, said):
    monkeypatch.chdir(language)
    before = sorted(path.name for path in language.iterdir())
    refused(tacit(*asked(language, *more)), said)
    assert sorted(path.name for path in language.iterdir()) == before


def test_a_missing_file_and_a_tokenizer_without_digits_are_refused(language, tacit, capsys):
    gone = ("training", "memorisation", language / "gone.txt", *QUICK)
    refused(tacit(*gone), "no such file or folder")
    write_language(language / "wordy", WORDS[10:])
    capsys.readouterr()
    refused(tacit(*asked(language, "--model", language / "wordy")), "a token for each digit")
