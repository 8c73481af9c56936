"""Kernels of numba: compiled in processes of their own, for explicit types, and loaded from verified bytes."""

import ast
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numba
import numba.core.event
import numpy as np
import pytest
import tiny_kernels
import torch
from scan_problems import SMALL, make_problem
from tiny_kernels import ADD_ONE, BROKEN, DOUBLE

import tapehead
from tapehead.kernels import cache, dispatch, jit
from tapehead.kernels.errors import CompilationError
from tapehead.kernels.ntm_scan import cpu
from tapehead.kernels.ntm_scan.cpu import compiled as scan_compiled
from tapehead.kernels.ntm_scan.cpu import entries
from tapehead.kernels.ntm_scan.cpu.compiled import addressing, interface
from tapehead.kernels.update import compiled as update_compiled
from tapehead.kernels.update import cpu as update_cpu
from tapehead.kernels.update.contract import UpdateRule, UpdateState

CPU = torch.device("cpu")
TESTS = Path(__file__).parents[1]
COMPILING = "compiling the CPU kernel"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A cache of its own, in which nothing has been said."""
    monkeypatch.setenv("TAPEHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_said", set())
    monkeypatch.setattr(jit, "_not_kept", {})
    return tmp_path / "cache" / "kernels"


def applied(entry):
    x = np.arange(3.0)
    entry(x)
    return x.tolist()


def test_a_kernel_is_compiled_once_and_never_here(place, heard, monkeypatch):
    with numba.core.event.install_recorder("numba:compile") as recorder:
        double, add_one = jit.load([DOUBLE, ADD_ONE], "float64")
        assert heard().count(COMPILING) == 1
        assert (applied(double), applied(add_one)) == ([0, 2, 4], [1, 2, 3])
        assert jit.kept([DOUBLE, ADD_ONE], "float64")
        assert [applied(entry) for entry in jit.load([ADD_ONE, DOUBLE], "float64")] == [[1, 2, 3], [0, 2, 4]]
    assert heard() == ""
    assert list(recorder.buffer) == []
    (place / DOUBLE.file("float64")).write_bytes(b"what is this?")
    assert applied(jit.load([DOUBLE], "float64")[0]) == [0, 2, 4]
    said = heard()
    assert "is damaged" in said
    assert COMPILING in said


def test_it_works_where_nothing_can_be_kept(place, heard, monkeypatch):
    monkeypatch.setenv("TAPEHEAD_CACHE", "/dev/null/cache")
    with numba.core.event.install_recorder("numba:compile") as recorder:
        (double,) = jit.load([DOUBLE], "float64", beside=[ADD_ONE])
        (add_one,) = jit.load([ADD_ONE], "float64")
    assert (applied(double), applied(add_one)) == ([0, 2, 4], [1, 2, 3])
    assert list(recorder.buffer) == []
    said = heard()
    assert said.count(COMPILING) == said.count("set TAPEHEAD_CACHE") == 1


def test_kernels_beside_are_compiled_along(place):
    jit.load([DOUBLE], "float64", beside=[ADD_ONE])
    assert jit.kept([DOUBLE, ADD_ONE], "float64")


def test_a_full_disk_changes_nothing_but_the_next_start(place, monkeypatch):
    expected = training_bits()
    monkeypatch.setattr(cache, "write", lambda name, content: False)
    monkeypatch.setattr(update_cpu, "_entries", {})
    with numba.core.event.install_recorder("numba:compile") as recorder:
        assert training_bits() == expected
    assert list(recorder.buffer) == []


def training_bits():
    rule = UpdateRule(average=0.9)
    state = UpdateState(rule, torch.linspace(-1, 1, 301).repeat(2, 1))
    for step in range(20):
        gradient = torch.sin(state.parameters * (step + 1))
        update_cpu.update(rule, state, gradient, torch.ones(2, 1), torch.full((2,), 1e-2))
    return state.weights.numpy().tobytes()


def test_a_kernel_that_cannot_be_compiled_is_one_sentence(place):
    with pytest.raises(CompilationError, match=r"tiny_kernels:BROKEN for float64: .*no_such_thing") as caught:
        jit.load([BROKEN], "float64")
    assert "\n" not in str(caught.value)
    assert not jit.kept([BROKEN], "float64")


def test_a_child_that_dies_is_one_sentence(place, monkeypatch):
    monkeypatch.setenv("TINY_DIE", "1")
    with pytest.raises(CompilationError, match="its process ended with status -9"):
        jit.load([DOUBLE], "float64")


def test_no_interpreter_is_one_sentence(place, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(CompilationError, match="'/nowhere/python' could not be started, No such file"):
        jit.load([DOUBLE], "float64")


def test_a_source_that_changed_is_not_mixed_with_the_old_one(place, monkeypatch):
    monkeypatch.setattr(DOUBLE, "_sources", "as it was when this process started")
    with pytest.raises(CompilationError, match="changed since this program was started"):
        jit.load([DOUBLE], "float64")


# --- processes -------------------------------------------------------------------------------------------------------

LOAD = """
import tiny_kernels, os, sys
from tapehead.kernels import jit
{}
jit.load([tiny_kernels.DOUBLE], 'float64')
print(os.getpid())
"""


def script(tmp_path, before=""):
    """A program that loads a kernel, in a folder of its own."""
    file = tmp_path / "program" / "load.py"
    file.parent.mkdir()
    file.write_text(LOAD.format(before))
    path = os.pathsep.join([str(TESTS), str(Path(tapehead.__file__).parents[1])])
    return [sys.executable, str(file)], {**os.environ, "PYTHONPATH": path, "TAPEHEAD_CACHE": str(tmp_path / "cache")}


@pytest.mark.parametrize("before", ["", "sys.path.insert(0, os.getcwd())", "sys.path.insert(0, '')"])
def test_no_code_of_the_working_directory_is_run(tmp_path, before):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("numba", "torch", "json", "scipy", "yaml", "sitecustomize"):
        (here / f"{name}.py").write_text("import os, pathlib\npathlib.Path(f'{__file__}.{os.getpid()}').touch()\n")
    command, environment = script(tmp_path, before)
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert COMPILING in done.stderr
    ran = {int(file.suffix[1:]) for file in here.glob("*.py.*")}
    assert ran <= {int(done.stdout)}  # the program may, if it has that folder on its path; its children may not


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_children_end_with_their_parent(tmp_path, number):
    children = tmp_path / "children"
    children.mkdir()
    command, environment = script(tmp_path, f"os.environ['TINY_HANG'] = {str(children)!r}")
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: list(children.iterdir()))
        os.killpg(parent.pid, number)  # as a terminal does
        said = parent.communicate(timeout=60)[1]
    finally:
        parent.kill()
    assert parent.returncode == -number
    assert number != signal.SIGINT or "KeyboardInterrupt" in said
    (child,) = (int(file.name) for file in children.iterdir())
    wait_until(lambda: not alive(child))


def wait_until(true):
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("this did not happen within a minute")


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # where no process collects the children of one that ended


# --- what the key covers ---------------------------------------------------------------------------------------------


def test_the_key_covers_constants_from_elsewhere(monkeypatch):
    """The scan takes its epsilons from equations.py."""
    for module, name in ((addressing, "SHARPEN_EPSILON"), (interface, "NORM_EPSILON"), (tiny_kernels, "FACTOR")):
        before = jit._hash_of_sources([module])
        with monkeypatch.context() as patch:
            patch.setattr(module, name, (0.1, 0.2))
            assert jit._hash_of_sources([module]) != before
        assert jit._hash_of_sources([module]) == before


def test_keys_differ_by_kernel_type_and_source(monkeypatch):
    keys = {kernel.key(dtype) for kernel in (DOUBLE, ADD_ONE, update_cpu.UPDATE) for dtype in ("float32", "float64")}
    assert len(keys) == 6
    before = DOUBLE.key("float64")
    monkeypatch.setattr(DOUBLE, "_options", {"nogil": True, "fastmath": {"nsz"}})
    assert DOUBLE.key("float64") != before
    monkeypatch.undo()
    monkeypatch.setattr(jit, "_compiler", lambda: "another numba")
    assert DOUBLE.key("float64") != before


COMPILED = [*sorted(Path(scan_compiled.__path__[0]).glob("*.py")), Path(update_compiled.__file__)]


@pytest.mark.parametrize("file", COMPILED, ids=lambda file: file.stem)
def test_compiled_modules_take_only_constants_from_outside(file):
    """A function from elsewhere could change without a new key."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tapehead"):
            inside = node.module.startswith(scan_compiled.__name__)
            assert inside or all(alias.name.isupper() for alias in node.names), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("tapehead") for alias in node.names), ast.unparse(node)


def test_identity():
    def word(backend, dtype=torch.float32):
        return f"{dispatch.scan_identity(backend, dtype, CPU)} {dispatch.update_identity(backend, dtype, CPU)}"

    words = {word("cpu"), word("cpu", torch.float64), word("torch"), word("reference")}
    assert len(words) == 4
    assert torch.__version__ in word("reference")
    code = "import torch; from tapehead.kernels import dispatch\ngiven = 'cpu', torch.float32, torch.device('cpu')\n"
    code += "print(dispatch.scan_identity(*given), dispatch.update_identity(*given))"
    for seed in ("1", "2"):  # sets have another order in every process
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(tapehead.__file__).parents[1])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == word("cpu")


def test_prepare_loads_what_a_run_needs(monkeypatch):
    loaded = []
    monkeypatch.setattr(entries, "make_ready", lambda dtype: loaded.append("scan"))
    monkeypatch.setattr(update_cpu, "make_ready", lambda dtype: loaded.append("update"))
    for backend, expected in (("cpu", ["scan", "update"]), ("torch", ["update"]), ("reference", [])):
        dispatch.prepare_scan(backend, torch.float32)
        dispatch.prepare_update(backend, torch.float32, CPU)
        assert loaded == expected
        loaded.clear()


# --- no call can specialise ------------------------------------------------------------------------------------------


def test_whole_numbers_are_taken_for_fractions():
    """A clip of 20 and one of 20.0 are the same machine, and the same code."""
    problem = make_problem(dataclasses.replace(SMALL, interface_clip=20.0), seeds=2)
    whole = dataclasses.replace(problem, spec=dataclasses.replace(SMALL, interface_clip=20))
    with numba.core.event.install_recorder("numba:compile") as recorder:
        ours, theirs = (cpu.forward(*given.arguments(torch.float32, CPU), keep=True)[0] for given in (problem, whole))
        state = UpdateState(UpdateRule(), torch.zeros(1, 3))
        update_cpu.update(UpdateRule(clip_at=10, average=0), state, torch.ones(1, 3), torch.ones(1, 1), torch.ones(1))
    assert torch.equal(ours, theirs)
    assert list(recorder.buffer) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient": torch.ones(2, 3, dtype=torch.float64)}, "are torch.float64, torch.float32 and torch.float32"),
        ({"costs": torch.ones(2, 1, dtype=torch.float64)}, "are torch.float32, torch.float64 and torch.float32"),
        ({"rates": torch.ones(2, dtype=torch.float16)}, "are torch.float32, torch.float32 and torch.float16"),
        ({"gradient": torch.ones(2, 2)}, r"gradient \[2, 2\]"),
        ({"costs": torch.ones(1, 1)}, r"costs \[1, 1\]"),
        ({"rates": torch.ones(3)}, r"rates \[3\]"),
    ],
)
def test_the_update_refuses_what_does_not_fit(change, message):
    state = UpdateState(UpdateRule(), torch.zeros(2, 3))
    given = {"gradient": torch.ones(2, 3), "costs": torch.ones(2, 1), "rates": torch.ones(2)} | change
    with pytest.raises(ValueError, match=message):
        update_cpu.update(UpdateRule(), state, **given)
    assert torch.equal(state.parameters, torch.zeros(2, 3))


def test_the_update_takes_strided_gradients_and_refuses_a_strided_state():
    rule, gradient = UpdateRule(), torch.arange(6.0).reshape(3, 2)
    one, two = UpdateState(rule, torch.zeros(2, 3)), UpdateState(rule, torch.zeros(2, 3))
    rest = (torch.ones(2, 1), torch.full((2,), 0.1))
    update_cpu.update(rule, one, gradient.t(), *rest)
    update_cpu.update(rule, two, gradient.t().contiguous(), *rest)
    assert torch.equal(one.parameters, two.parameters)
    with pytest.raises(ValueError, match="contiguous"):
        update_cpu.update(rule, UpdateState(rule, torch.zeros(3, 2).t()), gradient.t(), *rest)
    with pytest.raises(ValueError, match="float16"):
        update_cpu.update(rule, UpdateState(rule, torch.zeros(2, 3).half()), gradient.t(), *rest)


def test_without_numba_the_reference_runs(monkeypatch):
    monkeypatch.setattr(jit.core.config, "DISABLE_JIT", 1)
    ntm = tapehead.NTM(3, 2, memory_slots=4)
    assert ntm.backend_in_use() == "reference"
    ntm.choose_backend("cpu")
    with pytest.raises(ValueError, match="NUMBA_DISABLE_JIT is set"):
        ntm.backend_in_use()
    with pytest.raises(CompilationError, match="NUMBA_DISABLE_JIT is set"):
        jit.load([DOUBLE], "float64")
    from tapehead.kernels.update import reference

    assert dispatch.update_kernel("torch", CPU, UpdateRule().optimiser) is reference.update
