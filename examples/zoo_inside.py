"""Look inside a trained machine: load it, run it on a longer tape, read the trace, draw its use of the memory.

python examples/zoo_inside.py --out figures
"""

import argparse
from pathlib import Path

import torch

import tapehead
from tapehead.figures import style
from tapehead.figures.memory import memory_use


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="copy-ntm-lstm", help="a machine that copies (see tapehead zoo list)")
    parser.add_argument("--length", type=int, default=200, help="vectors to copy; at most 20 in training")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="where the figure goes")
    options = parser.parse_args()
    card = tapehead.zoo.card(options.machine)
    machine = tapehead.load(options.machine)
    print(f"{card.name}: {card.parameters:,} parameters, solved after {card.solved_at:,} episodes")

    task = tapehead.make_task("copy")
    longer = machine.with_memory(slots=2 * options.length)  # the same parameters on a longer tape
    batch = task.sample(tapehead.stream(seed=0, name="inside", step=0), batch_size=1, length=options.length)
    with torch.no_grad():
        logits, _, trace = longer(batch.inputs, return_trace=True)
    wrong = int(task.loss.wrong(logits, batch.targets, batch.mask))
    print(f"length {options.length} on {longer.memory_slots} slots: {wrong} of {8 * options.length:,} bits wrong")

    writes = trace.write.weightings[: options.length, 0, 0].argmax(dim=-1)  # slots, one for each step of the input
    reads = trace.read.weightings[options.length + 1 :, 0, 0].argmax(dim=-1)
    print(f"the write head visits {len(writes.unique())} slots while the input comes in")
    moves = (reads[1:] - reads[:-1]) % longer.memory_slots
    by_one = ((moves == 1) | (moves == longer.memory_slots - 1)).float().mean()
    print(f"the read head moves by one slot at {by_one:.1%} of the steps of the answer")

    figure = memory_use(tapehead.RunView(task, machine, card.seed, metrics=[]))
    if figure is not None:
        for path in style.save(figure, options.out, "memory"):
            print(path)


if __name__ == "__main__":
    main()
