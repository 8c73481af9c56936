"""The faults, one module each."""

from soak.fault import Fault
from soak.faults import (
    caches,
    command_lines,
    damage,
    disk,
    equivalence,
    extremes,
    fallback,
    gradients,
    hostile,
    kills,
    nans,
    parity,
    repeated,
    rotations,
    saves,
    server_requests,
    stops,
    sweeps,
)

_MODULES = (
    kills, saves, disk, damage, fallback, hostile, gradients, parity, equivalence, extremes, nans, repeated, sweeps,
    command_lines, stops, server_requests, rotations, caches,
)  # fmt: skip
FAULTS: dict[int, Fault] = {module.FAULT.number: module.FAULT for module in _MODULES}
