"""A part of every fault, by the code of `make soak`, in processes of its own; and what the runner and the table do."""

import dataclasses
import json
from collections import Counter

import pytest
import torch
from scan_problems import limit

from soak import table
from soak.fault import Case, Fault
from soak.faults import FAULTS, parity
from soak.faults.command_lines import line_of
from soak.faults.damage import KIND_COUNT
from soak.faults.parity import CPU, Drawn, InTorch, assert_close, drawn
from soak.runner import Outcome, Runner, chunks_of, outcome_of
from soak.table import Row
from tapehead.kernels.ntm_scan import gpu
from tapehead.kernels.ntm_scan.cpu import backend
from tapehead.kernels.ntm_scan.gpu_plan import FEW_THREADS, MOST_THREADS, Plan

PLACE = {"machine": "a machine", "commit": "abc", "date": "2026-11-17"}


@pytest.mark.parametrize("number", FAULTS)
def test_fault(number, tmp_path):
    fault = FAULTS[number]
    if (reason := fault.missing()) is not None:
        pytest.skip(reason)
    Runner(tmp_path, PLACE, jobs=1).run([(fault, fault.quick)])
    found = outcome_of(fault, fault.quick, tmp_path)
    assert found.failures == []
    assert found.done == fault.quick


def test_the_counts_are_at_least_those_that_are_promised():
    asked = (200, 120, 30, 1600 * KIND_COUNT, 100, 20_050, 60, 500, 500, 2000, 50, 20, 200, 300, 20, 65, 2000)
    assert all(FAULTS[number].full >= count for number, count in enumerate(asked, 1))
    lines = {tuple(line_of(number)) for number in range(FAULTS[14].full)}
    assert len(lines) > 0.9 * FAULTS[14].full
    assert len({line[0] for line in lines if line}) >= 8


def layout_of(tensor):
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return "expanded"
    if not tensor.is_contiguous():
        return "strided"
    return "offset" if tensor.storage_offset() else "contiguous"


def properties(machine: Drawn):
    """What a machine of fault 8 has of all that it should not matter to have."""
    spec, plan = machine.spec, Plan(machine.spec, machine.in_cuda.state.memory.shape[-2], machine.limit)
    for option, value in dataclasses.asdict(spec).items():
        yield option, value
    yield "refused", plan.refusal() is not None
    yield "threads", plan.threads
    yield "slots a thread", plan.slots_per_thread
    for backward in (False, True):
        yield f"streamed, {backward=}", plan.streamed_floats(backward) > 0
    for place, problem in (("cpu", machine.on_cpu), ("cuda", machine.in_cuda)):
        seeds, steps, batch, _ = problem.inputs.shape
        tape = problem.state.memory.shape[2]
        for name, value in (("seeds", seeds > 1), ("steps", steps > 1), ("batch", batch > 1), ("tape", tape > 1)):
            yield f"{place}: several {name}", value
        yield f"{place}: a part of the tape", bool((problem.slots < tape).any())
        yield f"{place}: one slot", bool((problem.slots == 1).any())
        yield f"{place}: length 0", bool((problem.lengths == 0).any())
        yield f"{place}: a mask of zeros", not bool(problem.mask.all())
        _, *given, state = problem.arguments(torch.float32, CPU)
        for name, part in zip(("parameters", "inputs", "lengths", "slots", "memory"), (*given, state[0]), strict=True):
            yield f"{place}: layout of {name}", layout_of(part)
        for name, part in zip(("lengths", "slots"), given[2:], strict=True):
            yield f"{place}: type of {name}", part.dtype


def test_the_random_machines_have_everything(tmp_path):
    """All of fault 8's machines together: every value of every option, every layout, and every way through the kernels.
    The rarest are blocks of 512 threads."""
    seen = {}
    for number in range(FAULTS[8].full):
        for name, value in properties(drawn(Case(8, number, 1, tmp_path))):
            seen.setdefault(name, Counter())[value] += 1
    assert set(seen.pop("refused")) == {False}
    for known in (backend.KNOWN, gpu.KNOWN):
        assert all(set(seen[option]) == set(values) for option, values in known.items())
    assert set(seen["threads"]) == {FEW_THREADS, MOST_THREADS}
    for name, values in seen.items():
        kind = name.removeprefix("cpu: ").removeprefix("cuda: ")
        if kind.startswith("layout"):
            least = {"contiguous", "strided", "offset"} | ({"expanded"} if "parameters" not in kind else set())
            assert set(values) == least, name
        assert len(values) > 1, name
        assert min(values.values()) >= 14, (name, values)


class Off(InTorch):
    """The reference with a final state whose write weightings are off by so much."""

    def __init__(self, off):
        self.off = off

    def forward(self, *given, keep):
        outputs, final, kept = super().forward(*given, keep=keep)
        found = final.write_weightings.detach().contiguous().clone()
        found.view(-1)[0] += self.off * found.norm()
        return outputs, final._replace(write_weightings=found), kept


def test_a_quantity_that_rounding_moves_may_be_as_far_off_and_no_further(tmp_path, monkeypatch):
    """Case 29 is one of two of the 500 machines with such a quantity; an ordinary machine has none."""
    name = "state.write_weightings"
    for number, most in ((0, 1.0), (29, 13.0)):
        problem = drawn(Case(8, number, 1, tmp_path)).on_cpu
        found = parity.conditions(problem)
        allowed = found[parity.quantity(name)]
        assert most / 2 < allowed <= most
        assert found["outputs", "outputs"] == 1  # of the same machine
        monkeypatch.setattr(parity, "conditions", lambda _, found=found: found)  # it takes seconds
        off = allowed * limit(name, torch.float64)
        assert_close(Off(0.8 * off), problem, torch.float64, CPU)
        with pytest.raises(AssertionError, match=r"'state\.write_weightings': "):
            assert_close(Off(1.2 * off), problem, torch.float64, CPU)
        monkeypatch.undo()


def test_a_machine_that_rounding_moves_too_far_is_no_case(tmp_path, monkeypatch):
    problem = drawn(Case(8, 0, 1, tmp_path)).on_cpu
    monkeypatch.setattr(parity, "errors", lambda *_: {"outputs": float("inf")})
    with pytest.raises(AssertionError, match="inf times beyond its limit"):
        parity.conditions(problem)


def fails_at_three(case):
    (case.folder / "file").touch()
    assert case.number != 3, "three is wrong"


def made_up(**changes):
    values = dict(
        number=99, title="made up", promise="all is well", counted="things", full=10, quick=5, check=fails_at_three
    )
    return Fault(**values | changes)


def test_sizes_of_cases():
    assert made_up(each=4).sizes(10) == [4, 4, 2]
    assert made_up(each=None).sizes(10) == [10]
    assert made_up(needs=("no_such_package",)).missing() == "no_such_package not installed"


def test_a_case_has_its_own_random_numbers(tmp_path):
    one, other = Case(1, 2, 3, tmp_path), Case(1, 3, 3, tmp_path)
    assert one.random.random() == one.random.random() != other.random.random()


def test_finished_chunks_are_not_repeated_and_failures_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(
        FAULTS, 5, made_up(number=5, check=FAULTS[5].check, chunk=3)
    )  # a child knows the fault by number
    first, *rest = chunks_of(FAULTS[5], 10, tmp_path)
    for chunk in rest:
        failures = [{"case": 3, "error": "three is wrong"}] if 3 in chunk.numbers else []
        done = {
            "done": len(chunk.numbers),
            "failures": failures,
            "seconds": 1.0,
            "processor_seconds": 1.0,
            "place": PLACE,
        }
        chunk.file.write_text(json.dumps(done))
    Runner(tmp_path, PLACE, jobs=2).run([(FAULTS[5], 10)])
    found = outcome_of(FAULTS[5], 10, tmp_path)
    assert (found.done, [failure["case"] for failure in found.failures]) == (10, [3])
    assert first.outcome()["place"] == PLACE
    assert capsys.readouterr().err.count("\n") == 1  # one chunk was left to do


def test_the_newest_row_of_the_full_count_is_shown(tmp_path):
    def row(count, failures, date):
        return Row(99, "made up", count, 10, failures, 1.0, 0.6, date, "a machine", "0123456789abc").text()

    (tmp_path / "2026-01-01-soak.txt").write_text("fault | count\n" + row(10, 0, "2026-01-01") + "\n")
    (tmp_path / "2026-01-02-soak.txt").write_text(row(4, 1, "2026-01-02") + "\nnot run: x, because y\n")
    assert table.rows_in(tmp_path)[99].date == "2026-01-01"
    (tmp_path / "2026-01-03-soak.txt").write_text(row(10, 2, "2026-01-03") + "\n")
    rows = table.rows_in(tmp_path)
    assert (rows[99].date, rows[99].failures) == ("2026-01-03", 2)
    made = table.table([made_up(), made_up(number=98)], rows)
    assert "| 99 | made up | all is well | 10 things | 2 | 1 | 1 | 2026-01-03 (1) |" in made
    assert "(1) a machine; commit 012345678." in made
    assert "10 things asked, not run" in made


def test_results_are_written_and_read_again(tmp_path):
    outcome = Outcome(made_up(), 10, 10, [{"case": 1, "error": "x"}], 9.0, 2.4, [PLACE, PLACE])
    table.write_results(tmp_path / "2026-11-17-soak.txt", [outcome], {"other": "no numba"})
    (found,) = table.rows_in(tmp_path).values()
    assert found == Row(99, "made up", 10, 10, 1, 9.0, 2.0, "2026-11-17", "a machine", "abc")


def test_the_page_shows_the_newest_results():
    page = table.PAGE.read_text()
    assert table.page_with(page, table.table(list(FAULTS.values()), table.rows_in(table.RESULTS))) == page
