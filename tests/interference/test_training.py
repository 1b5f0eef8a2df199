"""Models trained beside safe references: what is saved, and what stays with the holder."""

import io

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tacit.gradients import AdaptiveDPSGD
from tacit.training import People
from tests.cli.test_training_memorisation import QUICK, WORDS, write_language
from tests.lab.poisoning.problems import images
from tests.training.loops import AS_THEY_COME, Stream, records, trained

from .registry import tells_nothing_beside

HELD = ["--json", "r.json", "--report", "r.html", "--ledger", "l.sqlite", "--secret", "s"]
HOLDERS = {"r.json", "r.html", "l.sqlite"}
DECLARED = [
    "--category", "mill=a,b,c,d", "--category", "kind=long,round",
    "--bounds", "length=-3:3,width=-3:3",
]  # fmt: skip
CONTRIBUTION = [
    "training", "contribution", "t.csv", "--source", "mill", "--label", "kind", *DECLARED,
    "--no-influence", "--trials", "4",
]  # fmt: skip


def mills(row=None):
    """Forty rows of four mills, one of them replaced; the eighth is learned from."""
    rng = np.random.default_rng(0)
    rows = []
    for i, (length, width) in enumerate(rng.normal(size=(40, 2))):
        rows.append(f"{'abcd'[i % 4]},{'long' if length > 0 else 'round'},{length:.4f},{width:.4f}")
    if row is not None:
        rows[7] = row
    return "mill,kind,length,width\n" + "\n".join(rows) + "\n"


REPLACED = {
    "extreme": "d,round,1e300,-1e300",
    "another source": "a,long,0.5,0.25",
    "copy": mills().splitlines()[3],
    "tiny": "d,long,5e-324,0",
}


@pytest.mark.parametrize("name", REPLACED)
@tells_nothing_beside("training contribution", "training")
def test_a_model_tells_nothing_beside_its_parameters(interference, name):
    flags = [*CONTRIBUTION, "--out", "model.safetensors", *HELD]
    pair = interference.commands(flags, {"t.csv": mills()}, {"t.csv": mills(REPLACED[name])})
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


@tells_nothing_beside("training contribution")
def test_a_source_that_is_gone_is_told_like_the_others(interference):
    """The only row of a source among those declared."""
    first = mills("e,long,0.1,0.2")
    flags = [*CONTRIBUTION, "--out", "model.safetensors", *HELD]
    flags[flags.index("mill=a,b,c,d")] = "mill=a,b,c,d,e"
    pair = interference.commands(flags, {"t.csv": first}, {"t.csv": mills()})
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


@tells_nothing_beside("training contribution")
def test_a_dry_run_of_a_training_tells_nothing(interference):
    flags = [*CONTRIBUTION, "--dry-run"]
    for row in REPLACED.values():
        pair = interference.commands(flags, {"t.csv": mills()}, {"t.csv": mills(row)})
        pair.assert_equal(released=False)


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("language")
    write_language(folder / "model", WORDS)
    return folder


def notes(line=None):
    """Forty lines of ten words, one of them replaced by another of ten words."""
    rng = np.random.default_rng(0)
    lines = [" ".join(WORDS[i] for i in row) for row in rng.integers(16, len(WORDS), (40, 10))]
    if line is not None:
        lines[7] = line
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("line", ["w0 " * 10, "w1 ünknown 🙂 w2 w2 w2 w2 w2 w2 w2"])
@tells_nothing_beside("training memorisation", "training")
def test_a_language_model_tells_nothing_beside_its_parameters(interference, language, line):
    flags = ["training", "memorisation", "t.txt", "--model", language / "model", *QUICK,
             "--out", "tuned", *HELD]  # fmt: skip
    pair = interference.commands(flags, {"t.txt": notes()}, {"t.txt": notes(line.strip())})
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


def shapes(image=None, label=None):
    data = images(60)
    pictures, labels = np.array(data.images), np.array(data.labels)
    if image is not None:
        pictures[5], labels[5] = image, label
    stream = io.BytesIO()
    np.savez(stream, images=pictures, labels=labels, is_test=np.arange(60) >= 48)
    return stream.getvalue()


@pytest.mark.parametrize(("image", "label"), [(0, 0), (1.0, 1)])
@tells_nothing_beside("training poisoning", "training")
def test_a_poisoned_model_tells_nothing_beside_its_parameters(interference, image, label):
    flags = ["training", "poisoning", "shapes.npz", "--sources", "4", "--trigger", "blended",
             "--target-class", "1", "--batch", "24", "--repeats", "1", "--learning-rate", "0.05",
             "--out", "m.safetensors", *HELD]  # fmt: skip
    first, second = {"shapes.npz": shapes()}, {"shapes.npz": shapes(image, label)}
    pair = interference.commands(flags, first, second)
    pair.assert_equal(holder=HOLDERS, holder_terminal=True)


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("value", [1e30, float("nan")])
@tells_nothing_beside("private-training")
def test_a_loop_tells_nothing_of_a_record_of_any_size(interference, tmp_path, value, persons):
    """Under add or remove with a declared rate the number of records is no one's either."""

    def published(count):
        inputs, targets = records(12).tensors
        if count == 13:
            more = torch.full((1, 6), value)
            inputs, targets = torch.cat([inputs, more]), torch.cat([targets, targets[:1]])
        data = torch.utils.data.TensorDataset(inputs, targets)
        place = tmp_path / str(count)
        release, _ = trained(
            data=data, batch=12, sampling_rate=1.0, micro_batch=5, checkpoint=place, every=1,
            method=AdaptiveDPSGD(clip=0.5),
            person=People(of=[f"p{place % 5}" for place in range(12)] + ["new"] * (count - 12))
            if persons else None,
        )  # fmt: skip
        # what a folder shows from outside, too
        sizes = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
        return release.published(), sizes

    interference.calls(published, 12, 13).assert_equal()


@pytest.mark.parametrize("value", [1e30, float("nan")])
@tells_nothing_beside("private-training")
def test_a_stream_tells_nothing_of_a_record_that_takes_anothers_place(
    interference, tmp_path, value
):
    def published(size):
        inputs, targets = (one.clone() for one in records(12).tensors)
        if size is not None:
            inputs[7], targets[7] = size, 0
        data = Stream(12, torch.utils.data.TensorDataset(inputs, targets))
        place = tmp_path / str(size)
        release, _ = trained(
            data=data, records=12, batch=5, micro_batch=2, checkpoint=place, every=1,
            **AS_THEY_COME,
        )  # fmt: skip
        sizes = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
        return release.published(), sizes

    interference.calls(published, None, value).assert_equal()
