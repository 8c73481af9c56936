"""The Differentiable Neural Computer over sequences, as a torch module."""

import dataclasses
from typing import Any, Never, Self, get_type_hints

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tapehead import checks
from tapehead.kernels import dispatch
from tapehead.kernels.dnc_scan import op, reference
from tapehead.kernels.dnc_scan.contract import DNCState, DNCTrace, check_state, initial_state
from tapehead.kernels.dnc_scan.spec import Strength
from tapehead.kernels.memory import is_plain
from tapehead.kernels.ntm_scan.contract import check_sequences, check_tensor
from tapehead.losses import BINARY, Loss
from tapehead.models.dnc.config import DNCConfig
from tapehead.models.dnc.machine import DNCMachine
from tapehead.models.sequence import DECIDED, SequenceModel, as_counts, named_state
from tapehead.models.side_by_side import filled, groups

SIDE_BY_SIDE = 32
"""Seeds that a GPU computes together, always as many (side_by_side.py)."""


class DNC(DNCMachine, SequenceModel):
    """A Differentiable Neural Computer over sequences, used like `torch.nn.LSTM`: `y, state = dnc(x, state, lengths)`.

    x is [T, B, input_size] (`batch_first=True`: [B, T, ...]; one sequence: [T, input_size]); y are logits. `state` is
    a `DNCState`, or any tuple or list of its nine tensors. `return_trace=True` adds a `DNCTrace` of all that the heads
    did; the reference then computes everything, so that y, state and trace are of one run. `backend` is "auto",
    "reference", "cpu" or "gpu"; `backend_in_use()` says what "auto" takes. The options of the machine are the fields of
    `DNCConfig`:

    >>> dnc = DNC(9, 8, read_heads=2, memory_slots=64)
    >>> y, state = dnc(torch.zeros(5, 3, 9))
    >>> y.shape, state.link.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 64, 64]))
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        controller: str = "lstm",
        controller_size: int = 100,
        controller_layers: int = 1,
        read_heads: int = 4,
        memory_slots: int = 128,
        memory_width: int = 20,
        strength: Strength = "oneplus",
        detached_usage: bool = False,
        masked_content: bool = False,
        deallocation: bool = False,
        link_sharpness: bool = False,
        forget_bias: float = 1.0,
        strength_bias: float = 0.0,
        free_gate_bias: float = 0.0,
        content_mode_bias: float = 0.0,
        allocation_gate_bias: float = 0.0,
        write_gate_bias: float = 0.0,
        batch_first: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__(DNCConfig.from_arguments(locals(), unknown), device, dtype)
        self.batch_first = checks.flag("batch_first", batch_first)
        self.choose_backend(backend)

    # --- where it runs ------------------------------------------------------------------------------------------------

    def choose_backend(self, backend: str) -> None:
        """Run on this backend from now on; "auto" takes the best that the device has."""
        if backend not in dispatch.BACKENDS:
            raise ValueError(
                f"backend is {checks.shown(backend)}, but it must be one of {', '.join(dispatch.BACKENDS)}."
            )
        self.backend = backend

    def backend_and_reason(self) -> tuple[str, str]:
        return self._backend_for(self._value("output.weight"))

    def capturable(self, loss: Loss) -> bool:
        backend = self.backend_in_use()
        return backend == "gpu" and dispatch.is_fused(backend, loss)

    def _backend_for(self, weights: Tensor, tape: int | None = None) -> tuple[str, str]:
        slots = self.config.memory_slots if tape is None else tape
        return dispatch.choose_dnc(self.backend, self._spec, weights.dtype, weights.device, slots)

    def _backend_of_call(self, tape: int, *tensors: Tensor) -> str:
        """The backend for these tensors, the parameters first, on a tape of so many slots. "auto" leaves to the
        reference what a kernel cannot read."""
        backend, _ = self._backend_for(tensors[0], tape)
        if backend == "reference" or op.readable(*tensors):
            return backend
        if self.backend != "auto":
            raise ValueError(
                f"backend {self.backend!r} cannot run under torch.compile or torch.func, nor on lazy tensors: use "
                "'auto' or 'reference'."
            )
        return "reference"

    def kernel_identity(self) -> str:
        backend, weight = self.backend_in_use(), self._value("output.weight")
        if backend == "reference":
            return super().kernel_identity()
        return dispatch.fused_dnc(backend).identity(weight.dtype, weight.device)

    def prepare_kernels(self) -> None:
        backend = self.backend_in_use()
        if backend != "reference":
            dispatch.fused_dnc(backend).make_ready(self._value("output.weight").dtype)

    # --- as a layer ---------------------------------------------------------------------------------------------------

    def with_memory(self, slots: int) -> Self:
        """The same machine, with the same parameters, on a memory of another length."""
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

    def for_training(self, slots: int) -> Self:
        """On a memory of so many slots: a kernel has room for the links of all slots, used or not."""
        return self.with_memory(slots) if slots < self.memory_slots else self

    @property
    def memory_slots(self) -> int:
        return self.config.memory_slots

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {name: hint for name, hint in get_type_hints(DNCConfig).items() if name not in DECIDED}

    @classmethod
    def canonical_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """All options of the machine, those at their defaults too."""
        config = DNCConfig.from_options({"input_size": 1, "output_size": 1, **options})
        return {name: getattr(config, name) for name in cls.options()}

    def _run(
        self, x: Tensor, state: DNCState | None, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, DNCState, DNCTrace | None]:
        steps, batch, _ = x.shape
        x = self._check_input(x)
        if state is not None:
            check_state(self._spec, state, (batch,), x.dtype, x.device)
        tape = self.config.memory_slots if state is None else state.memory.shape[-2]
        used = None if slots is None else as_counts("slots", slots, batch, tape, f"the tape's {tape}", x.device)
        if lengths is None:
            lengths = torch.full((batch,), steps, device=x.device)
        flat = torch.cat([self._value(name).reshape(-1) for name in self._spec.parameter_shapes])
        # the scan has a leading axis of seeds
        flat, x, lengths = (part.unsqueeze(0) for part in (flat, x, lengths))
        used = None if used is None else used.unsqueeze(0)
        one = None if state is None else DNCState(*(part.unsqueeze(0) for part in state))
        fused = self._backend_of_call(tape, flat, x, lengths, *(one or ())) != "reference"
        trace: DNCTrace | None = None
        # With a trace the reference runs it all: where rounding decides between equally used slots, the kernel's
        # answers and state would belong to another history than the trace.
        if fused and not return_trace:
            y, final = self._fused_scan(flat, x, lengths, used, tape, one)
        else:
            start = one or DNCState(*(part.unsqueeze(0) for part in self.initial_state(batch)))
            y, final, trace = reference.scan(self._spec, flat, x, lengths, used, start, return_trace)
        did: DNCTrace | None = tree_map(lambda part: part.squeeze(0), trace) if return_trace else None
        return y.squeeze(0), DNCState(*(part.squeeze(0) for part in final)), did

    def _fused_scan(
        self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None, tape: int, state: DNCState | None
    ) -> tuple[Tensor, DNCState]:
        backend, _ = self._backend_for(flat, tape)
        used = torch.full_like(lengths, tape) if slots is None else slots
        return op.scan(op.Call(dispatch.fused_dnc(backend), self._spec, lengths, used, tape), flat, inputs, state)

    # --- populations: on the reference one seed after the other on a CPU, groups of them on a GPU ---------------------

    def population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None = None) -> Tensor:
        self._check_population(flat, inputs, lengths, slots)
        if self._backend_of_call(self.config.memory_slots, flat, inputs, lengths) != "reference":
            return self._fused_scan(flat, inputs, lengths, slots, self.config.memory_slots, None)[0]
        if not _side_by_side(flat):
            return super().population(flat, inputs, lengths, slots)
        return torch.cat(
            [
                self._scan_group(flat[some], inputs[some], lengths[some], None if slots is None else slots[some])
                for some in groups(len(flat), SIDE_BY_SIDE)
            ]
        )

    def _scan_group(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None) -> Tensor:
        """Logits of at most `SIDE_BY_SIDE` seeds, with copies of the last for those that are missing."""
        count = len(flat)
        flat, inputs, lengths = (filled(part, SIDE_BY_SIDE) for part in (flat, inputs, lengths))
        shape = (SIDE_BY_SIDE, inputs.shape[2])
        state = initial_state(self._spec, shape, self.config.memory_slots, device=flat.device, dtype=flat.dtype)
        used = None if slots is None else filled(slots, SIDE_BY_SIDE)
        outputs, _, _ = reference.scan(self._spec, flat, inputs, lengths, used, state)
        return outputs[:count]

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
        backend, _ = self._backend_for(flat)
        if dispatch.is_fused(backend, loss):
            if not checked:
                self._check_training(flat, inputs, targets, mask, lengths, slots)
            tape = self.config.memory_slots
            used = torch.full_like(lengths, tape) if slots is None else slots
            given = (flat.detach(), inputs, targets, mask, lengths, used, tape, str(loss.kernel), checked)
            return (*dispatch.fused_dnc(backend).loss_and_gradient(self._spec, *given), None)
        if backend != "reference" or not _side_by_side(flat):
            return super().loss_and_gradient(flat, inputs, targets, mask, lengths, slots=slots, loss=loss)
        steps = lengths.amax(dim=1).tolist()
        all_costs: list[Tensor] = []
        gradients: list[Tensor] = []
        for some in groups(len(flat), SIDE_BY_SIDE):
            seeds = range(some.start, some.stop)
            own = flat[some].detach().clone().requires_grad_()
            x = inputs[some, : max(steps[s] for s in seeds)]
            logits = self._scan_group(own, x, lengths[some], None if slots is None else slots[some])
            costs = [  # without their padding, which depends on the others: longer sums round apart
                loss.nats(one[: steps[s]], targets[s, : steps[s]], mask[s, : steps[s]])
                for s, one in zip(seeds, logits, strict=True)
            ]
            gradients += torch.autograd.grad(torch.stack(costs).mean(dim=1).sum(), own)
            all_costs += [of_one.detach() for of_one in costs]
        return torch.stack(all_costs), torch.cat(gradients), None

    def _check_population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None) -> None:
        counts = {"lengths": lengths} | ({} if slots is None else {"slots": slots})
        check_sequences(self._spec, flat, inputs, counts)

    def _check_training(
        self, flat: Tensor, inputs: Tensor, targets: Tensor, mask: Tensor, lengths: Tensor, slots: Tensor | None
    ) -> None:
        self._check_population(flat, inputs, lengths, slots)
        seeds, steps, batch, _ = inputs.shape
        if batch == 0:
            raise ValueError("inputs has no sequences, but a mean cost needs at least one.")
        check_tensor("targets", targets, (seeds, steps, batch, self.output_size), targets.dtype, flat.device)
        check_tensor("mask", mask, (seeds, steps, batch), mask.dtype, flat.device)
        given = (flat, inputs, targets, mask, lengths, *(() if slots is None else (slots,)))
        if not all(map(is_plain, given)):
            raise ValueError(
                "a tensor of this training step is lazy or wrapped, but a kernel needs its numbers in memory."
            )

    def _as_state(self, state: Any) -> DNCState:
        named: DNCState = named_state(DNCState, state)
        return named


def _side_by_side(flat: Tensor) -> bool:
    """Whether seeds are computed in groups: where a launch costs more than what it computes."""
    return flat.is_cuda
