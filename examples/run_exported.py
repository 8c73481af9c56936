"""Run an exported machine without tapehead: with onnxruntime, or with torch alone.

    tapehead export copy-ntm-lstm --format onnx           # writes copy-ntm-lstm.onnx
    python examples/run_exported.py copy-ntm-lstm.onnx

    tapehead export copy-ntm-lstm --format pt2            # for torch
    python examples/run_exported.py copy-ntm-lstm.pt2

A machine that copies is shown random bits, then a mark, then nothing: its logits are to say the bits again.
"""

import argparse
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


def run_onnx(path: Path, inputs: Any, lengths: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return session.run(["logits"], {"inputs": inputs, "lengths": lengths})[0]


def run_pt2(path: Path, inputs: Any, lengths: Any) -> Any:
    import torch

    machine = torch.export.load(path).module()
    with torch.no_grad():
        logits, *_ = machine(torch.from_numpy(inputs), torch.from_numpy(lengths))
    return logits.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what tapehead export wrote: NAME.onnx or NAME.pt2")
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 20, 60], help="vectors to copy")
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    run = run_onnx if options.file.suffix == ".onnx" else run_pt2
    for length in options.lengths:  # one file for all of them
        inputs, bits = copy_task(length, options.batch, seed=length)
        lengths = np.full(options.batch, len(inputs), np.int64)
        logits = run(options.file, inputs, lengths)
        wrong = int(((logits[length + 1 :] > 0) != (bits > 0.5)).sum())
        print(f"length {length}: {wrong} of {bits.size} bits wrong")


if __name__ == "__main__":
    main()
