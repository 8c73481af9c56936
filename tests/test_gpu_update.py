"""The GPU's optimiser step against the reference's: on the CPU, thread by thread, and on a GPU where there is one."""

import pytest
import torch

from tapehead.kernels.update import gpu, reference
from tapehead.kernels.update.contract import Clip, Optimiser, UpdateRule, UpdateState


def test_source_has_the_constants() -> None:
    assert "constexpr float GRAVES_DECAY = 0.95f;" in gpu.source()


@pytest.mark.parametrize(("size", "average"), [(33_000, 0.9), (33_001, 0.0)])  # several rounds of a block's threads
@pytest.mark.parametrize("optimiser", ["graves", "adam"])
@pytest.mark.parametrize("clip", ["none", "elementwise", "norm"])
def test_agrees_with_the_reference_and_skips_what_is_not_finite(
    optimiser: Optimiser, clip: Clip, size: int, average: float, device: torch.device
) -> None:
    rule = UpdateRule(optimiser, clip, clip_at=0.5, average=average)
    start = torch.randn(3, size, device=device)
    ours, exact = UpdateState(rule, start.clone()), UpdateState(rule, start.double())
    for step in range(4):
        gradient, costs = torch.randn(3, size, device=device), torch.rand(3, 2, device=device)
        if step == 2:
            gradient[1, 700] = torch.inf
            costs[2, 1] = torch.nan
        rate = torch.tensor([1e-2], device=device) if step == 3 else 1e-2
        skipped = gpu.update(rule, ours, gradient, costs, rate)
        wanted = reference.update(rule, exact, gradient.double(), costs.double(), 1e-2)
        assert torch.equal(skipped, wanted)
        assert skipped.tolist() == ([False, True, True] if step == 2 else [False] * 3)
    for name, tensor in ours.tensors(rule).items():
        torch.testing.assert_close(
            tensor.double(), exact.tensors(rule)[name].double(), rtol=3e-6, atol=1e-6
        )  # seen: 4e-7 beyond 1e-6 of it
