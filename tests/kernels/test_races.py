"""Races of the GPU's kernels in shared memory. At all shapes: races_on_cpu.py."""

import cuda_on_cpu
import pytest
import races_on_cpu

pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no C++ compiler")
SHAPE = "feedforward, scalar shift, 2 + 3 heads"


@pytest.fixture(autouse=True)
def compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_on_cpu, "folder", tmp_path)


@pytest.mark.parametrize(("name", "races"), races_on_cpu.controls().items())
def test_the_races_of_small_kernels_are_known(name, races):
    found = races_on_cpu.run_control(name)
    assert not found.bad
    assert found.accesses[name] > 10_000
    of_kernel = {(race.first, race.second) for race in found.races}
    read = "sum += own[(thread + 37) % TEAM];"
    write = "own[thread] = t + phase + thread;"
    get, put = "sum += words[threadIdx.x];", "words[(threadIdx.x + TEAM) % 512] = t + thread;"
    known = {
        "control_race": {(write, read), (read, write)},
        "control_exchange_race": {(put, get), (get, put)},
        "control_early": {("copy(own + thread, a.values + threadIdx.x);", read)},
    }
    assert of_kernel == known.get(name, set())
    assert bool(of_kernel) == bool(races)


def test_several_sequences_a_block_have_no_race_and_one_without_a_barrier():
    found = races_on_cpu.run("dnc_scan", SHAPE)
    assert found.accesses["dnc_forward"] > 100_000
    assert not found.races
    assert not found.bad
    text = races_on_cpu.source_of("dnc_scan")
    lines = [text[: place.end()].count("\n") for place in races_on_cpu.BARRIER.finditer(text)]
    number = next(i for i, line in enumerate(lines) if "// the write weighting" in text.splitlines()[line])
    found = races_on_cpu.without_barrier("dnc_scan", text, number, SHAPE)
    assert {race.kernel for race in found.races} == {"dnc_forward"}
    assert any("state[WRITTEN + i] = w;" in (race.first, race.second) for race in found.races)
