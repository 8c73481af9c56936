"""Workers as processes of this machine: one for each core with one thread, or one for each GPU."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

import tapehead
from tapehead import files
from tapehead.sweep.engines import Engine, refuse_options
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.work import Assignment

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

# The package last on the path: a file of the working directory never takes the place of an installed module.
PROGRAM = "import sys; sys.path.append({!r}); from tapehead.sweep.worker import main; main()"


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path
    device: str | None


class LocalEngine(Engine):
    """Each worker is a program of its own, in a session of its own, so that Ctrl-C reaches the driver alone. Its
    standard input is a pipe from the driver: the worker stops when that ends, however the driver ended."""

    def __init__(self, sweep: SweepFolder, assignment: Assignment, options: Mapping[str, str]) -> None:
        super().__init__(sweep, assignment, options)
        refuse_options("local", options, ())
        self._workers: list[_Worker] = []
        self._started = 0
        self._gpus = torch.cuda.device_count() if self.device == "cuda" else 0

    @classmethod
    def check(cls) -> None:
        pass

    @property
    def running(self) -> int:
        return len(self._workers)

    def default_workers(self) -> int:
        if self.device.startswith("cuda"):
            return max(1, self._gpus)
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def start(self) -> None:
        log = self.sweep.path / "logs" / f"{self.assignment.driver}-{self._started:04d}.log"
        environment = os.environ | dict.fromkeys(THREADS, str(self.assignment.threads))
        files.expect_file(log)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM.format(str(Path(tapehead.__file__).parents[1]))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        device = self._free_device()
        self._started += 1
        self._workers.append(_Worker(process, log, device))
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, which `ended` says
            process.stdin.write(json.dumps(self.assignment._replace(device=device)._asdict()).encode() + b"\n")
            process.stdin.flush()

    def _free_device(self) -> str | None:
        """Where the next worker trains: on the GPU that the fewest workers have."""
        if self._gpus < 2:
            return self.assignment.device
        taken = [worker.device for worker in self._workers]
        return min((f"cuda:{gpu}" for gpu in range(self._gpus)), key=taken.count)

    def ended(self) -> list[str]:
        over = [worker for worker in self._workers if worker.process.poll() is not None]
        self._workers = [worker for worker in self._workers if worker.process.returncode is None]
        return [_why(worker.process, worker.log) for worker in over]

    def stop(self) -> None:
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()

    def close(self) -> None:
        self.kill()
        self.ended()
        super().close()


def _why(process: subprocess.Popen[bytes], log: Path) -> str:
    """Why a worker died; empty if it did not. The log of one that printed nothing goes."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    printed = log.read_bytes()[-2000:].decode(errors="replace").strip()
    if not printed:
        log.unlink(missing_ok=True)
    if process.returncode == 0:
        return ""
    how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
    return f"{how}{': ' + printed.splitlines()[-1] if printed else ''}"
