"""3: a disk that is full, a folder that is read-only or deleted, a write that is cut short, in the middle of a run."""

import errno
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tiny import outcome

from soak import children, commands
from soak.fault import Case, Fault
from tapehead.experiment import checkpoint
from tapehead.experiment.loop import Trainer

WRITES = os.O_WRONLY | os.O_RDWR
ERRORS = {"full on open": errno.ENOSPC, "read-only": errno.EROFS, "input/output error": errno.EIO}
KINDS = ("short write", "deleted folder", "full on open", "full on fsync", "read-only", "input/output error")


class Broken:
    """From the first block of training on, and after so many more calls, something fails in this process."""

    def __init__(self, kind: str, after: int, folder: Path) -> None:
        self.kind, self.left, self.folder, self.armed = kind, after, folder, False
        self._launch, self._open, self._fsync = Trainer._launch, os.open, os.fsync
        self.blocks = 0

    def install(self) -> None:
        """Into this process, which is a child and ends soon."""
        mock.patch.object(Trainer, "_launch", self.launched()).start()
        mock.patch.object(os, "open", self.opened).start()
        mock.patch.object(os, "fsync", self.synced).start()

    def launched(self) -> Callable[..., Any]:
        def launch(trainer: Trainer, *given: Any) -> Any:
            self.blocks += 1
            self.armed = self.blocks > 1
            if self.armed and self.kind == "deleted folder" and self.due():
                shutil.rmtree(self.folder)
            if self.armed and self.kind == "short write" and self.due():
                resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))  # the system cuts writes here
            return self._launch(trainer, *given)

        return launch

    def due(self) -> bool:
        self.left -= 1
        return self.left < 0

    def opened(self, path: Any, flags: int, *rest: Any, **named: Any) -> int:
        number = {"full on open": errno.ENOSPC, "read-only": errno.EROFS, "input/output error": errno.EIO}.get(
            self.kind
        )
        if number is not None and self.armed and flags & WRITES and self.due():
            raise OSError(number, os.strerror(number), str(path))
        return self._open(path, flags, *rest, **named)

    def synced(self, descriptor: int) -> None:
        if self.kind == "full on fsync" and self.armed and self.due():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._fsync(descriptor)


def check(case: Case) -> None:
    source, folder = case.random, case.folder
    kind = KINDS[case.number % len(KINDS)]
    expected, _ = commands.whole("plain")
    commands.write_config(folder, "plain")
    broken = Broken(kind, source.randrange(4), folder / "run")
    code = children.run(
        lambda: commands.train("experiment.toml", "run", before=broken.install), folder, folder / "said"
    )
    said = (folder / "said").read_text()
    assert code == 2, f"{kind}: exit code {code}: {said[-500:]}"
    assert "Traceback" not in said
    sentences = [line for line in said.splitlines() if line.startswith("tapehead: ")]
    assert len(sentences) == 1, f"{kind}: {said[-500:]}"
    if kind != "deleted folder":
        found = checkpoint.load_newest(folder / "run" / "checkpoints")
        assert found is not None, f"{kind}: no checkpoint is left"
        assert not [path for path in (folder / "run" / "checkpoints").iterdir() if not path.name.startswith("step-")]
    code = children.run(lambda: commands.train("experiment.toml", "run"), folder, folder / "said")
    assert code == 0, (folder / "said").read_text()[-500:]
    commands.assert_equal(outcome(folder / "run"), expected)


FAULT = Fault(
    number=3,
    title="disk full, read-only folder, deleted folder, input/output error, short write",
    promise="one clear sentence, exit code 2, the last good checkpoint intact, and the same bits afterwards",
    counted="faults",
    full=36,
    quick=3,
    chunk=6,
    check=check,
    needs=("numba", "tyro", "rich"),
)
