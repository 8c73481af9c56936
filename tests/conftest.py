"""Tests marked `gpu` need a CUDA device, and are skipped where there is none."""

import contextlib
import gc
import os
import signal

import cuda_on_cpu
import pytest
import torch
from browser import chromium, page  # noqa: F401 (fixtures of all tests)

from tapehead import notices


def pytest_configure():
    """Tests send these signals, and `nohup` or a shell with jobs in its background may have had them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish():
    """Modules and thousands of tests live to the end: a garbage collection need not go through them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[pytest.param("cpu", id="emulated"), pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, tmp_path_factory):
    """Where the GPU's kernels run: thread by thread on the CPU, or on a GPU."""
    if request.param == "cpu":
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no C++ compiler")
        base = tmp_path_factory.getbasetemp()
        of_all = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one for all processes of this run
        cuda_on_cpu.folder = of_all / "cuda-on-cpu"
        cuda_on_cpu.folder.mkdir(exist_ok=True)
    with cuda_on_cpu.emulated() if request.param == "cpu" else contextlib.nullcontext():
        yield torch.device(request.param)


@pytest.fixture(scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def heard():
    """What the library has said since this was called before, a line for each sentence."""
    said = []

    def since():
        text = "".join(f"{sentence}\n" for sentence in said)
        said.clear()
        return text

    with notices.heard_by(said.append):
        yield since
