"""The GPU scan's layout: arithmetic and refusals, all without a GPU."""

import re

import pytest
import torch

from tapehead.kernels.ntm_scan import gpu
from tapehead.kernels.ntm_scan.gpu_plan import FEW_THREADS, MOST_OUTPUTS, MOST_THREADS, Plan
from tapehead.kernels.ntm_scan.spec import ScanSpec

H200, AMPERE, CONSUMER = 232448, 166912, 101376  # bytes of shared memory that a block may have

PRESETS = {
    "copy": ScanSpec(input_size=9, output_size=8),
    "repeat copy": ScanSpec(input_size=10, output_size=9),
    "recall": ScanSpec(
        input_size=8, output_size=6, controller="feedforward", controller_size=256, read_heads=4, write_heads=4
    ),
    "n-grams": ScanSpec(input_size=1, output_size=1),
    "sort": ScanSpec(
        input_size=9, output_size=8, controller="feedforward", controller_size=512, read_heads=8, write_heads=8
    ),
    "sort, LSTM": ScanSpec(input_size=9, output_size=8, controller_layers=2, read_heads=5, write_heads=5),
}
every_preset = pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
every_limit = pytest.mark.parametrize("limit", [H200, AMPERE, CONSUMER])


@every_preset
@every_limit
def test_every_preset_fits_and_stays_within_shared_memory(spec: ScanSpec, limit: int) -> None:
    plan = Plan(spec, 128, limit)
    assert plan.refusal() is None
    for backward in (False, True):
        assert plan.working_bytes(backward) <= plan.shared_bytes(backward) <= limit


@every_preset
@pytest.mark.parametrize("backward", [False, True])
def test_products_cover_their_matrices(spec: ScanSpec, backward: bool) -> None:
    plan = Plan(spec, 128, H200)
    for product in plan.products(backward):
        assert product.splits * product.depth >= product.inner, "every input has a thread"
        assert (product.splits - 1) * product.depth < product.inner or product.splits == 1 or not backward
        assert product.active <= plan.threads
        assert product.in_registers + product.in_shared + product.streamed == product.depth
        assert product.streamed == 0 or (product.in_registers + product.in_shared) % 4 == 0


def test_products_that_share_their_sums_are_cut_alike() -> None:
    for spec in (PRESETS["copy"], PRESETS["sort, LSTM"]):
        cuts = {(p.outputs, p.splits) for p in Plan(spec, 128, H200).products(False) if p.name != "INTERFACE"}
        assert len(cuts) == 1


def test_the_copy_machine_lives_on_the_chip() -> None:
    """Nothing of the asked-for shape is streamed on an H200; README-gpu.md gives the arithmetic."""
    plan = Plan(PRESETS["copy"], 128, H200)
    assert plan.streamed_floats(False) == plan.streamed_floats(True) == 0
    weights = sum(16 * p.active * p.depth for p in plan.products(False))
    assert weights > H200, "shared memory alone would not do: registers hold a part"


@pytest.mark.parametrize("tape", [1, 2, 7, 16, 33, 64, 128, 129, 512, 1000])
def test_every_slot_and_column_has_a_thread(tape: int) -> None:
    for width in (1, 5, 20, 33):
        plan = Plan(ScanSpec(input_size=1, output_size=1, memory_width=width), tape, H200)
        assert plan.slot_teams * plan.slots_per_thread >= tape
        assert plan.padded_width >= width
        assert plan.slot_warps * 32 >= min(tape, plan.slot_teams) * plan.lanes_per_slot
        assert plan.slot_warps <= plan.warps


def test_few_threads_where_a_machine_is_small() -> None:
    def threads(tape: int = 128, **sizes: int) -> int:
        return Plan(ScanSpec(**{"input_size": 9, "output_size": 8} | sizes), tape, H200).threads

    assert {Plan(spec, 128, H200).threads for spec in PRESETS.values()} == {FEW_THREADS}
    assert [threads(256), threads(257)] == [FEW_THREADS, MOST_THREADS]
    assert [threads(controller_size=256), threads(controller_size=257)] == [FEW_THREADS, MOST_THREADS]
    assert [threads(input_size=256), threads(input_size=257)] == [FEW_THREADS, MOST_THREADS]


@every_preset
def test_gradient_jobs_write_every_parameter_once(spec: ScanSpec) -> None:
    count = torch.zeros(spec.parameter_count, dtype=torch.int64)
    for job in Plan(spec, 128, H200).gradient_jobs():
        rows, columns = torch.arange(job["rows"])[:, None], torch.arange(job["columns"])
        count[(job["at"] + rows * job["stride"] + columns).flatten()] += 1
        columns = torch.arange(job["second_columns"])
        count[(job["second_at"] + rows * job["stride"] + columns).flatten()] += 1
        count[job["bias"] : job["bias"] + job["rows"]] += 1
    assert bool((count == 1).all())


@every_preset
def test_entry_order_has_every_interface_entry_once(spec: ScanSpec) -> None:
    order = Plan(spec, 128, H200).entry_order
    assert sorted(o for o in order if o >= 0) == list(range(spec.interface.size))
    assert len(order) % 32 == 0


@every_preset
def test_source_is_whole(spec: ScanSpec) -> None:
    text = gpu.source(Plan(spec, 128, H200))
    assert text.count("{") == text.count("}")
    for kernel in ("ntm_forward", "ntm_backward", "ntm_gradient"):
        assert re.search(rf'extern "C" __global__ void [^;]*{kernel}\(', text)
    names = re.findall(r"^constexpr int (\w+) =", Plan(spec, 128, H200).header().split("namespace")[0], re.MULTILINE)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("spec", "tape", "numbers"),
    [
        (ScanSpec(input_size=9, output_size=8, controller_size=600), 128, ["2400 gate rows", str(MOST_OUTPUTS)]),
        (ScanSpec(input_size=600, output_size=8), 128, ["600 channels", str(MOST_THREADS)]),
        (ScanSpec(input_size=9, output_size=8, memory_width=800), 128, ["entries", str(MOST_OUTPUTS)]),
        (ScanSpec(input_size=9, output_size=8), 4096, ["4096 x 20", "160 registers", "64"]),
        (ScanSpec(input_size=9, output_size=8, read_heads=24), 1500, ["bytes of shared memory", str(H200)]),
    ],
)
def test_refusals_give_the_numbers(spec: ScanSpec, tape: int, numbers: list[str]) -> None:
    reason = Plan(spec, tape, H200).refusal()
    assert reason is not None
    assert all(number in reason for number in numbers), reason


def test_refuses_other_devices() -> None:
    reason = gpu.refusal(PRESETS["copy"], torch.float32, torch.device("cpu"))
    assert reason is not None
    assert "cpu" in reason


def test_kept_size_grows_with_the_steps() -> None:
    plan = Plan(PRESETS["copy"], 128, H200)
    step = plan.kept_size(2) - plan.kept_size(1)
    assert plan.kept_size(41) == plan.kept_size(1) + 40 * step
    assert 4 * step < 20_000, "README-gpu.md counts 17.7 kB a step for the copy machine"
