"""Attributes: labels by hand, learners against the Bayes rate, sets kept apart."""

import numpy as np
import pytest

from tacit.attacks import (
    CountTable,
    Discriminant,
    Labelled,
    Network,
    Topics,
    attributes,
    label_digits,
    label_names,
    label_tokens,
    read_labels,
)

CLASSES, SHARES = 4, np.array([0.4, 0.3, 0.2, 0.1])
CONFUSION = np.array(
    [[0.7, 0.1, 0.1, 0.1], [0.2, 0.6, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.3, 0.3, 0.2, 0.2]]
)
MEANS = np.random.default_rng(1).normal(size=(CLASSES, 6)) * 1.3


def prompts(count, start):
    return [f"prompt {start + number}" for number in range(count)]


def coded(count, seed, start=0):
    source = np.random.default_rng(seed)
    labels = source.choice(CLASSES, size=count, p=SHARES)
    codes = np.array([source.choice(4, p=CONFUSION[label]) for label in labels])
    return Labelled(prompts(count, start), codes, labels)


def stated(count, seed, start=0):
    source = np.random.default_rng(seed)
    labels = source.choice(CLASSES, size=count, p=SHARES)
    return Labelled(prompts(count, start), MEANS[labels] + source.normal(size=(count, 6)), labels)


def test_a_table_reaches_the_bayes_rate():
    best = (SHARES[:, None] * CONFUSION).max(axis=0).sum()
    found = attributes(coded(3000, 2, 10**6), coded(5000, 3), leakage_factor=2.1)
    assert abs(found.success - best) < 4 * np.sqrt(best * (1 - best) / 3000)
    assert abs(found.prior - SHARES.max()) < 4 * np.sqrt(0.24 / 3000)
    assert found.interval[0] < best < found.interval[1]
    # maximal leakage: the sum of largest columns bounds the factor
    assert found.factor <= CONFUSION.max(axis=0).sum() + 0.1
    assert (found.candidates, found.attacker) == (CLASSES, "table of counts")
    mixed = coded(5000, 3)
    shuffled = np.random.default_rng(4).permutation(mixed.labels)
    none = attributes(coded(3000, 2, 10**6), Labelled(mixed.prompts, mixed.released, shuffled))
    assert none.success < best - 4 * np.sqrt(best * (1 - best) / 3000)


@pytest.mark.parametrize("learner", [Discriminant(), Network(hidden=32, epochs=15)])
def test_learners_of_states_come_near_the_bayes_rate(learner):
    if isinstance(learner, Network):
        pytest.importorskip("torch")
    attacked, known = stated(3000, 5, 10**6), stated(4000, 6)
    scores = np.log(SHARES) - 0.5 * ((attacked.released[:, None] - MEANS) ** 2).sum(axis=2)
    best = float((scores.argmax(axis=1) == attacked.labels).mean())
    found = attributes(attacked, known, learner=learner, rng=0)
    assert best - 0.035 < found.success < best + 0.01
    assert found.attacker == learner.name
    again = attributes(attacked, known, learner=learner, rng=0)
    assert again.success == found.success


def test_words_are_labels_and_a_label_never_seen_is_a_failure():
    known = Labelled(["a", "b", "c", "d"], [0, 0, 1, 1], ["red", "red", "blue", "blue"])
    attacked = Labelled(["e", "f", "g"], [0, 1, 5], ["red", "blue", "green"])
    found = attributes(attacked, known, name="the colour")
    assert found.hits.tolist() == [1.0, 1.0, 0.0]
    assert found.covered == pytest.approx(2 / 3)
    assert found.blind.tolist() == [0.5, 0.5, 0.0]
    assert "the colour" in found.describe()


@pytest.mark.parametrize("as_tokens", [False, True])
def test_no_prompt_is_learnt_from_and_attacked(as_tokens):
    one, other = ([[1, 2], [3, 4]], [[5, 6], [3, 4]]) if as_tokens else (["a", "b"], ["c", "b"])
    with pytest.raises(ValueError, match=r"^calibration: .* got 1 of them"):
        attributes(Labelled(one, [0, 1], [0, 1]), Labelled(other, [0, 1], [0, 1]))


@pytest.mark.parametrize(
    ("attacked", "options", "part"),
    [
        (Labelled(["x"], [0, 1], [0]), {}, "attacked.released"),
        (Labelled(["x"], [0.5], [0]), {}, "attacked.released"),
        (Labelled(["x"], [[0.5]], [0]), {}, "calibration"),
        (Labelled(["x"], [0], [0, 1]), {}, "attacked.labels"),
        (Labelled(["x"], [0], [np.nan]), {}, "attacked.labels"),
        (Labelled("x", [0], [0]), {}, "attacked"),
        (Labelled([3.5], [0], [0]), {}, "attacked"),
        (Labelled(["x"], [0], [0]), {"learner": Discriminant()}, "learner"),
        (Labelled(["x"], [0], [0]), {"confidence": 0.0}, "confidence"),
    ],
)
def test_bad_arguments_are_named(attacked, options, part):
    known = Labelled(["a", "b"], [0, 1], [0, 1])
    with pytest.raises(ValueError, match=rf"^{part}"):
        attributes(attacked, known, **options)


def test_learners_refuse_numbers_that_make_no_sense():
    with pytest.raises(ValueError, match="smoothing"):
        CountTable(smoothing=0.0)
    with pytest.raises(ValueError, match="hidden"):
        Network(hidden=0)


def test_built_in_labels_by_hand():
    assert label_tokens([[1, 2], [3, 4]], position=0).tolist() == [1, 3]
    assert label_tokens([[1, 2, 3], [4]]).tolist() == [3, 4]
    assert label_tokens([[-1, 2, 3], [4, 5, 6]], position=0).tolist() == [2, 4]
    assert label_digits(["a1", "²", "٣ apples", ""]).tolist() == [1, 0, 1, 0]
    texts = {
        "we asked Ada about it": 1,
        "in 1815, Ada was born": 1,
        "élan of Émile here": 1,
        "Ada begins the sentence": 0,
        "It ends. Ada begins": 0,
        "a line\nAda begins": 0,
        "the NASA and the HTTPServer": 0,
        "what I said": 0,
        "say: Ada": 0,
        "": 0,
    }
    assert label_names(list(texts)).tolist() == list(texts.values())
    with pytest.raises(ValueError, match="prompts"):
        label_tokens([[1], [2, 3]], position=-2)
    for labels in (label_digits, label_names):
        with pytest.raises(ValueError, match="texts"):
            labels("one text")
        with pytest.raises(ValueError, match="texts"):
            labels([])


def test_topics_find_planted_clusters_and_repeat():
    source = np.random.default_rng(0)
    planted = source.integers(3, size=300)
    rows = np.stack([source.integers(20, size=12) + 20 * topic for topic in planted])
    topics = Topics.fit(rows[:200], 3, rng=1)
    labels = topics.label(rows[200:])
    for topic in range(3):
        own = labels[planted[200:] == topic]
        assert (own == np.bincount(own).argmax()).mean() > 0.95
    assert (Topics.fit(rows[:200], 3, rng=1).label(rows[200:]) == labels).all()
    assert topics.label([[999], [1, 2]]).shape == (2,)
    with pytest.raises(ValueError, match="more than 3"):
        Topics.fit(rows[:3], 3)


def test_columns_of_a_table(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text('\ufeffmood,"user, id"\ncalm,1\n"two\nlines",2\n', encoding="utf-8")
    found = read_labels(path)
    assert list(found) == ["mood", "user, id"]
    assert found["mood"].tolist() == ["calm", "two\nlines"]
    assert list(read_labels(path, ["mood"])) == ["mood"]
    with pytest.raises(ValueError, match=r"^columns"):
        read_labels(path, ["age"])
    with pytest.raises(ValueError, match=r"^path"):
        read_labels(tmp_path / "none.csv")
    path.write_text("mood\ncalm\nsecret,cell\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^path: .* row 3") as refused:
        read_labels(path)
    assert "secret" not in str(refused.value)
    path.write_text("mood,mood\ncalm,loud\n", encoding="utf-8")
    with pytest.raises(ValueError, match="different names"):
        read_labels(path, name="--attributes")
    path.write_bytes(b"mood\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"^path: cannot read"):
        read_labels(path)
    path.write_text("mood\n", encoding="utf-8")
    with pytest.raises(ValueError, match="at least one row"):
        read_labels(path)
    path.write_text('mood\ncalm\n"secret\ncalm\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"^path: .*line 4: no CSV") as refused:
        read_labels(path)
    assert "secret" not in str(refused.value)


FORMS = (lambda rows: rows, lambda rows: rows.astype(np.int32), np.ndarray.tolist, list)


@pytest.mark.parametrize("attacked", FORMS)
@pytest.mark.parametrize("learnt", FORMS)
def test_a_prompt_of_both_sets_is_found_however_prompts_are_given(attacked, learnt):
    tokens, codes = np.arange(60).reshape(12, 5), np.arange(12) % 3
    other = Labelled(learnt(tokens[3:]), codes[3:], codes[3:])
    with pytest.raises(ValueError, match=r"^calibration: expected .* got 1 of them"):
        attributes(Labelled(attacked(tokens[:4]), codes[:4], codes[:4]), other)
    apart = Labelled(attacked(tokens[:3]), codes[:3], codes[:3])
    assert attributes(apart, other).success == 1.0
