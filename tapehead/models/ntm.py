"""The Neural Turing Machine as torch modules: `NTM` over sequences, `NTMCell` for one step.

Both hold the same parameters under the same names, so a checkpoint of one loads into the other.
"""

import dataclasses
import math
from typing import Any, Self, get_type_hints

import torch
from torch import Tensor, nn

from tapehead import checks
from tapehead.kernels import dispatch
from tapehead.kernels.memory import in_one_piece
from tapehead.kernels.ntm_scan import reference
from tapehead.kernels.ntm_scan.contract import (
    CONTROLLER_PREFIX,
    ScanState,
    Trace,
    check_state,
    controller_name,
    half_precision,
    is_plain,
    tree_map,
)
from tapehead.losses import BINARY, Loss
from tapehead.models.config import NTMConfig
from tapehead.models.initial import initial_shapes, initial_state
from tapehead.models.sequence import DECIDED, SequenceModel, as_counts, named_state

MOST_STARTS = 4
"""Numbers of seeds and sequences for which a model keeps the start ready: a population, and groups of it."""

MOST_COUNTS = 64
"""Constant lengths and slots that a model keeps ready."""

NTMState = ScanState


class Machine(nn.Module):
    """The parameters of a machine and their start; shared by `NTM` and `NTMCell`."""

    def __init__(self, config: NTMConfig, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().__init__()
        device, dtype = checks.device(device), checks.floating(dtype, checks.FLOATS)
        self.config = config
        self.input_size, self.output_size = config.input_size, config.output_size
        self._spec = config.spec
        shapes = self._spec.parameter_shapes | initial_shapes(config)
        for name, shape in shapes.items():
            part, _, leaf = name.partition(".")
            if part not in self._modules:
                self.add_module(part, nn.Module())
            getattr(self, part).register_parameter(leaf, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._learned_start = tuple(initial_shapes(config))
        self._places = tuple(name.split(".") for name in self._spec.parameter_shapes)
        self.reset_parameters()
        self._join_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Weights uniform in +- 1 / sqrt(fan-in), biases zero but for those that the config sets."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.startswith("initial."):
                    parameter.fill_(self.config.initial_memory_value if name == "initial.memory" else 0.0)
                    if name.endswith("_rates"):
                        parameter.fill_(1.0)
                elif parameter.ndim >= 2:
                    bound = math.prod(parameter.shape[1:]) ** -0.5
                    drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
                    parameter.copy_(drawn.uniform_(-bound, bound, generator=generator))
                else:
                    parameter.copy_(self._initial_bias(name, parameter))

    def _initial_bias(self, name: str, like: Tensor) -> Tensor:
        config, spec = self.config, self._spec
        bias = torch.zeros_like(like)
        if name.startswith(CONTROLLER_PREFIX):
            spec.controller_kind.initial_bias(spec, name.removeprefix(CONTROLLER_PREFIX), bias, config.forget_bias)
        elif name == "interface.bias":
            reading, writing = spec.interface.heads(bias)
            read, write = spec.interface.read, spec.interface.write
            for heads, parts, gate_bias in (
                (reading, read, config.read_gate_bias),
                (writing, write, config.write_gate_bias),
            ):
                heads[:, parts["strength"]] = config.strength_bias
                heads[:, parts["gate"]] = gate_bias
                heads[:, parts["sharpening"]] = config.sharpen_bias
        return bias

    def initial_state(self, batch_size: int = 1) -> NTMState:
        """The state at the start of every sequence: memory, weightings, reads and controller at their bias values."""
        batch_size = checks.whole("batch_size", batch_size, 0)
        return ScanState(*(part.squeeze(0) for part in self._start(batch_size, None)))

    def _start(self, batch_size: int, slots: Tensor | None) -> ScanState:
        """The initial state with a leading seed axis of one."""
        learned = {name: self._value(name).unsqueeze(0) for name in self._learned_start}
        weight = self._value("output.weight")
        return initial_state(self.config, learned, (1, batch_size), slots, device=weight.device, dtype=weight.dtype)

    def _join_parameters(self) -> None:
        """Make the parameters neighbours in memory, in the order of the scan's flat vector.

        As `nn.LSTM.flatten_parameters` does: they stay separate parameters, but a scan need not gather them, and an
        optimiser can update them together. Whoever moves them (`functional_call`, an assigned `.data`) loses that and
        nothing else.
        """
        parameters = self._registered()
        if parameters is None or not _alike(parameters) or in_one_piece(parameters) is not None:
            return
        if any(parameter.is_inference() for parameter in parameters):
            return
        if parameters[0].device.type == "cpu" and any(parameter.is_shared() for parameter in parameters):
            return  # other processes work on them where they are
        joined = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        parts = joined.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)

    def _registered(self) -> list[Tensor] | None:
        """The tensors in the places of the scan's parameters; None if one is missing, as under a parametrisation."""
        found: list[Tensor] = []
        for part, leaf in self._places:
            module = self._modules[part]
            value = None if module is None else module._parameters.get(leaf)
            if value is None:
                return None
            found.append(value)
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._join_parameters()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._join_parameters()

    def _value(self, name: str) -> Tensor:
        """A parameter by name; under `functional_call` it is a plain tensor, which `get_parameter` would refuse."""
        part, _, leaf = name.partition(".")
        value = getattr(getattr(self, part), leaf)
        assert isinstance(value, Tensor)
        return value

    def extra_repr(self) -> str:
        changed = {
            field.name: getattr(self.config, field.name)
            for field in dataclasses.fields(self.config)
            if getattr(self.config, field.name) != field.default
        }
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())


def _alike(parameters: list[Tensor]) -> bool:
    """Whether parameters are plain tensors of one type on one device."""
    dtype, device = parameters[0].dtype, parameters[0].device
    for parameter in parameters:
        if not is_plain(parameter) or parameter.dtype != dtype or parameter.device != device:
            return False
    return device.type in ("cpu", "cuda")


def _capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: what is made now gets its values when the graph runs."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class NTMCell(Machine):
    """One step: `y, state = cell(x, state)` with x [B, I] or [I]; `state` None starts a sequence.

    Written in plain torch operations, so it can be exported with `torch.export`. Options: see `NTMConfig`.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        config = NTMConfig.from_options({"input_size": input_size, "output_size": output_size, **options})
        super().__init__(config, device, dtype)

    def forward(self, x: Tensor, state: NTMState | None = None) -> tuple[Tensor, NTMState]:
        checks.tensor("input", x)
        weight = self._value("output.weight")
        if weight.dtype not in checks.FLOATS:
            raise ValueError(half_precision(weight.dtype))
        if x.device != weight.device:
            raise ValueError(f"input is on {x.device}, but the parameters are on {weight.device}: move one.")
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(f"input has shape {tuple(x.shape)}, but this cell takes [batch, {self.input_size}].")
        batch = x if x.ndim == 2 else x.unsqueeze(0)
        if state is None:
            state = self.initial_state(batch.shape[0])
        else:
            state = named_state(ScanState, state)
            state = ScanState(*(part.unsqueeze(0) for part in state)) if x.ndim == 1 else state
            check_state(self._spec, state, (batch.shape[0],), weight.dtype, weight.device)
        parameters = {name: self._value(name) for name in self._spec.parameter_shapes}
        y, state, _ = reference.step(self._spec, parameters, batch.to(state.memory.dtype), state)
        if x.ndim == 1:
            return y.squeeze(0), ScanState(*(part.squeeze(0) for part in state))
        return y, state


class NTM(Machine, SequenceModel):
    """A Neural Turing Machine over sequences, used like `torch.nn.LSTM`: `y, state = ntm(x, state, lengths)`.

    x is [T, B, input_size] (`batch_first=True`: [B, T, ...]; one sequence: [T, input_size]); y are logits. `state` is
    an `NTMState`, or any tuple or list of its six tensors. `return_trace=True` adds a `Trace` of all that the heads
    did. `backend` is "auto", "reference", "cpu" or "gpu"; `backend_in_use()` says what "auto" takes. The options of the
    machine are the fields of `NTMConfig`:

    >>> ntm = NTM(9, 8, controller="feedforward", num_heads=2, memory_slots=64)
    >>> y, state = ntm(torch.zeros(5, 3, 9))
    >>> y.shape, state.memory.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 64, 20]))
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        batch_first: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        config = NTMConfig.from_options({"input_size": input_size, "output_size": output_size, **options})
        super().__init__(config, device, dtype)
        self.batch_first = checks.flag("batch_first", batch_first)
        self._constant_starts: dict[tuple[Any, ...], tuple[ScanState, Tensor]] = {}
        self._constant_counts: dict[tuple[int, int, torch.device], Tensor] = {}
        self._chosen: tuple[Any, str] = (None, "")  # backend of populations, and for what
        self.choose_backend(backend)

    def choose_backend(self, backend: str) -> None:
        """Run on this backend from now on; "auto" takes the best that the device has."""
        if backend not in dispatch.BACKENDS:
            raise ValueError(
                f"backend is {checks.shown(backend)}, but it must be one of {', '.join(dispatch.BACKENDS)}."
            )
        self.backend = backend

    def with_memory(self, slots: int) -> Self:
        """The same machine, with the same parameters, on a tape of another length."""
        config = dataclasses.replace(self.config, memory_slots=slots)
        weight = self._value("output.weight")
        twin = type(self)(
            batch_first=self.batch_first,
            backend=self.backend,
            device=weight.device,
            dtype=weight.dtype,
            **{field.name: getattr(config, field.name) for field in dataclasses.fields(config)},
        )
        twin.load_state_dict(self.state_dict())
        return twin.train(self.training)

    def constants(self) -> list[Tensor]:
        return [tensor for state, slots in self._constant_starts.values() for tensor in (*state, slots)]

    @property
    def memory_slots(self) -> int:
        return self.config.memory_slots

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {name: hint for name, hint in get_type_hints(NTMConfig).items() if name not in DECIDED}

    @classmethod
    def canonical_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """All options of the machine, those at their defaults too; heads that are `num_heads` are not said again."""
        config = NTMConfig.from_options({"input_size": 1, "output_size": 1, **options})
        whole = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        whole["controller"] = controller_name(config.controller)
        for name in ("read_heads", "write_heads"):
            whole[name] = None if whole[name] == config.num_heads else whole[name]
        return {name: value for name, value in whole.items() if name not in DECIDED}

    def backend_in_use(self) -> str:
        """The backend that this machine runs on where it is now: "reference", "cpu" or "gpu"."""
        return self.backend_and_reason()[0]

    def backend_and_reason(self) -> tuple[str, str]:
        weight = self._value("output.weight")
        return dispatch.choose(self.backend, self._spec, weight.dtype, weight.device, self.config.memory_slots)

    def kernel_identity(self) -> str:
        weight = self._value("output.weight")
        return dispatch.scan_identity(self.backend_in_use(), weight.dtype, weight.device)

    def prepare_kernels(self) -> None:
        dispatch.prepare_scan(self.backend_in_use(), self._value("output.weight").dtype)

    def _run(
        self, x: Tensor, state: NTMState | None, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, NTMState, Trace | None]:
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            return _run_uncompiled(self, x, state, lengths, slots, return_trace)
        if not return_trace:
            done = self._run_directly(x, state, lengths, slots)
            if done is not None:
                return (*done, None)
        steps, batch, _ = x.shape
        x = x.to(self._value("output.weight").dtype).unsqueeze(0)
        if lengths is None:
            lengths = torch.full((batch,), steps, device=x.device)
        flat = torch.cat([self._value(name).reshape(-1) for name in self._spec.parameter_shapes]).unsqueeze(0)
        if state is not None:
            check_state(self._spec, state, (batch,), flat.dtype, flat.device)
        tape = self.config.memory_slots if state is None else state.memory.shape[-2]
        used = torch.full((batch,), tape, device=x.device)
        if slots is not None:
            used = as_counts("slots", slots, batch, tape, f"the tape's {tape}", x.device)
        if state is None:
            full = self._start(batch, None if slots is None else used.unsqueeze(0))
        else:
            full = ScanState(*(part.unsqueeze(0) for part in state))
        given = (self._spec, flat, x, lengths.unsqueeze(0), used.unsqueeze(0), full)
        backend, _ = dispatch.choose(self.backend, self._spec, flat.dtype, flat.device, tape)
        trace: Trace | None = None
        if return_trace:
            y, final, traced = dispatch.trace(backend, *given)
            trace = tree_map(lambda part: part.squeeze(0), traced)
        if not return_trace or torch.is_grad_enabled():  # a trace carries no gradient, but y and the state do
            y, final = dispatch.scan(backend, *given)
        return y.squeeze(0), ScanState(*(part.squeeze(0) for part in final)), trace

    def _run_directly(
        self, x: Tensor, state: NTMState | None, lengths: Tensor | None, slots: Tensor | None
    ) -> tuple[Tensor, NTMState] | None:
        """The scan without torch's operator around it, which costs more than a short scan on the host.

        None where it needs the operator, or the reference: `_run` then does it, and refuses what does not fit.
        """
        parameters = self._registered()
        if parameters is None or not _alike(parameters) or not is_plain(x) or x.layout != torch.strided:
            return None
        dtype, device = parameters[0].dtype, parameters[0].device
        if x.device != device or dispatch.operator_needed():
            return None
        for parameter, shape in zip(parameters, self._spec.parameter_shapes.values(), strict=True):
            if parameter.shape != shape:
                return None
        steps, batch, _ = x.shape
        tape, start, used = self.config.memory_slots, None, None
        if state is not None:
            check_state(self._spec, state, (batch,), dtype, device)
            if not all(map(is_plain, state)):
                return None
            tape = state.memory.shape[-2]
        backend, _ = dispatch.choose(self.backend, self._spec, dtype, device, tape)
        if backend == "reference":
            return None
        joined = in_one_piece(parameters)
        x = x if x.dtype == dtype else x.to(dtype)
        if slots is not None:
            used = as_counts("slots", slots, batch, tape, f"the tape's {tape}", device).unsqueeze(0)
        if state is None:
            learned = {name: self._value(name).unsqueeze(0) for name in self._learned_start}
            start, used = self._population_start(learned, x.unsqueeze(0), used)
            if learned:
                state, start = ScanState(*(part.squeeze(0) for part in start)), None
        elif used is None:
            used = self._constant(tape, batch, device)
        given = self._constant(steps, batch, device) if lengths is None else lengths.unsqueeze(0)
        return dispatch.scan_directly(backend, self._spec, joined, given, used, start, parameters, x, state)

    def _constant(self, count: int, batch: int, device: torch.device) -> Tensor:
        """[1, B] times a number, kept: it is the same in every call."""
        key = (count, batch, device)
        found = self._constant_counts.get(key)
        if found is None:
            with torch.inference_mode(False):
                found = torch.full((1, batch), count, device=device)
            if len(self._constant_counts) >= MOST_COUNTS:
                self._constant_counts.clear()
            if not _capturing(device):
                self._constant_counts[key] = found
        return found

    def _as_state(self, state: Any) -> NTMState:
        named: NTMState = named_state(ScanState, state)
        return named

    # --- populations: the scan has the seed axis itself ---------------------------------------------------------------

    def population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None = None) -> Tensor:
        parameters, learned = self._split_population(flat)
        state, used = self._population_start(learned, inputs, slots)
        outputs, _ = dispatch.scan(self._population_backend(flat), self._spec, parameters, inputs, lengths, used, state)
        return outputs

    def loss_and_gradient(
        self,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        mask: Tensor,
        lengths: Tensor,
        *,
        slots: Tensor | None = None,
        loss: Loss = BINARY,
        checked: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        backend = self._population_backend(flat)
        if not dispatch.is_fused(backend, loss):
            return super().loss_and_gradient(flat, inputs, targets, mask, lengths, slots=slots, loss=loss)
        count = self._spec.parameter_count
        parameters, rest = flat.detach().split([count, flat.shape[1] - count], dim=1)
        learns_start = bool(self._learned_start)
        rest = rest.requires_grad_(learns_start)
        with torch.set_grad_enabled(learns_start):
            state, used = self._population_start(self._split_start(rest), inputs, slots)
        start = ScanState(*(part.detach() for part in state))
        costs, gradient, d_state, squares = dispatch.loss_and_gradient(
            backend, self._spec, parameters, inputs, targets, mask, lengths, used, start, learns_start, loss, checked
        )
        if d_state is None:
            return costs, gradient, squares
        reached = [(part, d) for part, d in zip(state, d_state, strict=True) if part.requires_grad]
        (d_rest,) = torch.autograd.grad([part for part, _ in reached], rest, [d for _, d in reached])
        return costs, torch.cat([gradient, d_rest], dim=1), None

    def _population_backend(self, flat: Tensor) -> str:
        key = (self.backend, flat.dtype, flat.device)
        if self._chosen[0] != key:  # asked before every update
            self._chosen = (key, dispatch.choose(self.backend, self._spec, *key[1:], self.config.memory_slots)[0])
        return self._chosen[1]

    def _split_population(self, flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        count = self._spec.parameter_count
        return flat[:, :count], self._split_start(flat[:, count:])

    def _split_start(self, rest: Tensor) -> dict[str, Tensor]:
        shapes = initial_shapes(self.config)
        parts = rest.split([torch.Size(shape).numel() for shape in shapes.values()], dim=-1) if shapes else ()
        return {name: part.unflatten(-1, shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}

    def _population_start(
        self, learned: dict[str, Tensor], inputs: Tensor, slots: Tensor | None
    ) -> tuple[ScanState, Tensor]:
        """The initial state of S x B sequences, and the slots that each may use."""
        seeds, _, batch, _ = inputs.shape

        def start(slots: Tensor | None) -> ScanState:
            given = (self.config, learned, (seeds, batch), slots)
            return initial_state(*given, device=inputs.device, dtype=inputs.dtype)

        if learned or not (slots is None or self.config.initial_weightings == "first"):
            return start(slots), self._full_slots(seeds, batch, inputs) if slots is None else slots
        key = (seeds, batch, inputs.device, inputs.dtype)
        made = self._constant_starts.pop(key, None)
        if made is None:
            with torch.inference_mode(False):
                made = start(None), self._full_slots(seeds, batch, inputs)
            if _capturing(inputs.device):
                return made[0], made[1] if slots is None else slots
        # worth keeping: it is the same every update
        self._constant_starts[key] = made  # the last used is the last to go
        if len(self._constant_starts) > MOST_STARTS:
            del self._constant_starts[next(iter(self._constant_starts))]
        state, full = made
        return state, full if slots is None else slots

    def _full_slots(self, seeds: int, batch: int, like: Tensor) -> Tensor:
        return torch.full((seeds, batch), self.config.memory_slots, device=like.device)


def _run_uncompiled(ntm: NTM, *given: Any) -> tuple[Tensor, NTMState, Trace | None]:
    """`NTM._run` in eager mode under torch.compile: a graph break, and the kernel as fast as ever.

    As `torch.compiler.disable`, which loads a second's worth of modules where it is applied, whoever compiles or not.
    """
    run: Any = torch.compiler.disable(NTM._run)
    done: tuple[Tensor, NTMState, Trace | None] = run(ntm, *given)
    return done


_run_uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]
