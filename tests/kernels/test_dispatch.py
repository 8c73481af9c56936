"""Which backend runs a scan: what is refused, why, and what `auto` takes instead."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scan_problems import SMALL, make_problem

from tapehead.kernels import dispatch, nvrtc
from tapehead.kernels.ntm_scan import cpu, direct, gpu, reference
from tapehead.kernels.ntm_scan.spec import SIZES, ScanSpec
from tapehead.losses import BINARY, CATEGORICAL, Binary
from tapehead.models.ntm import NTM

DEVICE = {"cpu": torch.device("cpu"), "gpu": torch.device("cuda")}
CHOICES = [field.name for field in dataclasses.fields(ScanSpec) if field.name not in SIZES]


@pytest.fixture(autouse=True)
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device of which only the limits are known: enough to choose, not to run."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(gpu, "_shared_limit", lambda device: 232448)
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    gpu.refusal.cache_clear()
    yield
    gpu.refusal.cache_clear()


def with_option(name: str, value: Any) -> ScanSpec:
    """A specification of a later version, which has a value that this one's does not."""
    spec = dataclasses.replace(SMALL)
    object.__setattr__(spec, name, value)
    return spec


def check_refused(backend: str, spec: ScanSpec, words: list[str]) -> None:
    chosen, reason = dispatch.choose("auto", spec, torch.float32, DEVICE[backend], 8)
    assert chosen == "reference"
    assert all(word in reason for word in words), reason
    with pytest.raises(ValueError, match=f"backend '{backend}' cannot run this machine") as refused:
        dispatch.choose(backend, spec, torch.float32, DEVICE[backend], 8)
    assert reason in str(refused.value)


def test_both_backends_know_the_machines_of_this_version() -> None:
    for backend, device in DEVICE.items():
        assert dispatch.choose("auto", SMALL, torch.float32, device, 8) == (backend, "")


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("backend", DEVICE)
def test_an_unknown_value_of_an_option_is_refused_by_name(backend: str, name: str) -> None:
    check_refused(backend, with_option(name, "invented"), [name, "'invented'", "only"])


@pytest.mark.parametrize("backend", DEVICE)
def test_an_unknown_option_is_refused_by_name(backend: str) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(ScanSpec):
        sparse_reads: bool = False

    check_refused(backend, Later(input_size=3, output_size=2), ["sparse_reads"])


def test_a_tape_too_long_for_the_gpu_runs_on_the_reference() -> None:
    spec = ScanSpec(input_size=9, output_size=8)
    assert dispatch.choose("auto", spec, torch.float32, DEVICE["gpu"], 128) == ("gpu", "")
    chosen, reason = dispatch.choose("auto", spec, torch.float32, DEVICE["gpu"], 10**6)
    assert chosen == "reference"
    assert "a tape of 1000000 x 20" in reason
    with pytest.raises(ValueError, match=r"backend 'gpu' cannot run this machine.*1000000 x 20"):
        dispatch.choose("gpu", spec, torch.float32, DEVICE["gpu"], 10**6)
    assert gpu.refusal.cache_info().currsize == 2  # asked before every update


def test_the_backend_is_chosen_by_the_tape_that_a_call_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the state's, which may be longer than the model's own."""
    ran = []

    def scan(backend: str, *given: Any) -> Any:
        ran.append(backend)
        return reference.scan(*given)[:2]

    def refusal(spec: ScanSpec, dtype: torch.dtype, device: torch.device, slots: int = 1) -> str | None:
        return f"{slots} slots are too many." if slots > 8 else None

    directly = direct.scan
    monkeypatch.setattr(cpu, "refusal", refusal)
    monkeypatch.setattr(dispatch, "scan", scan)
    monkeypatch.setattr(direct, "scan", lambda *given: (ran.append("cpu"), directly(*given))[1])
    ntm = NTM(2, 1, memory_slots=8, controller_size=3, memory_width=2)
    x = torch.zeros(2, 1, 2)
    longer = ntm.with_memory(9)
    ntm(x)
    ntm(x, longer.initial_state())
    longer(x)
    longer(x, ntm.initial_state())
    assert ran == ["cpu", "reference", "reference", "cpu"]
    assert longer.backend_and_reason() == ("reference", "9 slots are too many.")
    ntm.choose_backend("cpu")
    with pytest.raises(ValueError, match="9 slots are too many"):
        ntm(x, longer.initial_state())


def test_wrong_lengths_and_slots_are_refused_before_any_backend() -> None:
    """On a GPU the kernel does not look at them."""
    ntm = NTM(2, 1, memory_slots=8, controller_size=3, memory_width=2)
    for given, message in (
        ({"lengths": torch.tensor([3])}, "lengths run from 3 to 3, but must lie between 1 and the 2 steps"),
        ({"slots": torch.tensor([9])}, "slots run from 9 to 9, but must lie between 1 and the tape's 8"),
        ({"slots": torch.tensor([0])}, "slots run from 0 to 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ntm(torch.zeros(2, 1, 2), **given)


class Doubled(Binary):
    """Another loss, which has the name of its parent's kernel but not its costs."""

    def each(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 2 * super().each(logits, targets)


def test_losses_in_the_kernels() -> None:
    assert dispatch.is_fused("cpu", BINARY)
    assert dispatch.is_fused("gpu", CATEGORICAL)
    assert not dispatch.is_fused("reference", CATEGORICAL)
    assert not dispatch.is_fused("cpu", Doubled())
    problem = make_problem(SMALL)
    spec, parameters, inputs, *rest = problem.arguments(torch.float32, torch.device("cpu"))
    given = (spec, parameters, inputs, problem.targets.float(), problem.mask.float(), *rest)
    with pytest.raises(ValueError, match="the loss Doubled is not in the kernels"):
        dispatch.loss_and_gradient("cpu", *given, False, Doubled())


def test_a_model_trains_on_symbols_alike_with_and_without_kernels() -> None:
    """`NTM.loss_and_gradient`, fused and by autograd, with a learned start."""
    options = {"controller_size": 5, "memory_slots": 6, "memory_width": 3, "initial_memory": "learned"}
    ntm = NTM(3, 4, dtype=torch.float64, **options)
    flat = ntm.initial_population([1, 2])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, 3, generator=generator, dtype=torch.float64)
    symbols = torch.randint(0, 4, (2, 5, 3), generator=generator)
    targets = torch.nn.functional.one_hot(symbols, 4).double()
    mask = torch.randint(0, 2, (2, 5, 3), generator=generator)
    lengths = torch.tensor([[5, 5, 3], [4, 5, 5]])
    found = {}
    for backend in ("cpu", "reference"):
        ntm.choose_backend(backend)
        found[backend] = ntm.loss_and_gradient(flat, x, targets, mask, lengths, loss=CATEGORICAL)
    torch.testing.assert_close(found["cpu"][0], found["reference"][0], rtol=1e-13, atol=0)
    torch.testing.assert_close(found["cpu"][1], found["reference"][1], rtol=1e-9, atol=1e-14)
    uniform = ntm.loss_and_gradient(torch.zeros_like(flat), x, targets, mask, lengths, loss=CATEGORICAL)[0]
    torch.testing.assert_close(uniform, mask.sum(1).double() * math.log(4), rtol=1e-14, atol=0)
