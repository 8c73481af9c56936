"""What plans of all machines with a controller and a memory have in common: the controller's sizes and places."""

import dataclasses
from typing import Any

from tapehead.kernels.machine_spec import MachineSpec
from tapehead.kernels.ntm_scan.cpu.compiled.plan import BINARY, CATEGORICAL, GAP, PENDING
from tapehead.kernels.ntm_scan.cpu.compiled.rows import GROUP_ROWS

LOSSES = {"binary": BINARY, "categorical": CATEGORICAL}
SEGMENT = (
    8  # what is as large as a memory is kept before every 8th step; the backward pass replays the writes in between
)


def rows_per_group(batch: int) -> int:
    """How many sequences of a seed run in lockstep. It depends on nothing else, and so do the bits of the gradients."""
    return min(GROUP_ROWS, -(-batch // 4))


def up(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return (size + step - 1) // step * step


class Offsets:
    """Parts one after the other; each begins at a multiple of 64 bytes (of float32)."""

    def __init__(self, **sizes: int) -> None:
        self.offsets: dict[str, int] = {}
        self.size = 0
        for name, size in sizes.items():
            self.offsets[name] = self.size
            self.size += up(size, 16) + GAP


@dataclasses.dataclass(frozen=True)
class Layout:
    """A machine's controller, interface and output layer in a plan.

    mode: forward (nothing kept), keep, trace (keep every memory), backward or train, which has a loss.
    """

    spec: MachineSpec
    mode: str

    @property
    def back(self) -> bool:
        return self.mode in ("backward", "train")

    @property
    def segment(self) -> int:
        return 1 if self.mode == "trace" else SEGMENT

    @property
    def lstm(self) -> bool:
        return self.spec.controller == "lstm"

    @property
    def gates(self) -> int:
        return (4 if self.lstm else 1) * self.spec.controller_size

    @property
    def widths(self) -> tuple[int, int]:
        """Of the inputs of the first layer and of the others."""
        own = self.spec.controller_size * self.lstm
        return (
            self.spec.input_size + self.spec.read_heads * self.spec.memory_width + own,
            self.spec.controller_size + own,
        )

    @property
    def hidden_stride(self) -> int:
        return up(self.spec.controller_size + 1, 16)

    @property
    def summary(self) -> int:
        return self.hidden_stride + up(self.spec.read_heads * self.spec.memory_width, 16)

    @property
    def strides(self) -> list[tuple[int, int]]:
        """Packed columns and rows of each matrix: the layers, the interface, the output."""
        spec, (first, following) = self.spec, self.widths
        found = [(up(first + 1, 16), up(self.gates, 8))]
        found += [(up(following + 1, 16), up(self.gates, 8))] * (spec.controller_layers - 1)
        sees_reads = spec.output_inputs > spec.controller_size
        output = self.summary if sees_reads else self.hidden_stride
        return [*found, (self.hidden_stride, up(spec.interface.size, 8)), (output, up(spec.output_size, 8))]

    def steps(self, steps: int) -> int:
        """Steps that a record has room for."""
        return 2 if self.mode == "forward" else steps

    def sizes(self, seeds: int, steps: int, batch: int, slots: int, loss: str) -> dict[str, int]:
        """Fields of a plan by name."""
        spec, rows, (first, following) = self.spec, rows_per_group(batch), self.widths
        c, face, strides = spec.controller_size, spec.interface.size, self.strides
        interface_p = self.gates * (first + 1) + (spec.controller_layers - 1) * self.gates * (following + 1)
        return dict(
            S=seeds,
            T=steps,
            B=batch,
            N=slots,
            I=spec.input_size,
            O=spec.output_size,
            C=c,
            L=spec.controller_layers,
            R=spec.read_heads,
            M=spec.memory_width,
            P=spec.parameter_count,
            lstm=int(self.lstm),
            forward=int(self.mode != "backward"),
            backward=int(self.back),
            loss=LOSSES[loss] if self.mode == "train" else 0,
            keep=int(self.mode in ("keep", "trace", "backward")),
            segment=self.segment,
            time_mask=1 if self.mode == "forward" else -1,
            rows=rows,
            groups=-(-batch // rows) if rows else 0,
            first_width=first,
            next_width=following,
            first_stride=strides[0][0],
            next_stride=up(following + 1, 16),
            gates=self.gates,
            gates_stride=up(self.gates, 8),
            hidden_stride=self.hidden_stride,
            summary=self.summary,
            output_width=spec.output_inputs,
            output_stride=strides[-1][0],
            logits_stride=up(spec.output_size, 8),
            F=face,
            F_stride=up(face, 8),
            raw_read=spec.interface.read.size,
            raw_write=spec.interface.write.size,
            interface_p=interface_p,
            output_p=interface_p + face * (c + 1),
            steps=self.steps(steps),
        )

    def record(self, steps: int) -> dict[str, int]:
        """Parts of a row's record that are the controller's."""
        spec, layers, (first, following) = self.spec, self.spec.controller_layers, self.widths
        return dict(
            v_at=(up(first + 1, 16) + (layers - 1) * up(following + 1, 16)) * steps,
            gates_at=layers * steps * up(self.gates, 8),
            tanh_at=layers * steps * spec.controller_size * self.lstm,
            cells_at=layers * (steps + 1) * spec.controller_size * self.lstm,
            summary_at=steps * self.summary,
            raw_at=steps * up(spec.interface.size, 8),
            logits_at=steps * up(spec.output_size, 8),
        )

    def work(self) -> dict[str, int]:
        """The same of a row's working memory."""
        hidden = self.spec.controller_layers * self.spec.controller_size
        reads = self.spec.read_heads * self.spec.memory_width
        widest = max(rows for _, rows in self.strides)
        back: Any = dict(
            d_hidden_w=hidden,
            d_cell_w=hidden,
            d_reads_w=reads,
            d_summary_w=self.summary,
            d_v_w=max(stride for stride, _ in self.strides),
            d_logits_w=widest,
            d_gates_w=widest,
            d_raw_w=widest,
        )
        return dict(hidden_w=hidden, reads_w=reads) | {name: size * self.back for name, size in back.items()}

    def weights(self) -> dict[str, int]:
        """Parts of a group's working memory that hold the weights and their gradients; the last ones there."""
        packed = sum(stride * rows for stride, rows in self.strides)
        pending = PENDING * sum(stride + rows for stride, rows in self.strides)
        return dict(packed_g=packed, d_packed_g=packed * self.back, pending_g=pending * self.back)
