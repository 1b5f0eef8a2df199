"""Gradients of adapters against Opacus'."""

import pytest
import torch

from tacit.gradients import LinearHooks
from tests.gradients.models import FAMILIES, adapted, batch, losses

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_opacus(family):
    opacus = pytest.importorskip("opacus")
    data = batch(family, padded=True)
    model, layers = adapted(family)
    with LinearHooks(layers, model=model) as hooks:
        hooks.backward(losses(model, data))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_B" in name)
    wrapped = opacus.GradSampleModule(model.train(), loss_reduction="sum", strict=False)
    losses(wrapped, data).sum().backward()
    for name, found in hooks.gradients().items():
        assert torch.allclose(found, layers[name].weight.grad_sample, rtol=1e-4, atol=1e-7)
