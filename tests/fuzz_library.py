"""Calls public functions with wrong arguments: `python fuzz_library.py SEED CALLS` prints what went wrong, as JSON.

A call starts from valid arguments, of which up to two are replaced by a stranger. It may return finite numbers, or
raise a ValueError or TypeError of one sentence that names an argument. Run in a process of its own, because a wrong
call could also end that.
"""

import json
import math
import random
import sys
import warnings

import numpy as np
import torch

import tapehead
from tapehead import equations

OPTIONS = {"controller_size": 5, "memory_slots": 7, "memory_width": 3}
# What a sentence may say for an argument; `what` is shown, as a folder or a name.
NAMES = {
    "x": ("input",),
    "name": ("task",),
    "part": ("state.",),
    "what": ("run", "machine", "str"),
    "params": ("param",),
}


def strangers() -> list:
    z = torch.zeros(3, 2, 4)
    numbers = [True, -1, 0, 1, 3, 2.5, -0.5, math.nan, math.inf, 1e308, 10**12, 2**64, 10**400]
    numpy = [np.float32(1.5), np.int64(3), np.zeros(2), np.ones((3, 2, 4), np.float32)]
    words = ["x", "", b"x", "meta", "cuda:99", torch.float16, torch.int64]
    others = [
        None,
        [],
        (),
        {},
        [1, 2],
        (1, 2),
        (2, 1),
        [None] * 6,
        {"memory": z},
        object(),
        int,
        range(0),
        range(10**13),
    ]
    sizes = [z, z[0], z[0, 0], z[:0], z[:, :0], z[..., :0], z[..., :3]]
    small = [torch.tensor(1.0), torch.tensor([2, 3]), torch.tensor([-9, 99])]
    types = [z.double(), z.half(), z.bfloat16(), z.int(), z.bool(), z.to(torch.complex64), z.clone().requires_grad_()]
    layouts = [z.to_sparse(), z[0].to_sparse_csr(), z.to("meta"), torch.nested.nested_tensor([z[0], z[1, :1]])]
    layouts += [
        torch.quantize_per_tensor(z, 0.1, 0, torch.qint8),
        torch._neg_view(z),
        torch._efficientzerotensor(3, 2, 4),
    ]
    return numbers + numpy + words + others + sizes + small + types + layouts + [[z, z], (z,) * 6]


def targets() -> list:
    """Functions with arguments that they take."""
    ntm = {b: tapehead.NTM(4, 2, backend=b, **OPTIONS) for b in ("reference", "cpu")}
    cell, lstm = tapehead.NTMCell(4, 2, **OPTIONS), tapehead.PaperLSTM(4, 2, 5, 2)
    x, counts = torch.rand(3, 2, 4), torch.tensor([3, 2])
    task = tapehead.make_task("copy", length=3)
    grams = tapehead.make_task("ngrams", length=9)
    batch, seen = (t.sample(tapehead.stream(0, "fuzz", 0), batch_size=2) for t in (task, grams))
    logits, gram_logits = torch.randn(batch.targets.shape), torch.randn(seen.targets.shape)
    memory, keys = torch.rand(2, 7, 3), torch.rand(2, 1, 3)
    w, one = torch.softmax(torch.rand(2, 1, 7), -1), torch.rand(2, 1)
    made = {"input_size": 4, "output_size": 2, "batch_first": False, "device": None, "dtype": None}
    machine = made | OPTIONS | {"backend": "auto"} | vars(ntm["cpu"].config)
    machine = {key: value for key, value in machine.items() if key != "spec"}
    call = {"x": x, "lengths": counts}
    scored = {"logits": logits, "targets": batch.targets, "mask": batch.mask}
    weight = torch.nn.Parameter(torch.ones(3))

    def step(params, lr, clip):
        optimiser = tapehead.RMSpropGraves(params, lr, clip=clip)
        weight.grad = torch.ones(3)
        optimiser.step()
        return weight

    def state_of(model, place):
        """A call with one part of the state replaced."""
        names = type(model.initial_state(2))._fields

        def run(x, part):
            return model(x, model.initial_state(2)._replace(**{names[place % len(names)]: part}))

        return run

    found = [
        (tapehead.NTM, machine),
        (tapehead.NTMCell, {k: v for k, v in machine.items() if k not in ("backend", "batch_first")}),
        (tapehead.PaperLSTM, made | {"hidden_size": 5, "num_layers": 2}),
        (cell, {"x": x[0], "state": cell.initial_state(2)}),
        (lstm, call | {"state": lstm.initial_state(2)}),
        (tapehead.make_task, {"name": "copy", "length": 3, "width": 4, "paper_channels": False}),
        (tapehead.make_task, {"name": "copy", "density": (0.2, 0.5), "blanks": 0.1}),
        (tapehead.make_task, {"name": "repeat-copy", "length": 3, "repeats": 2, "width": 4, "count": "pulses"}),
        (tapehead.make_task, {"name": "associative-recall", "items": 3, "item_length": 2, "width": 4}),
        (tapehead.make_task, {"name": "ngrams", "length": 9, "order": 3, "scored": "all"}),
        (tapehead.make_task, {"name": "priority-sort", "items": 4, "outputs": 3, "width": 4}),
        (task.sample, {"stream": tapehead.stream(0, "fuzz", 0), "batch_size": 2, "length": 3}),
        (tapehead.stream, {"seed": 0, "name": "fuzz", "step": 0, "device": None}),
        (tapehead.bits_per_sequence, scored),
        (tapehead.wrong_bits, scored),
        (tapehead.ngram_gap, {"logits": gram_logits, "batch": seen, "order": 6}),
        (step, {"params": [weight], "lr": 1e-4, "clip": 10.0}),
        (tapehead.load, {"what": "copy-ntm-lstm"}),
        (equations.read, {"memory": memory, "weighting": w}),
        (equations.erase, {"memory": memory, "weighting": w, "erase": keys}),
        (equations.add, {"memory": memory, "weighting": w, "add": keys}),
        (equations.cosine_similarity, {"keys": keys, "memory": memory}),
        (equations.content_weighting, {"keys": keys, "strengths": one, "memory": memory}),
        (equations.interpolate, {"gate": one, "content": w, "previous": w}),
        (equations.shift, {"weighting": w, "shifts": torch.softmax(keys, -1)}),
        (equations.scalar_shift, {"weighting": w, "amount": one}),
        (equations.sharpen, {"weighting": w, "gamma": 1 + one}),
        (equations.bayes_ngram, {"ones": torch.tensor([1, 2]), "zeros": torch.tensor([0, 5])}),
    ]  # fmt: skip
    for model in ntm.values():
        found.append((model, call | {"state": model.initial_state(2), "slots": counts, "return_trace": True}))
        found.append((model.with_memory, {"slots": 9}))
        found += [(state_of(model, place), {"x": x, "part": model.initial_state(2)[place]}) for place in range(6)]
    return found


def numbers(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from numbers(part)


def complaint(function, arguments) -> str | None:
    """What is wrong with the outcome of a call, if anything is."""
    try:
        with torch.set_grad_enabled(random.random() < 0.5):
            result = function(**arguments)
    except (ValueError, TypeError) as error:
        text = str(error)
        names = [word for name in arguments for word in (name, *NAMES.get(name, ()))] + ["the sizes given"]
        if "\n" in text or len(text) > 400:
            return f"not one sentence: {text[:200]}"
        return None if any(name in text for name in names) else f"no argument is named: {text}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finite = all(bool(torch.isfinite(part.detach()).all()) for part in numbers(result))
    return None if finite else "returned numbers that are not finite"


def described(value) -> str:
    if isinstance(value, torch.Tensor) and not value.is_nested:
        return f"{value.dtype} {tuple(value.shape)} {value.layout} {value.device}"
    return repr(value)[:60]


def main(seed: int, calls: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "optimizer contains a parameter group with duplicate")
    functions = targets()
    with warnings.catch_warnings():  # torch calls nested, quantised and CSR tensors prototypes
        warnings.simplefilter("ignore")
        pool = strangers()
    found = []
    for number in range(calls):
        function, valid = functions[number % len(functions)]
        wrong = random.sample(sorted(valid), k=min(len(valid), random.choice((1, 1, 2))))
        arguments = dict(valid) | {name: random.choice(pool) for name in wrong}
        word = getattr(function, "__qualname__", type(function).__name__)
        print(word, {name: described(arguments[name]) for name in wrong}, file=sys.stderr, flush=True)
        if trouble := complaint(function, arguments):
            found.append([word, {name: described(arguments[name]) for name in wrong}, trouble])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
