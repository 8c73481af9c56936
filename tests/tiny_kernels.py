"""Kernels that compile at once, and children that misbehave."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from tapehead.kernels import jit

FACTOR = 2.0

if "TINY_DIE" in os.environ:  # a child that is killed
    os.kill(os.getpid(), 9)
if "TINY_HANG" in os.environ:  # a child that compiles for ever, and leaves its number
    (Path(os.environ["TINY_HANG"]) / str(os.getpid())).touch()
    time.sleep(600)


def double(x: Any) -> None:
    for i in range(x.size):
        x[i] *= FACTOR


def add_one(x: Any) -> None:
    for i in range(x.size):
        x[i] += 1


def broken(x: Any) -> None:
    x.no_such_thing()


def types(real: Any) -> tuple[Any, ...]:
    return (real[::1],)


HERE = [sys.modules[__name__]]
DOUBLE = jit.Kernel("tiny_kernels:DOUBLE", double, {"nogil": True}, types, HERE)
ADD_ONE = jit.Kernel("tiny_kernels:ADD_ONE", add_one, {"nogil": True}, types, HERE)
BROKEN = jit.Kernel("tiny_kernels:BROKEN", broken, {}, types, HERE)
