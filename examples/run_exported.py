"""Run an exported machine without tapehead: with onnxruntime, or with torch alone.

    tapehead export copy-ntm-lstm --format onnx           # writes copy-ntm-lstm.onnx
    python examples/run_exported.py copy-ntm-lstm.onnx

    tapehead export copy-ntm-lstm --format pt2            # for torch
    python examples/run_exported.py copy-ntm-lstm.pt2

Both also run graphs of one step (tapehead export ... --step), whose state is passed from call to call.
A machine that copies is shown random bits, then a mark, then nothing: its logits are to say the bits again.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 8


def copy_task(length: int, batch: int, seed: int) -> tuple[Any, Any]:
    """Inputs [time, batch, 9] of float32, and the bits [length, batch, 8] that are to be said again."""
    bits = np.random.default_rng(seed).integers(0, 2, (length, batch, WIDTH)).astype(np.float32)
    inputs = np.zeros((2 * length + 1, batch, WIDTH + 1), np.float32)
    inputs[:length, :, :WIDTH] = bits
    inputs[length, :, WIDTH] = 1  # the mark
    return inputs, bits


def load_graph(path: Path) -> Callable[..., list[Any]]:
    """A graph as a function of arrays."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path))
        names = [each.name for each in session.get_inputs()]
        return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))

    import torch

    machine = torch.export.load(path).module()

    def run(*arrays: Any) -> list[Any]:
        with torch.no_grad():
            return [part.numpy() for part in machine(*map(torch.from_numpy, arrays))]

    return run


def run_whole(graph: Callable[..., list[Any]], inputs: Any) -> Any:
    """Logits of whole sequences in one call."""
    lengths = np.full(inputs.shape[1], len(inputs), np.int64)
    logits, *_state = graph(inputs, lengths)
    return logits


def run_steps(graph: Callable[..., list[Any]], start: Any, inputs: Any) -> Any:
    """Logits of a graph of one step, as where inputs arrive one by one; start: one row of each part of the state."""
    state = [np.repeat(start[name][None], inputs.shape[1], axis=0) for name in start.files]
    logits = []
    for now in inputs:
        given, *state = graph(now, *state)
        logits.append(given)
    return np.stack(logits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what tapehead export wrote: NAME.onnx or NAME.pt2")
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 20, 60], help="vectors to copy")
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    graph, start = load_graph(options.file), options.file.with_suffix(".start.npz")
    for length in options.lengths:  # one file for all of them
        inputs, bits = copy_task(length, options.batch, seed=length)
        logits = run_steps(graph, np.load(start), inputs) if start.exists() else run_whole(graph, inputs)
        wrong = int(((logits[length + 1 :] > 0) != (bits > 0.5)).sum())
        print(f"length {length}: {wrong} of {bits.size} bits wrong")


if __name__ == "__main__":
    main()
