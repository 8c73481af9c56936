"""The formulas of Graves et al. (2016), and of Csordas and Schmidhuber (2019), in float64 loops over plain lists,
written without looking at the package.

Legend: N slots, M width, R read heads. Nothing here is batched: one memory, one sequence, one machine.
"""

import math

import numpy as np
from oracles import cosine, lstm_step, sigmoid, softmax, softplus


def retention(free_gates, read_weightings):
    psi = []
    for i in range(len(read_weightings[0])):
        kept = 1.0
        for f, w in zip(free_gates, read_weightings, strict=True):
            kept *= 1 - f * w[i]
        psi.append(kept)
    return np.array(psi)


def usage(before, written, psi):
    return np.array([(u + w - u * w) * p for u, w, p in zip(before, written, psi, strict=True)])


def allocation(u):
    """The free list by selection: the least used slot that is left, the first of equal ones."""
    left, given, product = list(range(len(u))), np.zeros(len(u)), 1.0
    while left:
        least = left[0]
        for i in left:
            if u[i] < u[least]:
                least = i
        left.remove(least)
        given[least] = (1 - u[least]) * product
        product *= u[least]
    return given


def write_weighting(a, c, allocation_gate, write_gate):
    return np.array([write_gate * (allocation_gate * x + (1 - allocation_gate) * y) for x, y in zip(a, c, strict=True)])


def link(before, p, w):
    slots = len(w)
    after = np.zeros((slots, slots))
    for i in range(slots):
        for j in range(slots):
            if i != j:
                after[i, j] = (1 - w[i] - w[j]) * before[i, j] + w[i] * p[j]
    return after


def precedence(before, w):
    total = math.fsum(w)
    return np.array([(1 - total) * p + x for p, x in zip(before, w, strict=True)])


def forward(links, w):
    slots = len(w)
    return np.array([math.fsum(links[i, j] * w[j] for j in range(slots)) for i in range(slots)])


def backward(links, w):
    slots = len(w)
    return np.array([math.fsum(links[j, i] * w[j] for j in range(slots)) for i in range(slots)])


def read_weighting(b, c, f, modes):
    return np.array([modes[0] * x + modes[1] * y + modes[2] * z for x, y, z in zip(b, c, f, strict=True)])


def masked_similarity(key, mask, memory):
    return np.array([cosine(np.array(key) * mask, np.array(row) * mask) for row in memory])


def deallocate(memory, psi):
    return np.array([[psi[i] * x for x in row] for i, row in enumerate(memory)])


def sharpen_link(d, sharpness):
    powers = [(x + 1e-6) ** sharpness for x in d]
    return np.array([p / math.fsum(powers) for p in powers])


class Machine:
    """A Differentiable Neural Computer at the start of a sequence; `step` takes one input and returns the logits.

    Its parameters are those of a `state_dict`, in float64. The options it knows are arguments.
    """

    def __init__(
        self,
        parameters,
        *,
        controller="lstm",
        controller_layers=1,
        controller_size=5,
        read_heads=2,
        memory_slots=6,
        memory_width=3,
        strength="oneplus",
        masked_content=False,
        deallocation=False,
        link_sharpness=False,
    ):
        self.p = {name: np.asarray(value, dtype=np.float64) for name, value in parameters.items()}
        self.controller, self.layers, self.width, self.strength = controller, controller_layers, memory_width, strength
        self.masked, self.forgets, self.sharpens = masked_content, deallocation, link_sharpness
        self.memory = np.zeros((memory_slots, memory_width))
        self.usage, self.precedence = np.zeros(memory_slots), np.zeros(memory_slots)
        self.written, self.links = np.zeros(memory_slots), np.zeros((memory_slots, memory_slots))
        self.read_weightings = [np.zeros(memory_slots) for _ in range(read_heads)]
        self.reads = [np.zeros(memory_width) for _ in range(read_heads)]
        self.hidden = [np.zeros(controller_size) for _ in range(controller_layers)]
        self.cell = [np.zeros(controller_size) for _ in range(controller_layers)]

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

    def _take_strength(self):
        return softplus(self._take(1)[0]) + (1 if self.strength == "oneplus" else 0)

    def _take_read_head(self):
        ask = {"key": self._take(self.width), "strength": self._take_strength(), "free": sigmoid(self._take(1)[0])}
        ask["modes"] = softmax(self._take(3))
        ask["mask"] = sigmoid(self._take(self.width)) if self.masked else np.ones(self.width)
        ask["sharpness"] = [1 + softplus(x) for x in self._take(2)] if self.sharpens else None
        return ask

    def _take_write_head(self):
        ask = {"key": self._take(self.width), "strength": self._take_strength()}
        ask |= {"erase": sigmoid(self._take(self.width)), "add": self._take(self.width)}
        ask |= {"allocation": sigmoid(self._take(1)[0]), "write": sigmoid(self._take(1)[0])}
        ask["mask"] = sigmoid(self._take(self.width)) if self.masked else np.ones(self.width)
        return ask

    def _content(self, ask):
        return softmax(ask["strength"] * masked_similarity(ask["key"], ask["mask"], self.memory))

    def _write(self, ask, psi):
        w = write_weighting(allocation(self.usage), self._content(ask), ask["allocation"], ask["write"])
        memory = deallocate(self.memory, psi) if self.forgets else self.memory
        after = np.zeros_like(memory)
        for i in range(memory.shape[0]):
            for c in range(memory.shape[1]):
                after[i, c] = memory[i, c] * (1 - w[i] * ask["erase"][c]) + w[i] * ask["add"][c]
        self.links = link(self.links, self.precedence, w)
        self.precedence = precedence(self.precedence, w)
        self.memory, self.written = after, w

    def _read(self, ask, previous):
        f, b = forward(self.links, previous), backward(self.links, previous)
        if self.sharpens:
            f, b = (sharpen_link(d, s) for d, s in zip((f, b), ask["sharpness"], strict=True))
        return read_weighting(b, self._content(ask), f, ask["modes"])

    def step(self, x):
        hidden = self._control(x)
        self.rest = self.p["interface.weight"] @ hidden + self.p["interface.bias"]
        reading = [self._take_read_head() for _ in self.reads]
        writing = self._take_write_head()
        assert len(self.rest) == 0
        psi = retention([ask["free"] for ask in reading], self.read_weightings)
        self.usage = usage(self.usage, self.written, psi)
        self._write(writing, psi)
        self.read_weightings = [self._read(a, w) for a, w in zip(reading, self.read_weightings, strict=True)]
        self.reads = [
            np.array([math.fsum(w[i] * self.memory[i, c] for i in range(len(w))) for c in range(self.width)])
            for w in self.read_weightings
        ]
        return self.p["output.weight"] @ np.concatenate([hidden, *self.reads]) + self.p["output.bias"]
