"""Principal directions of public inputs, against numpy's, and as the A of a run."""

import numpy as np
import pytest
import torch

from tacit.adapters import principal_projections
from tests.adapters.models import FAST, LOW_RANK, gpt2, network, supervised, tokens, trained


def test_they_are_the_leading_right_singular_vectors_of_the_inputs():
    model, (inputs, targets) = network(), supervised(40)
    found = principal_projections(model, (inputs, targets), rank=2)
    expected = np.linalg.svd(inputs.numpy(), full_matrices=False)[2][:2]
    overlap = np.abs(found["0"].numpy() @ expected.T)
    np.testing.assert_allclose(overlap, np.eye(2), atol=1e-5)
    np.testing.assert_allclose(found["2"] @ found["2"].mT, np.eye(2), atol=1e-6)


def test_a_run_takes_them():
    model = gpt2()
    made = principal_projections(model, tokens(), rank=2, targets="c_attn")
    release = trained(model, tokens(), LOW_RANK, targets="c_attn", projections=made, **FAST)
    assert release.details.layers == tuple(made)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_rank_above_the_width_is_refused():
    with pytest.raises(ValueError, match="rank: expected at most the 6 inputs"):
        principal_projections(network(), supervised(), rank=7)
    assert torch.is_grad_enabled()
