"""The optimizer of the small model, beside torch's own and the singular values it promises."""

import pytest

torch = pytest.importorskip("torch")

from tacit.models.small.muon import Muon, orthogonalise  # noqa: E402


@pytest.mark.parametrize("shape", [(2, 24, 60), (3, 60, 24), (1, 16, 16)])
def test_singular_values_come_near_one(shape):
    source = torch.Generator().manual_seed(0)
    stack = torch.randn(shape, generator=source) * 1e3
    found = orthogonalise(stack, torch.float32)
    left, values, right = torch.linalg.svd(stack, full_matrices=False)
    moved = left.mT @ found @ right.mT
    apart = torch.diagonal(moved, dim1=1, dim2=2)
    assert (moved - torch.diag_embed(apart)).abs().max() < 1e-4
    clear = values / values.norm(dim=1, keepdim=True) > 0.02
    assert apart[clear].min() > 0.5
    assert apart[clear].max() < 1.3
    assert found.dtype == torch.float32


def test_steps_are_those_of_torch_up_to_its_half_precision():
    source = torch.Generator().manual_seed(1)
    start = [torch.randn(12, 20, generator=source), torch.randn(30, 8, generator=source)]
    gradients = [[torch.randn(w.shape, generator=source) for w in start] for _ in range(4)]
    options = {"momentum": 0.95, "weight_decay": 0.05}
    moved = []
    for make in (
        lambda p: Muon([{"params": p, "lr": 0.02}], precision=torch.bfloat16, **options),
        lambda p: Muon([{"params": p, "lr": 0.02}], precision=torch.float32, **options),
        lambda p: torch.optim.Muon([{"params": p, "lr": 0.02}], **options),
    ):
        weights = [torch.nn.Parameter(w.clone()) for w in start]
        optimizer = make(weights)
        for step in gradients:
            for weight, gradient in zip(weights, step, strict=True):
                weight.grad = gradient.clone()
            optimizer.step()
        moved.append(torch.cat([w.detach().flatten() for w in weights]))
    length = (moved[2] - torch.cat([w.flatten() for w in start])).norm()
    assert (moved[0] - moved[2]).norm() < 0.02 * length
    assert (moved[1] - moved[2]).norm() < 0.03 * length
    assert (moved[1] - moved[2]).norm() > 0


def test_a_matrix_without_a_gradient_stays():
    still = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = Muon([{"params": [still]}], momentum=0.9, weight_decay=0.5, precision=torch.float32)
    optimizer.step()
    assert torch.equal(still.detach(), torch.ones(3, 4))
