"""What puts records together: each row of a batch follows from its own record alone."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from tacit.gradients import DPSGD
from tacit.training import LoopSettings, People, make_private
from tacit.training.collation import CheckedCollation
from tests.training.loops import NOISE, network, records


def rows(count=24):
    return [(one, int(target)) for one, target in records(count)]


def apart(held):
    return torch.stack([one for one, _ in held]), torch.tensor([target for _, target in held])


def trained(collate, *, workers=0, **settings):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(rows(), batch_size=8, collate_fn=collate, num_workers=workers)
    private = make_private(
        model,
        optimizer,
        loader,
        DPSGD(),
        NOISE,
        epochs=1,
        settings=LoopSettings(seed=3, **settings),
    )
    for inputs, targets in private.loader:
        found = functional.cross_entropy(model(inputs), targets, reduction="none")
        private.backward(found)
        optimizer.step()
    private.release()
    return model.state_dict()


def centred(held):
    inputs, targets = apart(held)
    return inputs - inputs.mean(dim=0), targets


def shared(held):
    inputs, targets = apart(held)
    return inputs / len(held), targets


def smoothed(held):
    inputs, targets = apart(held)
    return (inputs + inputs.roll(1, 0)) / 2, targets


def by_size(held):
    return apart(sorted(held, key=lambda one: float(one[0][0])))


def masked(held):
    inputs, targets = apart(held)
    return inputs * (torch.rand(inputs.shape) < 0.9), targets


OWN = np.random.default_rng(0)


def jittered(held):
    inputs, targets = apart(held)
    return inputs + torch.from_numpy(OWN.normal(size=inputs.shape)).float(), targets


def taken_apart(held):
    """The records are lists that are emptied, as collators of texts take their labels."""
    return apart([(one[0], one.pop()) for one in held])


class Lists(list):
    def __len__(self):
        return 24

    def __getitem__(self, place):
        return list(rows()[place])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate", [centred, shared, smoothed])
def test_a_row_that_follows_from_other_records_is_refused(collate, workers):
    with pytest.raises(ValueError, match="rows of a batch that follow each from its own record"):
        trained(collate, workers=workers)


def test_rows_in_another_order_are_refused_of_persons_alone():
    trained(by_size)
    people = People(of=[place // 2 for place in range(24)])
    with pytest.raises(ValueError, match="in the order of its records"):
        trained(by_size, person=people)
    trained(apart, person=people)


def held_of(collate, texts, *, in_order):
    """Batches of texts that a check has passed."""
    checked = CheckedCollation(collate, in_order=in_order)
    return [checked(texts) for _ in range(4)]


def padded(texts, *, left=False):
    longest = max(map(len, texts))
    rows = torch.zeros(len(texts), longest, dtype=torch.int64)
    for row, one in zip(rows, texts, strict=True):
        row[longest - len(one) if left else 0 :][: len(one)] = one
    return {"input_ids": rows, "attention_mask": (rows > 0).long()}


def test_texts_that_are_sorted_by_length_are_refused_of_persons_alone():
    """As packed sequences have them: padded rows are longer than a record alone."""
    texts = [torch.arange(1, length) + 100 * length for length in (7, 3, 5, 4, 6)]

    def by_length(held):
        return padded(sorted(held, key=len, reverse=True))

    held_of(by_length, texts, in_order=False)
    with pytest.raises(ValueError, match="in the order of its records"):
        held_of(by_length, texts, in_order=True)
    for left in (False, True):
        made = held_of(lambda held, left=left: padded(held, left=left), texts, in_order=True)
        assert all(torch.equal(one["input_ids"], made[0]["input_ids"]) for one in made)


def test_what_follows_from_its_record_or_draws_is_taken_and_changes_nothing():
    plain = trained(None)
    held = trained(apart)
    assert all(torch.equal(one, held[name]) for name, one in plain.items())
    trained(masked)
    trained(jittered)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Lists(), batch_size=8, collate_fn=taken_apart)
    private = make_private(
        model, optimizer, loader, DPSGD(), NOISE, epochs=1, settings=LoopSettings(seed=3)
    )
    for inputs, targets in private.loader:
        private.backward(functional.cross_entropy(model(inputs), targets, reduction="none"))
        optimizer.step()
    private.close()
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in plain.items())
