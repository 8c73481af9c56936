"""Every choice that makes a Neural Turing Machine, with its default and the reason for it.

What the paper leaves open is an option here. The defaults are the plainest choice; what helps a task to be learned is
in its recipe (docs/recipes.md).
"""

import dataclasses
import functools
from typing import Literal

from tapehead import checks
from tapehead.kernels.machine_spec import MOST_LAYERS, controller_name
from tapehead.kernels.ntm_scan.spec import AddActivation, KeyActivation, Order, OutputFrom, ScanSpec, Shift
from tapehead.models.parameters import MachineConfig
from tapehead.typed import with_field_texts

InitialMemory = Literal["constant", "random", "addresses", "learned", "given"]
InitialWeightings = Literal["first", "spread", "uniform", "learned", "zeros"]
InitialReads = Literal["zeros", "learned", "memory"]
InitialController = Literal["zeros", "learned"]

ADDRESS_DIGITS = 7  # enough for the paper's 128 slots; slots with longer numbers are blank


@with_field_texts
@dataclasses.dataclass(frozen=True, kw_only=True)
class NTMConfig(MachineConfig):
    """The options of `NTM` and `NTMCell`."""

    # --- said by the paper -------------------------------------------------------------------------------------------
    controller: str = "lstm"
    """lstm, feedforward, or a subclass of `tapehead.Controller` as module:Class."""
    controller_size: int = 100
    controller_layers: int = 1
    num_heads: int = 1
    """Read heads, with as many write heads, as in Tables 1 and 2."""
    memory_slots: int = 128
    memory_width: int = 20
    shift: Shift = "softmax"
    """Section 3.3.2: a softmax over integer shifts, or a scalar, the lower end of a width-one uniform distribution."""

    # --- left open by the paper --------------------------------------------------------------------------------------
    shift_range: int = 1
    """Largest shift in one step. The scalar shift lies in [-r, r] through a tanh."""
    read_heads: int | None = None
    """Read heads if they differ from `num_heads`."""
    write_heads: int | None = None
    """Write heads if they differ from `num_heads`."""
    initial_memory: InitialMemory = "constant"
    """constant: `initial_memory_value` everywhere; learned: one learned row for all slots. By the others slots can be
    told apart. random: a fixed pattern of numbers within +- `initial_memory_scale`; addresses: every slot begins with
    its own number in binary, the lowest digit first, as +- `initial_memory_scale`, and zeros behind it; given: a row of
    its own for each slot, set by `set_initial_memory` and otherwise learned. On a longer tape, further slots begin at
    `initial_memory_value`."""
    initial_memory_value: float = 1e-6
    """Collier and Beel (2018) found a small constant to be the most reliable start."""
    initial_memory_scale: float = 0.1
    """Of the random pattern or the digits; what a machine adds is of size 1 under `add_activation` tanh."""
    initial_weightings: InitialWeightings = "first"
    """first: all heads on slot 0; spread: head h on slot h; uniform: everywhere (identical rows then never
    differentiate); learned: softmax of -rate * slot, one learned rate per head, so that it fits any tape; zeros:
    nowhere, so that content alone decides the first step."""
    initial_reads: InitialReads = "zeros"
    """zeros; learned; or memory: what the initial weightings read from the initial memory."""
    initial_controller: InitialController = "zeros"
    """Hidden and cell state of an LSTM controller at the start of a sequence."""
    order: Order = "write_then_read"
    """write_then_read: reads see what this step wrote; read_then_write: both address the old memory."""
    key_activation: KeyActivation = "linear"
    """Of the key vectors. The cosine does not see a key's length, so linear loses nothing; tanh bounds the gradient."""
    add_activation: AddActivation = "linear"
    """Of the add vectors: linear lets the memory hold any value; tanh and sigmoid keep it bounded."""
    output_from: OutputFrom = "hidden_and_reads"
    """What the output layer sees: hidden state and this step's reads, or the hidden state alone."""
    forget_bias: float = 1.0
    """Initial bias of an LSTM controller's forget gates."""
    read_gate_bias: float = 0.0
    """Initial bias of the read heads' interpolation gates: positive starts by content, negative by location."""
    write_gate_bias: float = 0.0
    """The same for the write heads' interpolation gates."""
    strength_bias: float = 0.0
    """Initial bias of the key strengths, before the softplus."""
    sharpen_bias: float = 0.0
    """Initial bias of the sharpening, before the softplus."""
    interface_clip: float | None = None
    """Clip the interface vector to +- this before the activations (Collier and Beel: 20)."""

    # --- not in the paper --------------------------------------------------------------------------------------------
    write_gate: bool = False
    """Not in the paper: a scalar gate per write head, as in the DNC, that scales its weighting when it writes."""

    def check(self) -> None:
        checks.sizes(self, least={"shift_range": 0}, most={"controller_layers": MOST_LAYERS})
        object.__setattr__(self, "controller", controller_name(self.controller))
        if self.initial_memory == "addresses" and self.memory_width < ADDRESS_DIGITS:
            raise ValueError(
                f"initial_memory is 'addresses', which have {ADDRESS_DIGITS} digits, but memory_width is "
                f"{self.memory_width}: give a larger width, or another initial memory."
            )
        if self.shift == "scalar" and self.shift_range < 1:
            raise ValueError("shift_range is 0, but a scalar shift needs a range of at least 1.")
        widest = max(self.memory_width, self.spec.read_heads, self.spec.write_heads)
        checks.affordable("parameters", self.spec.parameter_count)
        checks.affordable("entries of a tape", self.memory_slots * widest)

    @functools.cached_property
    def spec(self) -> ScanSpec:
        """The part that a kernel must know."""
        shared = {field.name for field in dataclasses.fields(ScanSpec)} - {"read_heads", "write_heads"}
        return ScanSpec(
            read_heads=self.read_heads or self.num_heads,
            write_heads=self.write_heads or self.num_heads,
            **{name: getattr(self, name) for name in shared},
        )
