"""Run a model on sequences: its logits and its trace, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from tapehead.models.sequence import SequenceModel
from tapehead.streams import Stream, stream
from tapehead.tasks import Batch, Task


def source(task: Task) -> Stream:
    """The stream of the sequences in all figures: the same for every run of a task."""
    return stream(0, f"pictures/{task.name}", 0, device="cpu")


def run_model(model: SequenceModel, batch: Batch) -> Tensor:
    """Logits [T, B, O]."""
    return _run(model, batch, return_trace=False)[0]


def run_with_trace(model: SequenceModel, batch: Batch) -> tuple[Tensor, Any]:
    """Logits [T, B, O], and the trace of whatever kind the model has, its tensors where the model is."""
    return _run(model, batch, return_trace=True)


def _run(model: SequenceModel, batch: Batch, return_trace: bool) -> tuple[Tensor, Any]:
    device = next(model.parameters()).device
    x = batch.inputs.transpose(0, 1) if model.batch_first else batch.inputs
    with torch.no_grad():
        logits, _, *trace = model(x.to(device), None, batch.lengths.to(device), return_trace=return_trace)
    logits = logits.transpose(0, 1) if model.batch_first else logits
    return logits.float().cpu(), trace[0] if trace else None
