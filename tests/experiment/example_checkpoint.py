"""A small checkpoint to save, damage and forge."""

import torch

from tapehead.experiment.checkpoint import MANIFEST, Checkpoint

FILES = ("metrics.jsonl", "state.json", "state.safetensors", MANIFEST)


def example(step):
    """A checkpoint whose every part depends on its step."""
    tensors = {
        "weights": torch.arange(6.0).view(2, 3) + step,
        "active": torch.tensor([True, step % 2 == 0]),
        "recent": torch.full((2,), float("inf"), dtype=torch.float64),
        "applied": torch.tensor([step, -step]),
    }
    return Checkpoint(step, tensors, {"experiment": "abc", "updates": step}, {"metrics.jsonl": b'{"bits": 1}\n' * step})


def assert_same(found, wanted):
    assert found.step == wanted.step
    assert found.facts == wanted.facts
    assert found.files == wanted.files
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensor in wanted.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)
