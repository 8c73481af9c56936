"""One contract for every model that maps sequences to sequences.

Legend: S seeds, T time, B batch, I inputs, O outputs, P parameters.

A model is used in two ways. As a layer it is called like `torch.nn.LSTM`: `y, state = model(x, state, lengths)`. In
training it stands for a population of S machines of one configuration, whose parameters are the rows of a tensor
[S, P]; the module then is a template and its own parameters are not touched.
"""

import abc
import hashlib
import inspect
import threading
from collections.abc import Sized
from typing import Any, Self, get_type_hints

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from tapehead import checks
from tapehead.kernels import memory
from tapehead.kernels.ntm_scan.contract import COUNTS, is_vmapped
from tapehead.losses import BINARY, Loss
from tapehead.models.compiling import run_uncompiled
from tapehead.models.packed import PackedSequence, repacked, unpacked
from tapehead.models.resets import as_mask, run_with_resets

DECIDED = ("self", "input_size", "output_size", "batch_first", "backend", "device", "dtype")
"""Keywords of a model's class that a task and a run decide."""


_default_generator = threading.Lock()


class SequenceModel(nn.Module, abc.ABC):
    """`y, state = model(x, state=None, lengths=None)`: x [T, B, I] or, unbatched, [T, I]; y are logits [T, B, O].

    With `batch_first=True`, x and y are [B, T, ...]; state and trace never are. `lengths` [B] gives each row's number
    of steps: beyond it y is zero and the state is that of the row's last step. A `PackedSequence` has lengths of its
    own, and y is then one, too. Where `reset` [T, B] is true, a row starts anew before that step. State is a value, in
    and out: any nesting of tuples, lists and dicts of tensors [B, ...].

    One of your own is a subclass whose `__init__` takes `input_size` and `output_size` first and sets these attributes;
    it needs `run`, and `reset_parameters` if it has parameters of its own beside those of torch's modules.
    """

    input_size: int
    output_size: int
    batch_first: bool = False

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: Any = None,
        lengths: Tensor | None = None,
        *,
        slots: Tensor | None = None,
        reset: Tensor | None = None,
        return_trace: bool = False,
    ) -> Any:
        """Logits and final state; with `return_trace`, also a trace of every step.

        `slots` [B] limits the memory slots that each row may use; only models with a memory take it. `reset` has the
        axes of x without the last: [T, B], [B, T] with `batch_first`, [T] for one sequence.
        """
        checks.flag("return_trace", return_trace)
        if isinstance(x, PackedSequence):
            return self._run_packed(x, state, lengths, slots, reset, return_trace)
        x, unbatched = self._as_batch(x)
        if state is not None:
            state = self._as_state(state)
            self._check_axes(state, () if unbatched else (x.shape[1],))
        if unbatched and state is not None:
            state = tree_map(lambda part: part.unsqueeze(0), state)
        if lengths is not None:
            lengths = as_counts("lengths", lengths, x.shape[1], x.shape[0], f"the {x.shape[0]} steps given", x.device)
        if reset is None:
            y, state, trace = self._run(x, state, lengths, slots, return_trace)
        else:
            mask = self._as_mask(reset, x.shape[0], x.shape[1], unbatched)
            given = (self._run, x, state, lengths, slots, return_trace, mask)
            compiling = torch.compiler.is_compiling()  # shapes inside depend on the mask's values
            y, state, trace = run_uncompiled(run_with_resets, *given) if compiling else run_with_resets(*given)
        if unbatched:
            y = y.squeeze(1)
            state = tree_map(lambda part: part.squeeze(0), state)
            trace = tree_map(lambda part: part.squeeze(1), trace) if return_trace else None
        elif self.batch_first:
            y = y.transpose(0, 1)
        return (y, state, trace) if return_trace else (y, state)

    def _run_packed(
        self, x: PackedSequence, state: Any, lengths: Any, slots: Tensor | None, reset: Any, return_trace: bool
    ) -> Any:
        for name, value in (("lengths", lengths), ("reset", reset)):
            if value is not None:
                raise ValueError(f"{name} is given with a PackedSequence, which has lengths: pad the sequences.")
        padded, lengths = unpacked(x)
        if checks.tensor("input", padded).shape[2:] != (self.input_size,):
            raise ValueError(
                f"input packs steps of shape {tuple(x.data.shape[1:])}, but this model takes ({self.input_size},)."
            )
        if state is not None:
            state = self._as_state(state)
            self._check_axes(state, (padded.shape[1],))
        y, *rest = self._run(padded, state, lengths, slots, return_trace)
        return (repacked(y, lengths, x), *rest) if return_trace else (repacked(y, lengths, x), rest[0])

    def _as_mask(self, reset: Any, steps: int, batch: int, unbatched: bool) -> Tensor:
        """A mask of resets from outside, as [T, B]."""
        if unbatched:
            return as_mask(reset, (steps,), "[time]").unsqueeze(1)
        if self.batch_first:
            return as_mask(reset, (batch, steps), "[batch, time]").T
        return as_mask(reset, (steps, batch), "[time, batch]")

    def run(self, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """The model on x [T, B, I]: logits [T, B, O] and the state after each row's last step. `state` None starts.

        Logits beyond a row's length are made zero by the caller.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `run`: write one, as SequenceModel describes it.")

    def _run(
        self, x: Tensor, state: Any, lengths: Tensor | None, slots: Tensor | None, return_trace: bool
    ) -> tuple[Tensor, Any, Any]:
        """`run`, for models that also have a memory, whose slots can be limited, or a trace."""
        if slots is not None:
            raise ValueError(f"slots were given, but {type(self).__name__} has no memory: leave them out.")
        if return_trace:
            raise ValueError(f"a trace was asked for, but {type(self).__name__} has none: leave return_trace out.")
        answer = self.run(x, state, lengths)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ValueError(f"{type(self).__name__}.run must return logits and state, two things.")
        y, state = answer
        shape = (*x.shape[:2], self.output_size)
        if tuple(y.shape) != shape:
            raise ValueError(
                f"{type(self).__name__}.run returned logits of shape {tuple(y.shape)}, but [T, B, output_size] is "
                f"{shape}."
            )
        if lengths is not None:
            inside = torch.arange(x.shape[0], device=x.device).unsqueeze(-1) < lengths
            y = torch.where(inside.unsqueeze(-1), y, 0.0)
        return y, state, None

    def _as_state(self, state: Any) -> Any:
        """A state from outside as the model works with it."""
        return state

    def _check_axes(self, state: Any, lead: tuple[int, ...]) -> None:
        """Refuse a state that does not fit, in the shapes in which it was given: `lead` is (B,), or () unbatched."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh initial parameters, from the generator alone.

        This one asks every module inside that can reset itself, as torch's own can. A model that has parameters of its
        own, outside such modules, writes another.
        """
        parts = [module for module in self.modules() if module is not self and hasattr(module, "reset_parameters")]
        covered = {id(parameter) for module in parts for parameter in module.parameters()}
        for name, parameter in self.named_parameters():
            if id(parameter) not in covered:
                raise NotImplementedError(
                    f"{type(self).__name__} has a parameter {name!r} that no module inside it resets: write "
                    "reset_parameters(generator), which draws all parameters anew."
                )
        with _default_generator:  # torch's modules draw from the one generator of the process
            before = torch.default_generator.get_state()
            try:
                if generator is not None:
                    torch.default_generator.manual_seed(generator.initial_seed())
                for module in parts:
                    reset: Any = module.reset_parameters
                    reset()
            finally:
                if generator is not None:
                    torch.default_generator.set_state(before)

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The keywords of the class that an experiment may set, with their types."""
        build = cls.__init__
        annotations = get_type_hints(build)
        parameters = inspect.signature(build).parameters.values()
        named = [one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        return {name: annotations.get(name, Any) for name in named if name not in DECIDED}

    @classmethod
    def canonical_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Options whose types are right, in the form in which an experiment keeps them: with the class's defaults, and
        with names that work in every process."""
        parameters = inspect.signature(cls.__init__).parameters.values()
        defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
        return {name: value for name, value in defaults.items() if name in cls.options()} | options

    # --- where it runs -----------------------------------------------------------------------------------------------

    def choose_backend(self, backend: str) -> None:
        """Set the backend of the model's kernels; a model without kernels of its own runs in torch alone."""
        if backend not in ("auto", "reference"):
            raise ValueError(
                f"backend is {checks.shown(backend)}, but {type(self).__name__} has no kernels: use 'auto'."
            )

    def backend_in_use(self) -> str:
        """What runs this model where it is now; refuses a backend that cannot."""
        return self.backend_and_reason()[0]

    def backend_and_reason(self) -> tuple[str, str]:
        """What runs this model where it is now, and why nothing faster does; an empty reason if there is none."""
        return "torch", ""

    def kernel_identity(self) -> str:
        """What names the code that runs this model where it is now: where two differ, bits may. Compiles nothing."""
        return f"torch-{torch.__version__}"

    def prepare_kernels(self) -> None:
        """Compile or load what a training step needs; otherwise the first one does."""

    def capturable(self, loss: Loss) -> bool:
        """Whether CUDA graphs can hold updates of a population where it is now: `loss_and_gradient` then neither waits
        for the device nor draws anything on the host, after a first call with tensors of the same shapes."""
        return False

    @property
    def seeds_together(self) -> int:
        """Seeds of a population that are computed in the same operations, always as many: other numbers are filled."""
        return 1

    def constants(self) -> list[Tensor]:
        """Tensors that every update reads and that are kept from one to the next: a captured update must hold them."""
        return []

    # --- memory ------------------------------------------------------------------------------------------------------

    @property
    def memory_slots(self) -> int | None:
        """Slots of its memory; None for a model that has none.

        A model with a memory gives a trace when asked, whose `add`, `reads`, `read.weightings` and `write.weightings`
        are those of a `Trace`; the figure of the memory is drawn from them."""
        return None

    def with_memory(self, slots: int) -> Self:
        """The same model, with the same parameters, on a memory of another length."""
        raise ValueError(f"{slots} slots were asked for, but {type(self).__name__} has no memory.")

    def for_training(self, slots: int) -> Self:
        """The model that is trained where no sequence has more than so many memory slots: a model whose training costs
        less on a shorter memory overrides this."""
        return self

    def check_slots(self, most: int) -> None:
        """Refuse to train with up to `most` memory slots if the model does not have so many."""
        if self.memory_slots is None:
            raise ValueError(
                f"{most} memory slots were asked for, but {type(self).__name__} has no memory: leave slots out."
            )
        if most > self.memory_slots:
            raise ValueError(
                f"training uses up to {most} memory slots, but the tape has {self.memory_slots}: set other "
                "slots, or none."
            )

    def _as_batch(self, x: Tensor) -> tuple[Tensor, bool]:
        """x as [T, B, I], and whether it came unbatched."""
        checks.tensor("input", x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            axes = "batch, time" if self.batch_first else "time, batch"
            raise ValueError(
                f"input has shape {tuple(x.shape)}, but this model takes [{axes}, {self.input_size}], or "
                f"[time, {self.input_size}] for one sequence."
            )
        unbatched = x.ndim == 2
        x = x.unsqueeze(1) if unbatched else x.transpose(0, 1) if self.batch_first else x
        if x.shape[0] == 0:
            raise ValueError("input has no time steps, but a sequence needs at least one.")
        return x, unbatched

    def check_trainable(self) -> None:
        """Refuse what a run cannot repeat to the bit: draws from torch's own generator, and statistics in buffers."""
        for name, module in self.named_modules():
            if _drops(module):
                raise ValueError(
                    f"{type(self).__name__} has dropout ({name}), which draws numbers that a resumed run would not "
                    "draw again: leave it out."
                )
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
                raise ValueError(
                    f"{type(self).__name__} keeps running statistics ({name}), but a machine is its parameters alone: "
                    "give track_running_stats=False, or another norm."
                )

    # --- populations -------------------------------------------------------------------------------------------------

    @property
    def draws_in_training(self) -> bool:
        """Whether training draws random numbers: `loss_and_gradient` is then given `draws` too, a stream of each
        seed's own, addressed by that seed and its update."""
        return False

    def flat_parameters(self) -> Tensor:
        """A copy of this module's parameters as one vector [P], in the order of `named_parameters`."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters()])

    def load_flat(self, flat: Tensor) -> None:
        """Set this module's parameters from one vector [P]."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), self.split_flat(flat).values(), strict=True):
                parameter.copy_(value)

    def split_flat(self, flat: Tensor) -> dict[str, Tensor]:
        """Named views of flat parameters [..., P]."""
        return memory.split(flat, {name: parameter.shape for name, parameter in self.named_parameters()})

    def initial_population(self, seeds: list[int], attempt: int = 0) -> Tensor:
        """Fresh parameters [S, P], each row drawn from its own seed alone; others for every attempt."""
        rows = []
        for seed in seeds:
            number = seed
            if attempt:
                digest = hashlib.sha256(f"{seed}, attempt {attempt}".encode()).digest()
                number = int.from_bytes(digest[:8], "little")
            self.reset_parameters(torch.Generator().manual_seed(number))
            rows.append(self.flat_parameters())
        return torch.stack(rows)

    def population(self, flat: Tensor, inputs: Tensor, lengths: Tensor, slots: Tensor | None = None) -> Tensor:
        """Logits [S, T, B, O] of S machines: flat [S, P], inputs [S, T, B, I], lengths and slots [S, B]."""
        outputs = []
        for s in range(flat.shape[0]):  # one by one, so that a seed's bits do not depend on its neighbours
            given = {} if slots is None else {"slots": slots[s]}
            x = inputs[s].transpose(0, 1) if self.batch_first else inputs[s]
            y, _ = torch.func.functional_call(self, self.split_flat(flat[s]), (x, None, lengths[s]), given)
            outputs.append(y.transpose(0, 1) if self.batch_first else y)
        return torch.stack(outputs)

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
        """Each sequence's cost [S, B] in nats, and the gradient [S, P] of each seed's mean over its B sequences.

        And the gradient's sums of squares part by part, where they cost nothing: the update's contract says what for.
        checked: the caller has made a call with tensors like these, whose lengths and mask come from a sampler.
        """
        all_costs: list[Tensor] = []
        gradients: list[Tensor] = []
        for s in range(flat.shape[0]):  # one by one, so that a seed's bits do not depend on its neighbours
            steps, one = int(lengths[s].max()), slice(s, s + 1)  # without their padding: longer sums round apart
            own = flat[one].detach().clone().requires_grad_()  # a copy: at another alignment a product rounds apart
            x = inputs[one, :steps].clone()
            logits = self.population(own, x, lengths[one], None if slots is None else slots[one])
            costs = loss.nats(logits, targets[one, :steps], mask[one, :steps])
            gradients += torch.autograd.grad(costs.mean(), own)
            all_costs.append(costs.detach())
        return torch.cat(all_costs), torch.cat(gradients), None


def _drops(module: nn.Module) -> bool:
    """Whether a module of torch's drops values at random."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0


def as_counts(name: str, counts: Any, batch: int, most: int, limit: str, device: torch.device) -> Tensor:
    """One whole number from 1 to `most` for each sequence, on a device; this waits for a GPU."""
    if not isinstance(counts, Tensor):
        if isinstance(counts, Sized) and len(counts) != batch:
            raise ValueError(f"{name} has {len(counts)} entries, but {_sequences(batch)}.")
        try:
            counts = torch.as_tensor(counts)
        except (TypeError, ValueError, RuntimeError):
            kind = type(counts).__name__
            raise TypeError(f"{name} is of type {kind}, but it must be a tensor of whole numbers.") from None
    checked = checks.tensor(name, counts).to(device)
    if checked.ndim == 0 and batch == 1:  # of one sequence, which has no axis for it
        checked = checked.unsqueeze(0)
    if checked.shape != (batch,):
        raise ValueError(f"{name} has shape {tuple(checked.shape)}, but {_sequences(batch)}.")
    if batch == 0:
        return checked.long()
    if checked.dtype not in COUNTS:
        raise ValueError(f"{name} is {checked.dtype}, but it must hold whole numbers: use torch.int64.")
    if torch.compiler.is_compiling() or is_vmapped(checked):
        return checked  # its values cannot be looked at
    low, high = torch.stack(torch.aminmax(checked)).tolist()
    if low < 1 or high > most:
        raise ValueError(f"{name} run from {low} to {high}, but must lie between 1 and {limit}.")
    return checked


def _sequences(batch: int) -> str:
    return "there is one sequence" if batch == 1 else f"there are {batch} sequences"


def named_state(kind: Any, state: Any) -> Any:
    """A state as the named tuple `kind`; as in `nn.LSTM`, any tuple or list of the tensors will do."""
    if not isinstance(state, tuple | list) or len(state) != len(kind._fields):
        given = f"{type(state).__name__} of {len(state)}" if isinstance(state, tuple | list) else type(state).__name__
        raise TypeError(f"state is a {given}, but it must be a tuple of the tensors {', '.join(kind._fields)}.")
    return kind(*(checks.tensor(f"state.{name}", part) for name, part in zip(kind._fields, state, strict=True)))
