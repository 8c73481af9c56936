"""Workers as processes of this machine: one for each core with one thread, or one for each GPU."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

import tapehead
from tapehead import files
from tapehead.sweep.engines import Engine, refuse_options
from tapehead.sweep.folder import SweepFolder
from tapehead.sweep.work import Assignment

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

# The package last on the path: a file of the working directory never takes the place of an installed module.
PROGRAM = "import sys; sys.path.append({!r}); from tapehead.sweep.worker import main; main()"


class LocalEngine(Engine):
    """Each worker is a program of its own, in a session of its own, so that Ctrl-C reaches the driver alone. Its
    standard input is a pipe from the driver: the worker stops when that ends, however the driver ended."""

    def __init__(self, sweep: SweepFolder, assignment: Assignment, options: Mapping[str, str]) -> None:
        super().__init__(sweep, assignment, options)
        refuse_options("local", options, ())
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._started = 0
        self._gpus = torch.cuda.device_count() if self.device == "cuda" else 0

    @classmethod
    def check(cls) -> None:
        pass

    @property
    def running(self) -> int:
        return len(self._processes)

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
        device = self.assignment.device
        if self._gpus > 1:
            device = f"cuda:{self._started % self._gpus}"
        self._started += 1
        self._processes.append((process, log))
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, which `ended` says
            process.stdin.write(json.dumps(self.assignment._replace(device=device)._asdict()).encode() + b"\n")
            process.stdin.flush()

    def ended(self) -> list[str]:
        over = [(process, log) for process, log in self._processes if process.poll() is not None]
        self._processes = [(process, log) for process, log in self._processes if process.returncode is None]
        return [_why(process, log) for process, log in over]

    def stop(self) -> None:
        for process, _ in self._processes:
            process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        for process, _ in self._processes:
            process.kill()
            process.wait()

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
