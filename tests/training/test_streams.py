"""Loops over streams: the release of records that have places, and what no account covers."""

import pytest
import torch

from tacit.training import FixedOrder, People
from tests.training.loops import (
    AS_THEY_COME,
    Stream,
    begun,
    finish,
    network,
    records,
    trained,
)

OPTIONS = {"batch": 5, "epochs": 2, **AS_THEY_COME}


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_stream_trains_what_its_records_with_places_do(micro_batch):
    """The last batch of a pass has 4 of 24 records; what comes behind them is not read."""
    of_places, expected = trained(**OPTIONS, micro_batch=micro_batch)
    streamed, found = trained(
        data=Stream(26), records=24, **OPTIONS, micro_batch=micro_batch
    )  # fmt: skip
    assert streamed.guarantees[1].epsilon == of_places.guarantees[1].epsilon
    [said] = {*streamed.guarantees[0].assumptions} - {*of_places.guarantees[0].assumptions}
    assert said.startswith("the stream gives each record once a pass at most, in the same order")
    for name, one in expected.items():
        assert torch.equal(found[name], one)


def test_a_stream_goes_on_amid_a_pass(tmp_path):
    whole = trained(data=Stream(), records=24, **OPTIONS)[1]
    options = {**OPTIONS, "records": 24, "checkpoint": tmp_path / "run", "every": 1}
    model = network()
    private, optimizer = begun(model, Stream(), **options)
    rows, targets = next(iter(private.loader))
    private.backward(torch.nn.functional.cross_entropy(model(rows), targets, reduction="none"))
    optimizer.step()
    private.close()
    model = network()
    private, optimizer = begun(model, Stream(), **options)
    assert private.taken == 1
    finish(private, model, optimizer)
    for name, one in model.state_dict().items():
        assert torch.equal(whole[name], one)


def test_a_stream_that_ends_before_its_number_is_refused():
    model = network()
    private, optimizer = begun(model, Stream(12), records=24, **OPTIONS)
    with pytest.raises(ValueError, match="24 records that were declared, got one that ends after"):
        finish(private, model, optimizer)
    private.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"records": None}, "how many the stream Stream has"),
        ({"sampling": FixedOrder()}, r"FixedOrder\(shuffled=False\) and no person of a stream"),
        ({"person": People(of=["a"] * 24)}, "no person of a stream"),
    ],
)
def test_what_no_account_covers_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        begun(network(), Stream(), **{"records": 24, **OPTIONS, **options})


def test_a_number_of_records_that_are_counted_is_refused():
    with pytest.raises(ValueError, match="knows how many it has"):
        begun(network(), records(), records=24, **OPTIONS)
