import dataclasses
import re
import sysconfig
from pathlib import Path

import pytest
import torch
from task_checks import check_addressing, check_form, rows_of

from tapehead.losses import CATEGORICAL
from tapehead.streams import stream
from tapehead.tasks import make_task, text


def library(part):
    """The text, read another way."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(path.name for path in folder.iterdir() if path.suffix == ".py")
    held_out = names[9::10]
    return b"".join((folder / name).read_bytes() for name in names if (name in held_out) == (part == "held-out"))


@pytest.mark.parametrize("part", ["training", "held-out"])
@pytest.mark.parametrize("length", [(1, 40), 30])
def test_sequences_are_pieces_of_the_library(part, length):
    task = make_task("text", length=length, part=part)
    batch = task.sample(stream(3, "t", 0), batch_size=20)
    check_form(task, batch, (), 20)
    whole = library(part)
    for inputs, targets, mask in rows_of(batch):
        said = bytes(row.index(1.0) for row in targets)
        assert said in whole
        assert all(sum(row) == 1 for row in targets)
        assert inputs == [[0.0] * 256, *targets[:-1]]
        assert mask == [1.0] * len(said)


def test_places_are_spread_over_the_text():
    task = make_task("text", length=8)
    batch = task.sample(stream(range(20), "t", 0), batch_size=20)
    pieces = {tuple(row) for row in batch.targets.argmax(-1).movedim(-1, -2).flatten(0, 1).tolist()}
    assert len(pieces) > 300
    assert len(text.text_bytes("training", torch.device("cpu"))) == len(library("training"))


def test_the_same_however_it_is_asked():
    check_addressing(make_task("text", length=(1, 12)))
    assert make_task("text").loss is CATEGORICAL
    assert make_task("text", length=(10, 20)).chance_bits == 120


def test_an_experiment_names_its_text_and_another_text_is_refused():
    task = make_task("text")
    assert re.fullmatch(r"python-3\.\d+\.\d+\S*-[0-9a-f]{12}", task.text)
    assert make_task("text", text=task.text) == task
    other = dataclasses.replace(task, text="python-2.7.18-000000000000")
    assert other.input_size == 256  # it can be read, but not drawn from
    with pytest.raises(ValueError, match=r"the text is 'python-2\.7\.18-000000000000', but this Python has 'python-3"):
        other.sample(stream(0, "t", 0), batch_size=1)
    with pytest.raises(ValueError, match="give a smaller one"):
        task.sample(stream(0, "t", 0), batch_size=1, length=len(library("training")) + 1)


def test_a_python_without_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(text.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    text._modules.cache_clear()
    with pytest.raises(ValueError, match="has no sources"):
        text._modules()
