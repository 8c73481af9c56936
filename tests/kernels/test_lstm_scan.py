"""The fused backends of the LSTM against `PaperLSTM` in float64 with autograd: outputs, states, costs, all gradients.

The GPU's kernels run on the CPU, thread by thread, wherever there is a C++ compiler; on a GPU where there is one.
"""

from collections.abc import Callable
from typing import Any

import cuda_on_cpu
import pytest
import torch
from torch import Tensor

from tapehead.kernels import dispatch
from tapehead.kernels.lstm_scan import cpu, gpu
from tapehead.kernels.lstm_scan.contract import LSTMSpec
from tapehead.losses import BINARY, CATEGORICAL, Loss
from tapehead.models.lstm import PaperLSTM
from tapehead.models.sequence import SequenceModel

# Relative norm of each part in float32. Seen: 1.1e-6 at worst, of gradients through ten steps.
TOLERANCE = 4e-6
# The same in float64, on the CPU. Seen: 1e-15.
EXACT = 1e-14

# inputs, outputs, units, layers; steps, sequences of a seed
CASES = {
    "tiny": (LSTMSpec(3, 2, 5, 2), 6, 3),
    "more inputs than a tile, more outputs than a group": (LSTMSpec(40, 17, 20, 1), 5, 6),
    "two tiles of sequences": (LSTMSpec(2, 9, 33, 2), 4, 18),
    "three layers, a cluster of four": (LSTMSpec(9, 8, 60, 3), 7, 5),
    "a cluster of eight": (LSTMSpec(4, 3, 128, 2), 3, 17),
    "one sequence": (LSTMSpec(4, 3, 32, 2), 9, 1),
}
EMULATED = {
    "steps": ("tiny", "more inputs than a tile, more outputs than a group", "two tiles of sequences"),
    "clusters": ("tiny", "three layers, a cluster of four", "a cluster of eight", "one sequence"),
}
SEEDS = 2
Backend = Any


@pytest.fixture(params=["steps", "clusters"])
def on_gpu(request: pytest.FixtureRequest, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device of the GPU's kernels, with a launch for every step or one for a layer."""

    def cluster(spec: LSTMSpec, device: torch.device) -> int:
        return gpu.CLUSTERS.get(gpu._padded(spec.hidden_size), 0) if request.param == "clusters" else 0

    monkeypatch.setattr(gpu, "_cluster", cluster)
    return device


def single(part: Tensor) -> Tensor:
    return part.float() if part.is_floating_point() else part


def draw(spec: LSTMSpec, steps: int, batch: int, loss: Loss) -> list[Tensor]:
    """Parameters, inputs, targets and mask in float64, but of numbers that float32 has; lengths."""
    draws = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draws).double()

    flat = 0.3 * normal(SEEDS, sum(torch.Size(shape).numel() for shape in spec.shapes().values()))
    lengths = torch.randint(1, steps + 1, (SEEDS, batch), generator=draws)
    lengths[0, -1] = steps
    inside = torch.arange(steps).unsqueeze(-1) < lengths.unsqueeze(1)
    targets = normal(SEEDS, steps, batch, spec.output_size)
    targets = (targets > 0).double() if loss is BINARY else targets.square()  # weights, which need not sum to one
    mask = (inside & (normal(SEEDS, steps, batch) > -0.5)).double()
    flat, targets = flat.float().double(), targets.float().double()
    return [flat, normal(SEEDS, steps, batch, spec.input_size), targets, mask, lengths]


def truth(spec: LSTMSpec) -> PaperLSTM:
    return PaperLSTM(spec.input_size, spec.output_size, spec.hidden_size, spec.num_layers, dtype=torch.float64)


def errors(have: dict[str, Tensor], want: dict[str, Tensor]) -> dict[str, float]:
    return {name: float((have[name].cpu().double() - want[name]).norm() / scale(name, want)) for name in want}


def scale(name: str, want: dict[str, Tensor]) -> Tensor:
    """The norm of a part; of a bias, which is a column of its layer's matrix, that of the whole matrix.

    The gradient of a bias alone may cancel: in the tiny case, sums of terms of 0.1 to 0.5 leave 0.009 for the output's
    bias, where torch itself is wrong by 8e-6 of that.
    """
    layer = name.replace("bias", "*")
    others = (layer.replace("*", kind) for kind in ("weight", "weight_input", "weight_hidden"))
    parts = [want[part] for part in {name, *others} if part in want]
    return torch.cat([part.flatten() for part in parts]).norm()


def check(
    backend: Backend, spec: LSTMSpec, steps: int, batch: int, place: Callable[[Tensor], Tensor], most: float
) -> None:
    model = truth(spec)
    assert {name: tuple(part.shape) for name, part in model.named_parameters()} == spec.shapes()
    for loss in (BINARY, CATEGORICAL):
        given = draw(spec, steps, batch, loss)
        costs, gradient, _ = SequenceModel.loss_and_gradient(model, *given, loss=loss)
        have = backend.loss_and_gradient(spec, *map(place, given), loss.kernel)
        found = errors({"costs": have[0]} | model.split_flat(have[1]), {"costs": costs} | model.split_flat(gradient))
        assert all(error < most for error in found.values()), found
    flat, inputs, _, _, lengths = given
    run = backend.forward(spec, *map(place, (flat, inputs, lengths)))
    for seed in range(SEEDS):
        weights = model.split_flat(flat[seed])
        y, state = torch.func.functional_call(model, weights, (inputs[seed], None, lengths[seed]))
        want = {"outputs": y, "hidden": state.hidden, "cell": state.cell}
        found = errors({name: part[seed] for name, part in run._asdict().items()}, want)
        assert all(error < most for error in found.values()), found


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_agrees_with_torch(name: str, on_gpu: torch.device, request: pytest.FixtureRequest) -> None:
    path, case = request.node.callspec.params["on_gpu"], CASES[name]
    if on_gpu.type == "cpu" and name not in EMULATED[path]:
        pytest.skip("its path is emulated in another case, which is slow enough")
    check(gpu, *case, lambda part: single(part).to(on_gpu), TOLERANCE)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cpu_agrees_with_torch(case: tuple[LSTMSpec, int, int]) -> None:
    check(cpu, *case, lambda part: part, EXACT)
    check(cpu, *case, single, TOLERANCE)


def assert_alone_as_among_others(backend: Backend, given: list[Tensor], spec: LSTMSpec) -> None:
    """With padding that its neighbours need, and without."""
    everyone = backend.loss_and_gradient(spec, *given, "binary")
    for seed in range(SEEDS):
        mine = [part[seed : seed + 1] for part in given]
        steps = int(mine[-1].max())
        alone = backend.loss_and_gradient(spec, mine[0], *(part[:, :steps] for part in mine[1:4]), mine[4], "binary")
        for have, want in zip(alone, everyone, strict=True):
            assert torch.equal(have[0], want[seed])


@pytest.mark.parametrize("name", ["two tiles of sequences", "three layers, a cluster of four"])
def test_a_seed_alone_is_the_seed_among_others_on_a_gpu(name: str, on_gpu: torch.device) -> None:
    spec, steps, batch = CASES[name]
    given = draw(spec, steps, batch, BINARY)
    given[-1][1] = given[-1][1].clamp(max=steps - 2)
    placed = [single(part).to(on_gpu) for part in given]
    assert_alone_as_among_others(gpu, placed, spec)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_seed_alone_is_the_seed_among_others_on_a_cpu(threads: int, one_thread: None) -> None:
    spec, steps, batch = CASES["three layers, a cluster of four"]
    given = [single(part) for part in draw(spec, steps, batch, BINARY)]
    given[-1][1] = given[-1][1].clamp(max=steps - 2)
    torch.set_num_threads(threads)
    assert_alone_as_among_others(cpu, given, spec)
    assert torch.get_num_threads() == threads  # one while it computes, and then as before


def test_steps_that_do_not_count_change_nothing(on_gpu: torch.device) -> None:
    """Whatever stands in inputs and targets beyond a sequence's end."""
    spec, steps, batch = CASES["tiny"]
    given = draw(spec, steps, batch, BINARY)
    other = [part.clone() for part in given]
    beyond = torch.arange(steps).unsqueeze(-1) >= given[-1].unsqueeze(1)
    other[1][beyond], other[2][beyond] = torch.nan, 7.0
    for backend, place in ((gpu, on_gpu), (cpu, torch.device("cpu"))):
        one, two = ([single(part).to(place) for part in some] for some in (given, other))
        found = (backend.loss_and_gradient(spec, *some, "binary") for some in (one, two))
        for have, want in zip(*found, strict=True):
            assert torch.equal(have, want)


def test_what_is_not_finite_stays_so(on_gpu: torch.device) -> None:
    """A seed whose weights overflow says so in its costs or gradient; its neighbour is as before."""
    spec, steps, batch = CASES["tiny"]
    given = [single(part).to(on_gpu) for part in draw(spec, steps, batch, BINARY)]
    want = gpu.loss_and_gradient(spec, *given, "binary")
    given[0] = given[0].clone()
    given[0][1, 3] = torch.nan
    costs, gradient = gpu.loss_and_gradient(spec, *given, "binary")
    assert not bool(torch.isfinite(costs[1]).all() and torch.isfinite(gradient[1]).all())
    assert torch.equal(costs[0], want[0][0])
    assert torch.equal(gradient[0], want[1][0])


def test_every_layer_size_of_the_paper_has_its_plan() -> None:
    for units, cluster in gpu.CLUSTERS.items():
        width = units // cluster
        terms = units * width // gpu.LAYER_THREADS
        assert terms % 4 == 0
        assert terms <= 32  # four weights each in a thread's 255 registers
        assert gpu.LAYER_THREADS % width == 0
        assert cluster <= 8  # more is not portable
    assert {128, 256} <= set(gpu.CLUSTERS)  # of the paper's sizes; 512 takes a launch for every step


def test_refusals() -> None:
    spec, here = LSTMSpec(3, 2, 4, 1), torch.device("cpu")
    assert "CUDA" in str(gpu.refusal(spec, torch.float32, here))
    assert cpu.refusal(spec, torch.float32, here) is None
    assert "float16" in str(cpu.refusal(spec, torch.float16, here))
    model = PaperLSTM(3, 2, 4, 1, backend="gpu")
    with pytest.raises(ValueError, match=r"'gpu' cannot run.*CUDA"):
        model.backend_in_use()
    with pytest.raises(ValueError, match="backend is 'tpu'"):
        model.choose_backend("tpu")
    half = PaperLSTM(3, 2, 4, 1, dtype=torch.float16)
    assert half.backend_and_reason()[0] == "reference"
    assert "float16" in half.backend_and_reason()[1]
    assert PaperLSTM(3, 2, 4, 1).backend_in_use() == "cpu"
    assert PaperLSTM(3, 2, 4, 1, backend="reference").backend_in_use() == "reference"


class Squared(Loss):
    """A loss that is not in the kernels."""

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits - targets).square()

    def errors(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits - targets).abs() > 0.5


def test_a_loss_from_outside_goes_through_autograd() -> None:
    spec, steps, batch = CASES["tiny"]
    given = draw(spec, steps, batch, BINARY)
    model = truth(spec)
    assert not dispatch.is_fused(model.backend_in_use(), Squared())
    costs, gradient, _ = model.loss_and_gradient(*given, loss=Squared())
    want = SequenceModel.loss_and_gradient(model, *given, loss=Squared())
    assert torch.equal(costs, want[0])
    assert torch.equal(gradient, want[1])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("parameters", lambda part: part[:, 1:], "parameters has shape"),
        ("inputs", lambda part: part[..., :2], "inputs has shape"),
        ("inputs", lambda part: part[:, :, :0], "sequences, inputs. is needed"),
        ("inputs", lambda part: part.float(), "inputs is torch.float32"),
        ("targets", lambda part: part[..., :1], "targets has shape"),
        ("mask", lambda part: part[:, 1:], "mask has shape"),
        ("lengths", lambda part: part + 50, "lengths run from"),
        ("lengths", lambda part: part * 0, "lengths run from 0"),
    ],
)
def test_tensors_that_do_not_fit(name: str, change: Callable[[Tensor], Tensor], message: str) -> None:
    spec, steps, batch = CASES["tiny"]
    named = dict(
        zip(("parameters", "inputs", "targets", "mask", "lengths"), draw(spec, steps, batch, BINARY), strict=True)
    )
    named[name] = change(named[name])
    with pytest.raises(ValueError, match=message):
        truth(spec).loss_and_gradient(*named.values())


def test_a_population_without_gradients_is_the_layer(one_thread: None) -> None:
    spec, steps, batch = CASES["two tiles of sequences"]
    flat, inputs, _, _, lengths = draw(spec, steps, batch, BINARY)
    model = truth(spec)
    with torch.no_grad():
        fused = model.population(flat, inputs, lengths)
    learning = model.population(flat.requires_grad_(), inputs, lengths)
    assert learning.requires_grad
    learning = learning.detach()
    assert float((fused - learning).norm() / learning.norm()) < EXACT


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, on first use
def test_forward_mode_is_refused() -> None:
    spec, steps, batch = CASES["tiny"]
    flat, inputs, _, _, lengths = draw(spec, steps, batch, BINARY)
    model = truth(spec)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs, torch.ones_like(inputs))
        with pytest.raises(NotImplementedError, match="choose backend='reference'"):
            model.population(flat, dual, lengths)


def test_emulated_names_are_those_of_the_source() -> None:
    """So that a kernel that is added is emulated too."""
    names = {line.split("(const __grid")[0].split()[-1] for line in gpu._text().splitlines() if "__global__" in line}
    assert names == {*cuda_on_cpu.LSTM, *cuda_on_cpu.LSTM_CLUSTERS}
