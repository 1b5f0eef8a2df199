"""An update that was computed elsewhere: the noise is added, the optimiser does the rest."""

import numpy as np
import pytest
import torch

from tacit.training import References, ReferenceSpentError
from tests.training.runs import flat, made, run_of, squares, task

NAMES = References.leave_out(["Ada", "Bob", "Cem"])
# so large that the noise is lost in rounding
LOUD = 1e9


def vectors(size, seed=0):
    source = np.random.default_rng(seed)
    return source.normal(size=size), source.normal(size=(3, size))


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def test_the_optimiser_sees_the_gradient_and_keeps_its_momentum():
    model, _, _ = task()
    other, _, _ = task()
    gradient, differences = vectors(flat(model).size)
    run = made(model, momentum(model), NAMES, loss=squares, mu=LOUD, rounds=3)
    plain = momentum(other)
    for _ in range(3):
        run.update(gradient, differences)
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(gradient), [p.grad for p in _with_gradients(other)]
        )
        plain.step()
    np.testing.assert_allclose(flat(model), flat(other), atol=1e-6)


def _with_gradients(model):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
        yield parameter


def test_without_an_optimiser_the_value_is_the_parameters():
    model, _, _ = task()
    value, differences = vectors(flat(model).size)
    run = made(model, None, NAMES, loss=squares, mu=LOUD, rounds=1)
    done = run.update(value, differences)
    np.testing.assert_allclose(flat(model), value, atol=1e-6)
    assert (done.number, done.taking_part, done.loss) == (1, 3, None)


def test_it_adds_the_noise_of_the_same_outcomes_replaced():
    value, differences = vectors(19)
    found = []
    for update in (True, False):
        model, _, _ = task()
        run = made(model, None, NAMES, loss=squares, mu=1.0, rounds=1, rng=5)
        if update:
            run.update(value, differences)
        else:
            run.replace(lambda i: value if i is None else value + differences[i])
        found.append(flat(model))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_every_reference_pays_for_every_update():
    model, _, _ = task()
    gradient, differences = vectors(flat(model).size)
    run = run_of(model, 3, rounds=2, mu=1.0)
    before = run.left()
    run.update(gradient, differences)
    np.testing.assert_allclose(run.left(), before / 2, rtol=1e-9)
    run.update(gradient, differences)
    kept = flat(model)
    with pytest.raises(ReferenceSpentError):
        run.update(gradient, differences)
    np.testing.assert_array_equal(flat(model), kept)


def test_a_run_is_taken_up_where_it_stopped(tmp_path):
    gradient, differences = vectors(19)

    def taken_up():
        model, _, _ = task()
        return model, made(
            model, momentum(model), NAMES, loss=squares, mu=1.0, rounds=4, rng=1,
            checkpoint=tmp_path / "run",
        )  # fmt: skip

    model, run = taken_up()
    for _ in range(2):
        run.update(gradient, differences)
    model, again = taken_up()
    assert again.rounds == 2
    for _ in range(2):
        again.update(gradient, differences)
    whole, _, _ = task()
    alone = made(whole, momentum(whole), NAMES, loss=squares, mu=1.0, rounds=4, rng=1)
    for _ in range(4):
        alone.update(gradient, differences)
    np.testing.assert_allclose(flat(model), flat(whole), rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "differences", "said"),
    [
        (np.full(19, np.nan), np.ones((3, 19)), "value: expected finite"),
        (np.ones(18), np.ones((3, 19)), "value: expected 19 parameters"),
        (np.ones(19), np.ones((2, 19)), "differences: expected shape"),
        (np.ones(19), np.full((3, 19), np.inf), "differences"),
        (np.zeros(19), np.zeros((3, 19)), "value: expected a gradient that is not zero"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_spent(value, differences, said):
    model, _, _ = task()
    kept, run = flat(model), run_of(model, 3, rounds=2, mu=1.0)
    before = run.left()
    with pytest.raises(ValueError, match=said):
        run.update(value, differences)
    np.testing.assert_array_equal(run.left(), before)
    np.testing.assert_array_equal(flat(model), kept)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.inputs, self.targets = task()
        self.scale = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, inputs):
        return self.inner(inputs) * self.scale


@pytest.mark.parametrize("noise", ["optimal", "isotropic"])
@pytest.mark.parametrize("stepped", [True, False])
def test_a_parameter_that_is_one_number_gets_its_noise(noise, stepped):
    model = Scaled()
    before = float(model.scale.detach())
    if stepped:
        run = run_of(model, noise=noise)
        run.step((model.inputs, model.targets), np.arange(10) % 5)
    else:
        run = made(model, None, NAMES, loss=squares, rounds=1, mu=1.0, noise=noise)
        value, differences = vectors(flat(model).size)
        run.update(value, differences)
    assert run.rounds == run.charges == 1
    assert model.scale.shape == ()
    assert float(model.scale.detach()) != before
