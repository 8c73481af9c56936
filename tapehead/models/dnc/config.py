"""Every choice that makes a Differentiable Neural Computer, with its default and the reason for it.

The defaults are the equations of Graves et al. (2016). What implementations do otherwise, and what was proposed later,
are options (docs/dnc.md).
"""

import dataclasses
import functools

from tapehead import checks
from tapehead.kernels.dnc_scan.spec import DNCSpec, Strength
from tapehead.kernels.machine_spec import MOST_LAYERS, controller_name
from tapehead.models.parameters import MachineConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DNCConfig(MachineConfig):
    """The options of `DNC` and `DNCCell`."""

    # --- of the paper ------------------------------------------------------------------------------------------------
    controller: str = "lstm"
    """lstm, feedforward, or a subclass of `tapehead.Controller` as module:Class."""
    controller_size: int = 100
    controller_layers: int = 1
    read_heads: int = 4
    memory_slots: int = 128
    """As in an `NTM`. Every sequence also has a link matrix of so many rows and columns."""
    memory_width: int = 20

    # --- what implementations do otherwise ---------------------------------------------------------------------------
    strength: Strength = "oneplus"
    """Of keys: oneplus, 1 + log(1 + e^x), as in the paper; or softplus, as in the code that its authors released."""
    detached_usage: bool = False
    """No gradient flows from the usage to the write weightings that raised it, as in the code that was released."""

    # --- improvements of Csordas and Schmidhuber (2019) --------------------------------------------------------------
    masked_content: bool = False
    """Every key has a mask: the cosine is that of the entries which the mask lets through."""
    deallocation: bool = False
    """What the free gates free is also erased, so that it is no longer found by content."""
    link_sharpness: bool = False
    """Forward and backward weightings are sharpened by exponents of at least 1, and normalised."""

    # --- where parameters start --------------------------------------------------------------------------------------
    forget_bias: float = 1.0
    """Initial bias of an LSTM controller's forget gates."""
    strength_bias: float = 0.0
    """Initial bias of the key strengths, before their activation."""
    free_gate_bias: float = 0.0
    """Initial bias of the free gates: negative starts with a memory that is not freed."""
    content_mode_bias: float = 0.0
    """Initial bias of the content mode of reads: positive starts with reads by content; 30 leaves the links out."""
    allocation_gate_bias: float = 0.0
    """Initial bias of the allocation gate: positive starts with writes to unused slots."""
    write_gate_bias: float = 0.0
    """Initial bias of the write gate."""

    def check(self) -> None:
        checks.sizes(self, least={}, most={"controller_layers": MOST_LAYERS})
        object.__setattr__(self, "controller", controller_name(self.controller))
        widest = max(self.memory_width, self.memory_slots, self.read_heads)
        checks.affordable("parameters", self.spec.parameter_count)
        checks.affordable("entries of a memory and its links", self.memory_slots * widest)

    @functools.cached_property
    def spec(self) -> DNCSpec:
        return DNCSpec(**{field.name: getattr(self, field.name) for field in dataclasses.fields(DNCSpec)})
