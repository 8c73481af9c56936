"""Launches of kernels, on a driver that only writes them down; the compiler and the real driver need a GPU."""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tapehead.kernels import nvrtc
from tapehead.kernels.nvrtc import Kernels


class Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int)]


class Driver:
    """The functions of the CUDA driver that a launch needs."""

    def __init__(self) -> None:
        self.status = 0
        self.launches: list[tuple[Any, ...]] = []
        self.functions: list[bytes] = []
        self.limits: list[int] = []

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        self.functions.append(name)
        function._obj.value = len(self.functions)
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.limits.append(value)
        return 0

    def cuLaunchKernelEx(self, launch: Any, function: Any, arguments: Any, extra: None) -> int:
        config = launch._obj
        grid = (config.grid_x, config.grid_y, config.grid_z)
        number = ctypes.cast(arguments[0], ctypes.POINTER(Argument)).contents.number
        what = (self.functions[function.value - 1].decode(), grid, config.block_x, config.shared, config.stream)
        self.launches.append((*what, config.attribute_count, number))
        return self.status

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"out of luck"
        return 0


class Machine:
    """Torch's side: a current device and stream."""

    def __init__(self) -> None:
        self.device, self.stream, self.visits = 1, 11, 0

    @contextlib.contextmanager
    def visit(self, device: torch.device) -> Iterator[None]:
        before, self.device, self.visits = self.device, device.index, self.visits + 1
        yield
        self.device = before


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: machine.device, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: machine.stream + index, raising=False)
    monkeypatch.setattr(torch.cuda, "device", machine.visit)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    return machine


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(nvrtc, "_driver", lambda: driver)
    monkeypatch.setattr(driver, "cuModuleLoadData", lambda module, code: 0, raising=False)
    monkeypatch.setattr(nvrtc, "compiled", lambda source, name, target: b"")
    monkeypatch.setattr(nvrtc, "architecture", lambda device: "sm_90")
    return driver


def test_every_launch_has_its_own_grid_stream_and_argument(driver: Driver, machine: Machine) -> None:
    kernels = Kernels("", "test.cu", torch.device("cuda:1"))
    for number, stream in enumerate((11, 11, 20, 11)):
        machine.stream = stream
        kernels.launch("one", (7,), 32, 16, Argument(number))
    kernels.launch("one", (7, 2), 32, 16, Argument(4))
    kernels.launch("other", (7, 2, 3), 64, 50_000, Argument(5), urgent=True)
    assert driver.launches == [
        ("one", (7, 1, 1), 32, 16, 12, 0, 0),
        ("one", (7, 1, 1), 32, 16, 12, 0, 1),
        ("one", (7, 1, 1), 32, 16, 21, 0, 2),
        ("one", (7, 1, 1), 32, 16, 12, 0, 3),
        ("one", (7, 2, 1), 32, 16, 12, 0, 4),
        ("other", (7, 2, 3), 64, 50_000, 12, 1, 5),
    ]
    assert driver.functions == [b"one", b"other"]
    assert driver.limits == [50_000]


def test_a_launch_goes_to_the_device_of_its_kernels(driver: Driver, machine: Machine) -> None:
    kernels = Kernels("", "test.cu", torch.device("cuda:1"))
    loading, machine.device = machine.visits, 0
    kernels.launch("one", (1,), 32, 0, Argument(0))
    assert (machine.visits, machine.device) == (loading + 1, 0)
    machine.device = 1
    kernels.launch("one", (1,), 32, 0, Argument(0))
    assert machine.visits == loading + 1


def test_a_refused_launch_names_the_kernel(driver: Driver, machine: Machine) -> None:
    kernels = Kernels("", "test.cu", torch.device("cuda:1"))
    driver.status = 1
    with pytest.raises(RuntimeError, match=r"^launching one failed: out of luck\.$"):
        kernels.launch("one", (1,), 32, 0, Argument(0))


def test_launches_that_are_kept_are_few(driver: Driver, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "MOST_LAUNCHES", 2)
    kernels = Kernels("", "test.cu", torch.device("cuda:1"))
    for blocks in (1, 2, 3, 1):
        kernels.launch("one", (blocks,), 32, 0, Argument(blocks))
        assert len(kernels._launches) <= 2
    assert [launch[1][0] for launch in driver.launches] == [1, 2, 3, 1]
