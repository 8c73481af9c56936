"""The paper's formulas once more, in float64 loops over plain arrays, written without looking at the package.

Legend: N slots, M width, H heads, r shift range. Nothing here is batched: one memory, one sequence, one machine.
"""

import math

import numpy as np


def read(memory, weighting):
    """Eq. 2."""
    slots, width = memory.shape
    return np.array([sum(weighting[i] * memory[i, c] for i in range(slots)) for c in range(width)])


def erase(memory, weightings, erases):
    """Eq. 3, head after head."""
    out = memory.astype(np.float64)
    for w, e in zip(weightings, erases, strict=True):
        for i in range(out.shape[0]):
            for c in range(out.shape[1]):
                out[i, c] = out[i, c] * (1 - w[i] * e[c])
    return out


def add(memory, weightings, adds):
    """Eq. 4, head after head."""
    out = memory.astype(np.float64)
    for w, a in zip(weightings, adds, strict=True):
        for i in range(out.shape[0]):
            for c in range(out.shape[1]):
                out[i, c] = out[i, c] + w[i] * a[c]
    return out


def cosine(u, v):
    """Eq. 6; nothing is similar to a zero vector."""
    norms = math.sqrt(sum(float(x) ** 2 for x in u)) * math.sqrt(sum(float(x) ** 2 for x in v))
    return 0.0 if norms == 0 else sum(float(x) * float(y) for x, y in zip(u, v, strict=True)) / norms


def softmax(values):
    top = max(values)
    exps = [math.exp(v - top) for v in values]
    return np.array([e / math.fsum(exps) for e in exps])


def content(key, strength, memory):
    """Eq. 5."""
    return softmax([strength * cosine(key, row) for row in memory])


def interpolate(gate, new, previous):
    """Eq. 7."""
    return np.array([gate * c + (1 - gate) * p for c, p in zip(new, previous, strict=True)])


def move(weighting, distribution):
    """Eq. 8: `distribution` maps an integer shift to its weight."""
    slots = len(weighting)
    out = np.zeros(slots)
    for by, weight in distribution.items():
        for i in range(slots):
            out[(i + by) % slots] += weighting[i] * weight
    return out


def shift(weighting, shifts):
    r = len(shifts) // 2
    return move(weighting, {j - r: weight for j, weight in enumerate(shifts)})


def scalar_shift(weighting, amount):
    low = math.floor(amount)
    return move(weighting, {low: 1 - (amount - low), low + 1: amount - low})


def sharpen(weighting, gamma):
    """Eq. 9. Divided by the largest first, which changes nothing but keeps the powers in range."""
    top = max(weighting)
    powers = [(w / top) ** gamma for w in weighting]
    return np.array([p / math.fsum(powers) for p in powers])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return float(np.log1p(np.exp(x)))


def lstm_step(x, hidden, cell, weight, bias):
    """Gates input, forget, candidate, output; weight acts on [x; hidden]."""
    size = len(hidden)
    gates = weight @ np.concatenate([x, hidden]) + bias
    i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


class Machine:
    """A Neural Turing Machine at the start of a sequence; `step` takes one input and returns the logits.

    Its parameters are those of a `state_dict`, in float64. The options it knows are arguments.
    """

    def __init__(
        self,
        parameters,
        *,
        controller="lstm",
        layers=1,
        size=5,
        reads=1,
        writes=1,
        slots=7,
        width=3,
        shift="softmax",
        shift_range=1,
        order="write_then_read",
        start=1e-6,
        write_gate=False,
        key="linear",
        add="linear",
        clip=None,
    ):
        self.p = {name: np.asarray(value, dtype=np.float64) for name, value in parameters.items()}
        self.controller, self.layers, self.width = controller, layers, width
        self.shift, self.range, self.order, self.clip = shift, shift_range, order, clip
        self.write_gate = write_gate
        squash = {"linear": lambda v: v, "tanh": np.tanh, "sigmoid": sigmoid}
        self.squash_key, self.squash_add = squash[key], squash[add]
        self.memory = np.full((slots, width), start)
        self.read_weightings = [np.eye(slots)[0] for _ in range(reads)]
        self.write_weightings = [np.eye(slots)[0] for _ in range(writes)]
        self.reads = [np.zeros(width) for _ in range(reads)]
        self.hidden = [np.zeros(size) for _ in range(layers)]
        self.cell = [np.zeros(size) for _ in range(layers)]

    def _control(self, x):
        below = np.concatenate([x, *self.reads])
        for layer in range(self.layers):
            weight, bias = self.p[f"controller.weight_{layer}"], self.p[f"controller.bias_{layer}"]
            if self.controller == "lstm":
                below, self.cell[layer] = lstm_step(below, self.hidden[layer], self.cell[layer], weight, bias)
                self.hidden[layer] = below
            else:
                below = np.tanh(weight @ below + bias)
        return below

    def _take(self, count):
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def _take_addressing(self):
        key, strength, gate = (
            self.squash_key(self._take(self.width)),
            softplus(self._take(1)[0]),
            sigmoid(self._take(1)[0]),
        )
        if self.shift == "softmax":
            moves = {j - self.range: w for j, w in enumerate(softmax(self._take(2 * self.range + 1)))}
        else:
            amount = self.range * math.tanh(self._take(1)[0])
            moves = {
                math.floor(amount): 1 - (amount - math.floor(amount)),
                math.floor(amount) + 1: amount - math.floor(amount),
            }
        return key, strength, gate, moves, 1 + softplus(self._take(1)[0])

    def _address(self, ask, memory, previous):
        key, strength, gate, moves, gamma = ask
        return sharpen(move(interpolate(gate, content(key, strength, memory), previous), moves), gamma)

    def step(self, x):
        hidden = self._control(x)
        self.rest = self.p["interface.weight"] @ hidden + self.p["interface.bias"]
        if self.clip is not None:
            self.rest = np.clip(self.rest, -self.clip, self.clip)
        read_asks = [self._take_addressing() for _ in self.reads]
        write_asks, erases, adds, gates = [], [], [], []
        for _ in self.write_weightings:
            write_asks.append(self._take_addressing())
            erases.append(sigmoid(self._take(self.width)))
            adds.append(self.squash_add(self._take(self.width)))
            gates.append(sigmoid(self._take(1)[0]) if self.write_gate else 1.0)
        assert len(self.rest) == 0
        old = self.memory
        self.write_weightings = [
            self._address(a, old, w) for a, w in zip(write_asks, self.write_weightings, strict=True)
        ]
        strokes = [g * w for g, w in zip(gates, self.write_weightings, strict=True)]
        self.memory = add(erase(old, strokes, erases), strokes, adds)
        seen = self.memory if self.order == "write_then_read" else old
        self.read_weightings = [self._address(a, seen, w) for a, w in zip(read_asks, self.read_weightings, strict=True)]
        self.reads = [read(seen, w) for w in self.read_weightings]
        return self.p["output.weight"] @ np.concatenate([hidden, *self.reads]) + self.p["output.bias"]
