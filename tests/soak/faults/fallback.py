"""5: the newest checkpoints of a run are damaged."""

import shutil

from damage import HARMS
from example_checkpoint import FILES, assert_same, example

from soak.fault import Case, Fault
from tapehead.experiment import checkpoint

SAVED = 5


def check(case: Case) -> None:
    source, folder = case.random, case.folder / "checkpoints"
    for step in range(1, SAVED + 1):
        checkpoint.save(folder, example(step), keep=SAVED)
    damaged = source.randrange(1, SAVED)
    for path in checkpoint.folders(folder)[:damaged]:
        name = source.choice((*FILES, "all"))
        if name == "all":
            shutil.rmtree(path)
            path.mkdir()
        else:
            (path / name).write_bytes(source.choice(HARMS)((path / name).read_bytes(), source))
    said: list[str] = []
    found = checkpoint.load_newest(folder, tell=said.append)
    assert found is not None
    assert_same(found, example(SAVED - damaged))
    assert len(said) == damaged
    for step, sentence in zip(range(SAVED, SAVED - damaged, -1), said, strict=True):
        assert f"step-{step:09d}" in sentence, sentence
        assert f"taking step-{SAVED - damaged:09d}" in sentence, sentence


FAULT = Fault(
    number=5,
    title="the newest checkpoints damaged",
    promise="the newest good one is taken, and every refused one is named",
    counted="runs",
    full=100,
    quick=20,
    chunk=100,
    check=check,
)
