"""The Neural Turing Machine over sequences, as a torch module."""

import dataclasses
from typing import Any, Never, Self, get_type_hints

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tapehead import checks
from tapehead.kernels import dispatch
from tapehead.kernels.machine_spec import controller_name
from tapehead.kernels.memory import is_plain, split
from tapehead.kernels.ntm_scan import direct
from tapehead.kernels.ntm_scan.contract import ScanState, Trace, check_state, full_precision
from tapehead.kernels.ntm_scan.spec import AddActivation, KeyActivation, Order, OutputFrom, ScanSpec, Shift
from tapehead.losses import BINARY, Loss
from tapehead.models.compiling import run_uncompiled
from tapehead.models.config import (
    InitialController,
    InitialMemory,
    InitialReads,
    InitialWeightings,
    NTMConfig,
)
from tapehead.models.initial import initial_shapes, initial_state
from tapehead.models.machine import Machine, NTMState
from tapehead.models.sequence import DECIDED, SequenceModel, as_counts, named_state

MOST_STARTS = 4
"""Numbers of seeds and sequences for which a model keeps the start ready: a population, and groups of it."""

MOST_CALLS = 64
"""Shapes of inputs for which a model keeps ready what a call needs, and constant lengths and slots that it keeps."""


def _capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: what is made now gets its values when the graph runs."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class NTM(Machine, SequenceModel):
    """A Neural Turing Machine over sequences, used like `torch.nn.LSTM`: `y, state = ntm(x, state, lengths)`.

    x is [T, B, input_size] (`batch_first=True`: [B, T, ...]; one sequence: [T, input_size]); y are logits. `state` is
    an `NTMState`, or any tuple or list of its six tensors. `return_trace=True` adds a `Trace` of all that the heads
    did. `backend` is "auto", "reference", "cpu" or "gpu"; `backend_in_use()` says what "auto" takes. The options of the
    machine are the fields of `NTMConfig`, whose text says what each does, `help(tapehead.NTMConfig)`:

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
        controller: str = "lstm",
        controller_size: int = 100,
        controller_layers: int = 1,
        num_heads: int = 1,
        memory_slots: int = 128,
        memory_width: int = 20,
        shift: Shift = "softmax",
        shift_range: int = 1,
        read_heads: int | None = None,
        write_heads: int | None = None,
        initial_memory: InitialMemory = "constant",
        initial_memory_value: float = 1e-6,
        initial_memory_scale: float = 0.1,
        initial_weightings: InitialWeightings = "first",
        initial_reads: InitialReads = "zeros",
        initial_controller: InitialController = "zeros",
        order: Order = "write_then_read",
        key_activation: KeyActivation = "linear",
        add_activation: AddActivation = "linear",
        output_from: OutputFrom = "hidden_and_reads",
        forget_bias: float = 1.0,
        read_gate_bias: float = 0.0,
        write_gate_bias: float = 0.0,
        strength_bias: float = 0.0,
        sharpen_bias: float = 0.0,
        interface_clip: float | None = None,
        write_gate: bool = False,
        batch_first: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__(NTMConfig.from_arguments(locals(), unknown), device, dtype)
        self.batch_first = checks.flag("batch_first", batch_first)
        self._constant_starts: dict[tuple[Any, ...], tuple[ScanState, Tensor]] = {}
        self._constant_counts: dict[tuple[int, int, torch.device], Tensor] = {}
        self._calls: dict[tuple[Any, ...], direct.Call] = {}
        self._chosen: tuple[Any, str] = (None, "")  # backend of populations, and for what
        self.choose_backend(backend)

    def choose_backend(self, backend: str) -> None:
        """Run on this backend from now on; "auto" takes the best that the device has."""
        if backend not in dispatch.BACKENDS:
            raise ValueError(
                f"backend is {checks.shown(backend)}, but it must be one of {', '.join(dispatch.BACKENDS)}."
            )
        self.backend = backend

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_calls": {}}

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
        values = self.state_dict()
        if config.initial_memory == "given":
            values["initial.memory"] = _fitted(values["initial.memory"], slots, config.initial_memory_value)
        twin.load_state_dict(values)
        for parameter, own in zip(twin.parameters(), self.parameters(), strict=True):
            parameter.requires_grad_(own.requires_grad)
        return twin.train(self.training)

    def capturable(self, loss: Loss) -> bool:
        backend = self.backend_in_use()
        return backend == "gpu" and dispatch.is_fused(backend, loss)

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
        if torch.is_autocast_enabled(x.device.type):
            with full_precision(x.device):
                return self._run(x, state, lengths, slots, return_trace)
        if torch.compiler.is_compiling():
            return self._run_compiled(x, state, lengths, slots, return_trace)
        if not return_trace:
            done = self._run_directly(x, state, lengths, slots)
            if done is not None:
                return (*done, None)
        given = self._scan_arguments(x, state, lengths, slots)
        backend = self._backend_for_tape(given[-1].memory.shape[-2])
        trace: Trace | None = None
        if return_trace:
            y, final, traced = dispatch.trace(backend, *given)
            trace = tree_map(lambda part: part.squeeze(0), traced)
        if not return_trace or torch.is_grad_enabled():  # a trace carries no gradient, but y and the state do
            y, final = dispatch.scan(backend, *given)
        return y.squeeze(0), ScanState(*(part.squeeze(0) for part in final)), trace

    def _run_compiled(
        self, x: Tensor, state: NTMState | None, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, NTMState, Trace | None]:
        """Under torch.compile and torch.export: one operator for the scan, which checks lengths and slots when it runs.

        A graph break where there is no operator: for traces, and on the reference, whose loop over time would be
        compiled step by step. Exported, it is written out so, for one length.
        """
        backend = self._backend_for_tape(self.config.memory_slots if state is None else state.memory.shape[-2])
        exporting, parts = torch.compiler.is_exporting(), backend == "reference" and slots is not None
        if exporting and (return_trace or parts):
            what = "a trace" if return_trace else "slots on the reference"
            raise ValueError(f"{what} cannot be exported, because its shapes depend on values: leave it out.")
        if return_trace or (backend == "reference" and not exporting):
            done: tuple[Tensor, NTMState, Trace | None] = run_uncompiled(
                self._run, x, state, lengths, slots, return_trace
            )
            return done
        y, final = dispatch.scan_compiled(backend, *self._scan_arguments(x, state, lengths, slots))
        return y.squeeze(0), ScanState(*(part.squeeze(0) for part in final)), None

    def _scan_arguments(
        self, x: Tensor, state: NTMState | None, lengths: Tensor | None, slots: Tensor | None
    ) -> tuple[ScanSpec, Tensor, Tensor, Tensor, Tensor, ScanState]:
        """What a scan of this machine takes, with a seed axis of one."""
        steps, batch, _ = x.shape
        x = x.to(self._value("output.weight").dtype).unsqueeze(0)
        if lengths is None:
            lengths = torch.full((batch,), steps, device=x.device)
        flat = torch.cat([self._value(name).reshape(-1) for name in self._spec.parameter_shapes]).unsqueeze(0)
        tape = self.config.memory_slots if state is None else state.memory.shape[-2]
        used = torch.full((batch,), tape, device=x.device)
        if slots is not None:
            used = as_counts("slots", slots, batch, tape, f"the tape's {tape}", x.device)
        if state is None:
            full = self._start(batch, None if slots is None else used.unsqueeze(0))
        else:
            full = ScanState(*(part.unsqueeze(0) for part in state))
        return self._spec, flat, x, lengths.unsqueeze(0), used.unsqueeze(0), full

    def _backend_for_tape(self, tape: int) -> str:
        weight = self._value("output.weight")
        return dispatch.choose(self.backend, self._spec, weight.dtype, weight.device, tape)[0]

    _backend_for_tape._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as assume_constant_result does

    def _run_directly(
        self, x: Tensor, state: NTMState | None, lengths: Tensor | None, slots: Tensor | None
    ) -> tuple[Tensor, NTMState] | None:
        """The scan without torch's operator around it, which costs more than a short scan on the host.

        None where it needs the operator, or the reference: `_run` then does it, and refuses what does not fit.
        """
        if direct.operator_needed():  # first: a view of the parameters that is made inside torch.func ends with it
            return None
        known = self._plain_parameters()
        if known is None or not is_plain(x) or x.layout != torch.strided or x.device != known.device:
            return None
        x = x if x.dtype == known.dtype else x.to(known.dtype)
        call: direct.Call | None
        if state is None and slots is None and not self._learned_start:
            call = self._calls.get((x.shape, x.dtype, x.device, self.backend)) or self._new_call(x)
        else:
            call, state = self._call_for(x, state, slots)
        if call is None:
            return None
        if lengths is not None:
            call = call._replace(lengths=lengths.unsqueeze(0))
        return direct.scan(call, known.flat, known.tensors, x, state)

    def _new_call(self, x: Tensor) -> direct.Call | None:
        """What all calls with inputs like these share, kept; None if the reference runs them."""
        call, _ = self._call_for(x, None, None)
        if call is not None and not _capturing(x.device):
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            self._calls[x.shape, x.dtype, x.device, self.backend] = call
        return call

    def _call_for(
        self, x: Tensor, state: NTMState | None, slots: Tensor | None
    ) -> tuple[direct.Call | None, NTMState | None]:
        """A call from a state, or from the start: then the state is None, unless the start is learned."""
        steps, batch, _ = x.shape
        tape, start, used = self.config.memory_slots, None, None
        if state is not None:
            if not all(map(is_plain, state)):
                return None, state
            tape = state.memory.shape[-2]
        backend, _ = dispatch.choose(self.backend, self._spec, x.dtype, x.device, tape)
        if backend == "reference":
            return None, state
        if slots is not None:
            used = as_counts("slots", slots, batch, tape, f"the tape's {tape}", x.device).unsqueeze(0)
        if state is None:
            learned = {name: self._value(name).unsqueeze(0) for name in self._learned_start}
            all_starts, used = self._population_start(learned, x.unsqueeze(0), used)
            start = ScanState(*(part.squeeze(0) for part in all_starts))
            if learned:
                state, start = start, None
        elif used is None:
            used = self._constant(tape, batch, x.device)
        lengths = self._constant(steps, batch, x.device)
        return direct.Call(dispatch.fused(backend), self._spec, lengths, used, start), state

    def _constant(self, count: int, batch: int, device: torch.device) -> Tensor:
        """[1, B] times a number, kept: it is the same in every call."""
        key = (count, batch, device)
        found = self._constant_counts.get(key)
        if found is None:
            with torch.inference_mode(False):
                found = torch.full((1, batch), count, device=device)
            if len(self._constant_counts) >= MOST_CALLS:
                self._constant_counts.clear()
            if not _capturing(device):
                self._constant_counts[key] = found
        return found

    def _as_state(self, state: Any) -> NTMState:
        named: NTMState = named_state(ScanState, state)
        return named

    def _check_axes(self, state: NTMState, lead: tuple[int, ...]) -> None:
        weight = self._value("output.weight")
        check_state(self._spec, state, lead, weight.dtype, weight.device)

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
            state, used = self._population_start(split(rest, initial_shapes(self.config)), inputs, slots)
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
        return flat[:, :count], split(flat[:, count:], initial_shapes(self.config))

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
            self._calls.clear()  # they hold starts, too
        state, full = made
        return state, full if slots is None else slots

    def _full_slots(self, seeds: int, batch: int, like: Tensor) -> Tensor:
        return torch.full((seeds, batch), self.config.memory_slots, device=like.device)


def _fitted(rows: Tensor, slots: int, value: float) -> Tensor:
    """The first rows of a given memory, and further ones of one value for a longer tape."""
    return torch.cat([rows[:slots], rows.new_full((max(0, slots - len(rows)), rows.shape[1]), value)])
