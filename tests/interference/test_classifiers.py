"""Logits tell nothing beside the noise: which inputs were queried is in no other byte."""

import numpy as np
import pytest

from tacit.classifiers import privatize_logits
from tacit.releases import Draw, Effort

from .registry import tells_nothing_beside

PAGES = ("page.html", "all.json")
COUNT = 40


def pool():
    source = np.random.default_rng(0)
    labels = np.arange(COUNT) % 3
    # one input is far out, one is a copy of another, one has the label that is rare
    logits = 4 * np.eye(3)[labels] + source.normal(size=(COUNT, 3))
    logits[7] *= 30.0
    logits[9] = logits[8]
    labels[11] = (labels[11] + 1) % 3
    return logits, labels


def table():
    logits, labels = pool()
    rows = [
        ",".join(map(repr, [*row, int(label)]))
        for row, label in zip(logits.tolist(), labels, strict=True)
    ]
    return "a,b,c,label\n" + "\n".join(rows) + "\n"


OTHERS = {"far": "7", "alike": "8", "rare": "11", "last": "39"}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("flags", [["--no-attack"], ["--label", "label"]])
@tells_nothing_beside("classifier")
def test_which_input_was_queried(interference, other, flags):
    command = [
        "classifier", "in.csv", "--mi-budget", "0.5", *flags,
        "--certificate", "public.html", "--report", PAGES[0], "--json", PAGES[1],
    ]  # fmt: skip

    def of(inputs):
        return {"in.csv": table()}, [*command, "--rows", inputs]

    first, one = of("3")
    second, two = of(OTHERS[other])
    pair = interference.pair_of(one, first, two, second)
    pair.assert_equal(holder=PAGES, holder_terminal=True)
    assert pair.first.code == 0, pair.first.err


@pytest.mark.parametrize("inputs", [[3, 5], [5, 3], [7, 8]])
@tells_nothing_beside("classifier")
def test_which_list_was_queried(interference, inputs):
    logits, labels = pool()

    def published(chosen):
        release = privatize_logits(
            logits, range(COUNT), Draw(nats=0.5), Effort(trials=0), inputs=chosen, labels=labels
        )
        return release.published()

    interference.calls(published, [20, 21], inputs).assert_equal()


@tells_nothing_beside("classifier")
def test_a_dry_run(interference):
    command = ["classifier", "in.csv", "--mi-budget", "0.5", "--label", "label", "--dry-run"]
    same = {"in.csv": table()}
    pair = interference.pair_of(
        [*command, "--rows", "3,4"], same, [*command, "--rows", "7,8"], same
    )
    pair.assert_equal(released=False)
    assert pair.first.code == 0, pair.first.err
