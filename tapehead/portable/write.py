"""`tapehead.export_model`: a trained machine as a file for another program.

    onnx          a graph for onnxruntime and others; needs the extra: pip install tapehead[onnx]
    pt2           a program of torch.export, for torch without tapehead
    safetensors   named parameters, and the options in the header; tapehead.load reads it

Graphs take inputs [time, batch, I] and lengths [batch] and give logits [time, batch, O] and the final state, for any
time and batch. With `step` they are one step: inputs [batch, I] and the state in, logits and the state out; the state
at the start of a sequence is then in a file beside it, NAME.start.npz, one row of each part.
"""

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tapehead import checks, files
from tapehead.kernels.ntm_scan.contract import half_precision
from tapehead.models.cell import NTMCell
from tapehead.models.ntm import NTM
from tapehead.models.sequence import SequenceModel
from tapehead.portable.weights import weights_as_bytes

FORMATS = ("onnx", "pt2", "safetensors")
NEEDED = ("onnx", "onnxscript")
"""What torch's ONNX exporter imports."""


def export_model(
    model: SequenceModel | NTMCell, path: str | Path, format: str | None = None, *, step: bool = False
) -> list[Path]:
    """Write a machine to a file; its format is that of the file's name unless given. The files that are there now.

    Of an `NTMCell`, and with `step`, the graph is one step.
    """
    path = Path(path)
    format = checks.one_of("format", format or path.suffix.removeprefix("."), FORMATS)
    if format == "safetensors":
        if isinstance(model, NTMCell) or checks.flag("step", step):
            raise ValueError("step is for graphs, but safetensors holds parameters alone: export an NTM without it.")
        return _write({path: weights_as_bytes(model)})
    if not isinstance(model, NTM | NTMCell):
        raise ValueError(f"{type(model).__name__} has no graph for {format}, which NTM has: export safetensors.")
    dtype = next(model.parameters()).dtype
    if dtype not in checks.FLOATS:
        raise ValueError(half_precision(dtype))
    if format == "onnx":
        check_installed()
        if dtype != torch.float32:
            raise ValueError(
                f"the parameters are {dtype}, in which onnxruntime has no softplus: call .float(), or use pt2."
            )
    return _write_graph(model, path, format, step or isinstance(model, NTMCell))


def check_installed() -> None:
    """Refuse ONNX where the packages that torch exports it with are missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"ONNX needs {' and '.join(missing)}: install tapehead[onnx], or choose --format pt2.")


def _write_graph(model: NTM | NTMCell, path: Path, format: str, step: bool) -> list[Path]:
    from tapehead.portable.modules import PortableCell, PortableMachine  # loads the compiler's modules

    module = PortableCell(model) if step else PortableMachine(model)
    dtype = next(model.parameters()).dtype
    names = module.state_names
    if isinstance(module, PortableCell):
        rows = tuple(part.clone() for part in module.start(2))
        example: tuple[Tensor, ...] = (torch.zeros(2, model.input_size, dtype=dtype), *rows)
        shapes: Any = ({0: "batch"}, tuple({0: "batch"} for _ in names))
        inputs, outputs = ["inputs", *names], ["logits", *(f"next_{name}" for name in names)]
    else:
        example = (torch.zeros(3, 2, model.input_size, dtype=dtype), torch.tensor([3, 2]))
        shapes = ({0: "time", 1: "batch"}, {0: "batch"})
        inputs, outputs = ["inputs", "lengths"], ["logits", *names]
    graph = _graph(module.eval(), example, shapes, format, inputs, outputs)
    written = {path: graph}
    if isinstance(module, PortableCell):
        written[path.with_suffix(".start.npz")] = _start(module)
    return _write(written)


def _write(data: dict[Path, bytes]) -> list[Path]:
    for path, content in data.items():
        with files.writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, content)
    return list(data)


def _graph(
    module: nn.Module, example: tuple[Tensor, ...], shapes: Any, format: str, inputs: list[str], outputs: list[str]
) -> bytes:
    """The bytes of a graph whose named axes are free."""
    axes = {name: torch.export.Dim(name) for name in ("time", "batch")}
    free = tree_map(lambda name: axes[name], shapes)
    with torch.no_grad(), _quiet():
        if format == "pt2":
            stream = io.BytesIO()
            torch.export.save(torch.export.export(module, example, dynamic_shapes=free), stream)
            return stream.getvalue()
        names: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
        program = torch.onnx.export(module, example, dynamo=True, verbose=False, dynamic_shapes=free, **names)
    assert program is not None
    return bytes(program.model_proto.SerializeToString())


def _start(cell: Any) -> bytes:
    """The state at the start, one row of each part, for numpy."""
    stream = io.BytesIO()
    np.savez(stream, **{name: part[0].numpy() for name, part in zip(cell.state_names, cell.start(1), strict=True)})
    return stream.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' notes about packages that are not needed, and their own deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
