"""Controllers: the built-in ones have the parameters that they always had; one from outside does all that they do."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import tapehead
from tapehead.experiment.config import Experiment
from tapehead.experiment.loop import Trainer
from tapehead.experiment.parts import Model, Training
from tapehead.kernels import dispatch
from tapehead.kernels.ntm_scan.controllers import Controller, linear
from tapehead.kernels.ntm_scan.spec import ScanSpec
from tapehead.models.cell import NTMCell
from tapehead.models.ntm import NTM
from tapehead.registry import CONTROLLERS
from tapehead.tasks.copy import Copy

HERE = f"{__name__}:GRUController"
SIZES: dict[str, Any] = {"controller_size": 4, "memory_slots": 5, "memory_width": 3}


class GRUController(Controller):
    """One layer of gated recurrent units, whose biases start at `forget_bias`. The cell is not used."""

    def parameter_shapes(self, spec: ScanSpec) -> dict[str, tuple[int, ...]]:
        c, below = spec.controller_size, spec.input_size + spec.read_heads * spec.memory_width
        return {"gates": (2 * c, below + c), "gate_bias": (2 * c,), "candidate": (c, below + c), "bias": (c,)}

    def recurrent_layers(self, spec: ScanSpec) -> int:
        return 1

    def initial_bias(self, spec: ScanSpec, name: str, bias: Tensor, forget_bias: float) -> None:
        if name == "gate_bias":
            bias.fill_(forget_bias)

    def step(
        self, spec: ScanSpec, parameters: dict[str, Tensor], inputs: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        h = hidden[..., 0, :]
        gates = torch.sigmoid(linear(torch.cat([inputs, h], -1), parameters["gates"], parameters["gate_bias"]))
        reset, keep = gates.chunk(2, dim=-1)
        seen = torch.cat([inputs, reset * h], dim=-1)
        h = keep * h + (1 - keep) * torch.tanh(linear(seen, parameters["candidate"], parameters["bias"]))
        return h, h.unsqueeze(-2), cell


class WideController(GRUController):
    """Returns an output of another size."""

    def step(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        output, hidden, cell = super().step(*arguments)
        return torch.cat([output, output], dim=-1), hidden, cell


def test_built_in_parameters_are_where_they_always_were() -> None:
    """The flat order is the format of every trained machine."""
    shapes = ScanSpec(
        input_size=3, output_size=2, controller_size=7, controller_layers=2, memory_width=5
    ).parameter_shapes
    assert shapes == {
        "controller.weight_0": (28, 3 + 5 + 7), "controller.bias_0": (28,),
        "controller.weight_1": (28, 14), "controller.bias_1": (28,),
        "interface.weight": (11 + 21, 7), "interface.bias": (11 + 21,),
        "output.weight": (2, 12), "output.bias": (2,),
    }  # fmt: skip
    assert list(shapes)[:4] == [f"controller.{name}_{layer}" for layer in (0, 1) for name in ("weight", "bias")]
    forward = ScanSpec(input_size=3, output_size=2, controller="feedforward", controller_size=7, controller_layers=2)
    assert forward.parameter_shapes["controller.weight_0"] == (7, 23)
    assert forward.parameter_shapes["controller.weight_1"] == (7, 7)
    assert forward.recurrent_layers == 0


def test_the_interface_is_laid_out_in_order() -> None:
    spec = ScanSpec(input_size=1, output_size=1, read_heads=2, write_heads=1, memory_width=2, write_gate=True)
    addressing = ["key"] * 2 + ["strength", "gate"] + ["shift"] * 3 + ["sharpening"]
    writing = [*addressing, "erase", "erase", "add", "add", "write_gate"]
    assert spec.interface.part_names() == addressing * 2 + writing
    vector = torch.arange(spec.interface.size)
    reading, written = spec.interface.heads(vector)
    assert spec.interface.read.split(reading)["shift"].tolist() == [[4, 5, 6], [12, 13, 14]]
    assert spec.interface.write.split(written)["write_gate"].tolist() == [[spec.interface.size - 1]]
    assert vector[16:][spec.interface.write["add"]].tolist() == [26, 27]


def test_names_of_one_controller_are_one_name() -> None:
    where = "tapehead.kernels.ntm_scan.controllers:LSTMController"
    assert NTM(2, 1, controller=where).config == NTM(2, 1).config
    assert ScanSpec(input_size=1, output_size=1, controller=where).controller == "lstm"


def test_an_outside_controller_runs_on_the_reference_alone() -> None:
    ntm = NTM(2, 1, controller=HERE, **SIZES)
    backend, reason = ntm.backend_and_reason()
    assert backend == "reference"
    assert "does not know controller" in reason
    assert HERE in reason
    with pytest.raises(ValueError, match="'cpu' cannot run this machine: the CPU kernel does not know controller"):
        NTM(2, 1, controller=HERE, backend="cpu", **SIZES)(torch.zeros(3, 1, 2))
    assert ScanSpec.from_json(ntm._spec.to_json()) == ntm._spec


def test_an_outside_controller_steps_as_it_scans() -> None:
    torch.manual_seed(0)
    ntm = NTM(2, 1, controller=HERE, dtype=torch.float64, **SIZES)
    cell = NTMCell(2, 1, controller=HERE, dtype=torch.float64, **SIZES)
    cell.load_state_dict(ntm.state_dict())
    assert bool((ntm.get_parameter("controller.gate_bias") == 1).all())
    x = torch.randn(4, 3, 2, dtype=torch.float64)
    y, state = ntm(x)
    carried, steps = None, []
    for now in x:
        out, carried = cell(now, carried)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps), y, rtol=0, atol=1e-15)
    assert carried is not None
    torch.testing.assert_close(carried.hidden, state.hidden, rtol=0, atol=1e-15)
    y.sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in ntm.parameters())


def experiment(**options: Any) -> Experiment:
    return Experiment(
        task=Copy(width=1, length=(1, 2)),
        model=Model(options={"controller": HERE, **SIZES, **options}),
        training=Training(episodes=200),
        seeds=(3, 4),
    )


def test_an_outside_controller_trains_and_resumes() -> None:
    """From the file form of the experiment, to the same bits."""
    straight = Trainer(experiment())
    straight.block()
    saved, updates, metrics = straight.tensors(), straight.updates, list(straight.metrics)
    saved = {name: tensor.clone() for name, tensor in saved.items()}
    straight.block()
    again = Trainer(Experiment.from_plain(json.loads(json.dumps(experiment().to_plain()))))
    again.restore(saved, updates, metrics)
    again.block()
    for name, tensor in straight.tensors().items():
        assert torch.equal(tensor, again.tensors()[name]), name
    assert not torch.equal(straight.tensors()["update.parameters"], saved["update.parameters"])
    assert straight.backend == "reference"


def test_a_registered_controller_is_kept_by_where_it_is() -> None:
    """The name that a decorator gave is unknown to a process that has not run it."""
    before = dict(CONTROLLERS._entries), dict(CONTROLLERS._registered)
    try:
        CONTROLLERS.register("gru-of-a-test")(GRUController)
        named = experiment(controller="gru-of-a-test")
        assert named.model.options["controller"] == HERE
        assert named.hash == experiment().hash
        assert NTM(2, 1, controller="gru-of-a-test", **SIZES).config.controller == HERE
    finally:
        CONTROLLERS._entries, CONTROLLERS._registered = before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lstn", "unknown controller 'lstn'.*'lstm'"),
        (f"{__name__}:Nothing", "is not there"),
        ("tapehead.losses:Binary", "is none: a controller is a subclass of tapehead.Controller"),
        (3, "controller is 3, but it must be a word"),
    ],
)
def test_what_is_no_controller_is_refused(name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NTM(2, 1, controller=name)


def test_a_step_of_the_wrong_size_is_refused() -> None:
    ntm = NTM(2, 1, controller=f"{__name__}:WideController", **SIZES)
    with pytest.raises(ValueError, match=r"returned an output of shape \(1, 1, 8\), but it must be \(1, 1, 4\)"):
        ntm(torch.zeros(2, 1, 2))


def test_every_controller_of_the_registry_is_one() -> None:
    for name in CONTROLLERS:
        spec = ScanSpec(input_size=1, output_size=1, controller=name)
        assert isinstance(spec.controller_kind, Controller)
        assert dispatch.fused("cpu").refusal(spec, torch.float32, torch.device("cpu")) is None
    assert tapehead.CONTROLLERS is CONTROLLERS
