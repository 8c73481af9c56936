"""Machines of pytorch-ntm against a machine in numpy that was written from its equations, one sequence at a time."""

import numpy as np
import pytest
import torch

import tapehead
from tapehead.convert import from_pytorch_ntm

INPUTS, OUTPUTS, SIZE, LAYERS, SLOTS, WIDTH = 4, 3, 6, 2, 7, 5


def state_dict(heads=1, seed=0, prefix="ntm."):
    """Names and shapes as an EncapsulatedNTM saves them, with numbers large enough that every part matters."""
    source = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return 1.5 * torch.randn(*shape, generator=source, dtype=torch.float64) * shape[-1] ** -0.5

    found = {f"{prefix}controller.lstm_{kind}_bias": draw(LAYERS, 1, SIZE) for kind in "hc"}
    for layer in range(LAYERS):
        below = SIZE if layer else INPUTS + heads * WIDTH
        for name, shape in (("ih", (4 * SIZE, below)), ("hh", (4 * SIZE, SIZE))):
            found[f"{prefix}controller.lstm.weight_{name}_l{layer}"] = draw(*shape)
            found[f"{prefix}controller.lstm.bias_{name}_l{layer}"] = draw(4 * SIZE)
    memory = draw(SLOTS, WIDTH)
    found |= {"memory.mem_bias": memory, f"{prefix}memory.mem_bias": memory}
    for head in range(2 * heads):
        kind, rows = ("read", WIDTH + 6) if head % 2 == 0 else ("write", 3 * WIDTH + 6)
        found[f"{prefix}heads.{head}.fc_{kind}.weight"] = 3 * draw(rows, SIZE)
        found[f"{prefix}heads.{head}.fc_{kind}.bias"] = draw(rows)
        found[f"{prefix}heads.{head}.memory.mem_bias"] = memory
    found |= {f"{prefix}read{head}_bias": draw(1, WIDTH) for head in range(heads)}
    return found | {f"{prefix}fc.weight": draw(OUTPUTS, SIZE + heads * WIDTH), f"{prefix}fc.bias": draw(OUTPUTS)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Peer:
    """One sequence through pytorch-ntm's machine."""

    def __init__(self, given):
        self.p = {name.removeprefix("ntm."): value.numpy() for name, value in given.items()}
        self.memory, self.read = self.p["memory.mem_bias"].copy(), self.p["read0_bias"][0]
        self.hidden, self.cell = (
            self.p["controller.lstm_h_bias"][:, 0].copy(),
            self.p["controller.lstm_c_bias"][:, 0].copy(),
        )
        self.weightings = {"read": np.zeros(SLOTS), "write": np.zeros(SLOTS)}

    def step(self, x):
        below = np.concatenate([x, self.read])
        for layer in range(LAYERS):
            sums = sum(
                self.p[f"controller.lstm.weight_{kind}_l{layer}"] @ value
                + self.p[f"controller.lstm.bias_{kind}_l{layer}"]
                for kind, value in (("ih", below), ("hh", self.hidden[layer]))
            )
            enter, keep, new, leave = np.split(sums, 4)
            self.cell[layer] = sigmoid(keep) * self.cell[layer] + sigmoid(enter) * np.tanh(new)
            below = self.hidden[layer] = sigmoid(leave) * np.tanh(self.cell[layer])
        w, _ = self.place(0, "read", below)
        self.read = w @ self.memory
        w, rest = self.place(1, "write", below)
        erase, add = sigmoid(rest[:WIDTH]), rest[WIDTH:]
        self.memory = self.memory * (1 - np.outer(w, erase)) + np.outer(w, add)
        return sigmoid(self.p["fc.weight"] @ np.concatenate([below, self.read]) + self.p["fc.bias"])

    def place(self, number, kind, hidden):
        """The head's new weighting, and what its layer gives beyond the addressing."""
        raw = self.p[f"heads.{number}.fc_{kind}.weight"] @ hidden + self.p[f"heads.{number}.fc_{kind}.bias"]
        key, strength, gate = raw[:WIDTH], np.log1p(np.exp(raw[WIDTH])), sigmoid(raw[WIDTH + 1])
        shift = np.exp(raw[WIDTH + 2 : WIDTH + 5])
        shift /= shift.sum()
        gamma = 1 + np.log1p(np.exp(raw[WIDTH + 5]))
        likeness = self.memory @ key / (np.linalg.norm(self.memory, axis=1) * np.linalg.norm(key))
        content = np.exp(strength * likeness)
        mixed = gate * content / content.sum() + (1 - gate) * self.weightings[kind]
        moved = np.array([sum(shift[j] * mixed[(i + j - 1) % SLOTS] for j in range(3)) for i in range(SLOTS)])
        self.weightings[kind] = moved**gamma / (moved**gamma).sum()
        return self.weightings[kind], raw[WIDTH + 6 :]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("prefix", ["ntm.", ""])
def test_the_machine_is_the_peer(backend, prefix):
    """Outputs and the whole state of a sequence; errors seen: 6e-16."""
    given = state_dict(prefix=prefix)
    ntm, peer = from_pytorch_ntm(given), Peer(given)
    ntm.choose_backend(backend)
    x = torch.randn(12, 2, INPUTS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with torch.no_grad():
        y, state = ntm(x)
    expected = np.stack([peer.step(now) for now in x[:, 1].numpy()])
    assert np.abs(torch.sigmoid(y[:, 1]).numpy() - expected).max() < 1e-14
    weightings = [peer.weightings["read"][None], peer.weightings["write"][None]]
    final = [peer.memory, *weightings, peer.read[None], peer.hidden, peer.cell]
    for ours, theirs in zip(state, final, strict=True):
        assert np.abs(ours[1].numpy() - theirs).max() < 1e-14


def test_what_the_peer_trains_is_trained():
    ntm = tapehead.convert.from_pytorch_ntm(state_dict())
    ntm(torch.zeros(3, 2, INPUTS, dtype=torch.float64))[0].sum().backward()
    without = {name for name, parameter in ntm.named_parameters() if parameter.grad is None}
    assert without == {"initial.memory", "initial.reads"}
    assert not any(ntm.with_memory(9).get_parameter(name).requires_grad for name in without)
    assert (
        from_pytorch_ntm({name: value.float() for name, value in state_dict().items()}).output.bias.dtype
        == torch.float32
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: state_dict(heads=2), "has 4 heads, but only one read head and one write head"),
        (lambda given: {k: v for k, v in given.items() if "fc_write" not in k}, r"has no 'heads\.1\.fc_write\.weight'"),
        (lambda given: {}, r"has no 'memory\.mem_bias'.*not that of an EncapsulatedNTM"),
        (lambda given: given | {"ntm.fc.bias": torch.zeros(1, 3)}, r"fc\.bias has shape \(1, 3\).*1 dimensions"),
        (lambda given: given | {"ntm.fc.bias": torch.zeros(4)}, r"output\.bias the shape \(4,\).*\(3,\)"),
        (lambda given: given | {"ntm.fc.bias": None}, r"fc\.bias is of type NoneType"),
    ],
)
def test_other_state_dicts_are_refused(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_pytorch_ntm(change(state_dict()))
