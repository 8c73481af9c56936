"""How one machine is laid out on a multiprocessor: every size that scan.cu takes as a compile-time constant.

This is the only place that knows how much on-chip memory a machine takes; scan.cu gets the offsets from here, so the
arithmetic below is the truth on both sides. Nothing here needs a GPU.

Legend as in contract.py. A block of 512 threads runs `rows` sequences of one seed, each by a team of 512 / rows threads
with a region of shared memory. What a team does along the slots is cut in two ways: a slot of the memory belongs to
`lanes` neighbouring threads, and of the link matrix a thread has four columns of some of the rows.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

from tapehead.kernels.dnc_scan.spec import DNCSpec

THREADS = 512
MOST_ROWS = 4
SEGMENT = 4
"""A link matrix is kept before every such step; the backward pass replays the others, on average 1.5 of them a step."""
HEADS_AT_ONCE = 4
"""Read heads that one pass over the links takes, with their sums in registers."""
TILE_ROWS, TILE_COLUMNS, TILE_DEPTH, TILE_THREADS = 64, 64, 32, 128
OUTPUT_THREADS = 256


def up_to(step: int, size: int) -> int:
    """The next multiple of `step`."""
    return -(-size // step) * step


def rows_of_block(batch: int) -> int:
    """Sequences that a block takes if they fit. It depends on the batch alone, and so do the bits of the results."""
    return next(rows for rows in (MOST_ROWS, 2, 1) if rows <= max(1, batch))


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: `outer` sums over `inner` inputs, cut into `splits` runs of `depth` inputs."""

    inner: int
    outer: int

    @property
    def quads(self) -> int:
        return -(-self.outer // 4)

    @property
    def depth(self) -> int:
        splits = max(1, min(THREADS // self.quads, -(-self.inner // 4)))
        return up_to(4, -(-self.inner // splits))

    @property
    def splits(self) -> int:
        return -(-self.inner // self.depth)

    @property
    def inputs(self) -> int:
        """Floats of the input vector, with its padding."""
        return self.splits * self.depth

    @property
    def sums(self) -> int:
        """Floats of the sums of one sequence."""
        return 4 * self.quads * self.splits

    @property
    def weights(self) -> int:
        """float4 of the packed weights."""
        return self.inputs * self.quads

    def resident(self, room: int) -> int:
        """How many inputs of every run have room for their weights, so many bytes."""
        return min(self.depth, room // (16 * self.splits * self.quads) // 4 * 4)


@dataclasses.dataclass(frozen=True)
class Layout:
    """One pass: how many sequences a block has, what is in shared memory, and the places in a sequence's region."""

    rows: int
    lanes: int
    link_lanes: int
    tape_shared: bool
    link_shared: bool
    places: Mapping[str, int]
    size: int
    work: Mapping[str, int]
    work_size: int
    resident: Mapping[str, int]
    """By product, how many inputs of every run keep their weights in shared memory, behind the regions."""
    weights: Mapping[str, int]
    weights_size: int

    @property
    def team(self) -> int:
        return THREADS // self.rows

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.rows * self.size + self.weights_size)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The layout of a machine on a tape of so many slots; shared_limit: bytes that a block may have."""

    spec: DNCSpec
    tape: int
    shared_limit: int
    most_rows: int = MOST_ROWS

    # --- sizes --------------------------------------------------------------------------------------------------------

    @property
    def lstm(self) -> bool:
        return self.spec.controller == "lstm"

    @property
    def gates(self) -> int:
        return (4 if self.lstm else 1) * self.spec.controller_size

    @property
    def reads(self) -> int:
        return self.spec.read_heads * self.spec.memory_width

    @property
    def own_units(self) -> int:
        """What a layer sees of its own hidden values."""
        return self.spec.controller_size * self.lstm

    @property
    def columns(self) -> tuple[int, int]:
        """Inputs of the first layer and of those above it."""
        below = self.spec.input_size + self.reads
        return below + self.own_units, self.spec.controller_size + self.own_units

    @property
    def padded(self) -> int:
        return up_to(4, self.tape)

    @property
    def state_size(self) -> int:
        return (self.spec.read_heads + 3) * self.padded

    @property
    def vectors_size(self) -> int:
        heads, reading = self.spec.read_heads + 1, self.spec.read_heads
        return (2 * heads + (4 if self.spec.link_sharpness else 2) * reading + 2) * self.padded

    @functools.cached_property
    def stride(self) -> int:
        """Of a slot in shared memory: neighbouring slots and lanes then meet in few banks."""
        lanes, width = self._lanes(THREADS // self.most_rows), self.spec.memory_width
        if lanes >= 32:
            return width
        return next(stride for stride in range(width, width + 2 * lanes) if stride % (2 * lanes) == lanes)

    @property
    def tape_size(self) -> int:
        return up_to(4, self.tape * self.stride)

    @property
    def link_size(self) -> int:
        return self.tape * self.padded

    @property
    def summary(self) -> int:
        """What the output layer sees."""
        return self.spec.output_inputs

    @property
    def seen_width(self) -> int:
        first, upper = (up_to(4, width) for width in self.columns)
        return up_to(4, self.summary) + first + (self.spec.controller_layers - 1) * upper

    @property
    def gradient_width(self) -> int:
        """Of a step: gradients of all gates and of the interface."""
        return self.spec.controller_layers * up_to(4, self.gates) + up_to(4, self.spec.interface.size)

    def rows_size(self, steps: int) -> int:
        """Floats of one sequence that even a forward pass without gradient writes down."""
        return steps * up_to(4, self.summary)

    def kept_size(self, steps: int) -> int:
        """Floats of one sequence that the forward pass writes down for the backward pass: see `Kept` in scan.cu."""
        layers = self.spec.controller_layers
        controller = steps * layers * up_to(4, self.gates)
        if self.lstm:
            controller += (steps + 1) * layers * up_to(4, self.spec.controller_size)
        own = self.seen_width + up_to(4, self.spec.interface.size) + self.vectors_size + self.tape_size
        links = -(-steps // SEGMENT) * self.link_size
        return steps * own + controller + (steps + 1) * self.state_size + links

    # --- products -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def products(self) -> dict[str, Product]:
        units, size = self.spec.controller_size, self.spec.interface.size
        first, upper = self.columns
        return {
            "FIRST": Product(first + 1, self.gates),
            "UPPER": Product(upper + 1, self.gates),
            "ASK": Product(units + 1, size),
            "FIRST_BACK": Product(self.gates, self.reads + self.own_units),
            "UPPER_BACK": Product(self.gates, upper),
            "ASK_BACK": Product(size, units),
        }

    @functools.cached_property
    def packed(self) -> int:
        """float4 of a seed's packed weights."""
        several = {"UPPER": self.spec.controller_layers - 1, "UPPER_BACK": self.spec.controller_layers - 1}
        return sum(several.get(name, 1) * product.weights for name, product in self.products.items())

    # --- shared memory ------------------------------------------------------------------------------------------------

    def _lanes(self, team: int) -> int:
        most = min(32, self.spec.memory_width, max(1, team // self.tape))
        return 1 << (most.bit_length() - 1)

    def _link_lanes(self) -> int:
        return 1 << (self.padded // 4 - 1).bit_length()

    @functools.cached_property
    def forward(self) -> Layout | None:
        return self._fitting(False)

    @functools.cached_property
    def backward(self) -> Layout | None:
        return self._fitting(True)

    def _fitting(self, backward: bool) -> Layout | None:
        """With as many sequences as fit; a single one may have links, then its memory, too, in global memory."""
        tries = [(rows, True, True) for rows in (4, 2, 1) if rows <= self.most_rows]
        for rows, link_shared, tape_shared in [*tries, (1, False, True), (1, False, False)]:
            if self._link_lanes() > THREADS // rows:
                continue
            layout = self._layout(backward, rows, link_shared, tape_shared)
            if layout.shared_bytes <= self.shared_limit:
                return layout
        return None

    def _layout(self, backward: bool, rows: int, link_shared: bool, tape_shared: bool) -> Layout:
        team = THREADS // rows
        region = self._region(backward, team)
        work = {"WORK_LINK": 0 if link_shared else self.link_size, "WORK_TAPE": 0 if tape_shared else self.tape_size}
        region |= dict(LINK=self.link_size * link_shared, MEMORY=self.tape_size * tape_shared)
        if backward:
            region["TAPE_BEFORE"] = self.tape_size * tape_shared
        places, size = _places(region)
        work_places, work_size = _places(work)
        resident, kept = {}, {}
        room = self.shared_limit - 4 * rows * size
        for name in ("ASK_BACK", "FIRST_BACK") if backward else ("ASK", "FIRST"):
            product = self.products[name]
            resident[name] = product.resident(max(0, room))
            kept[name] = 4 * resident[name] * product.splits * product.quads
            room -= 4 * kept[name]
        weights, end = _places(kept, rows * size)
        return Layout(
            rows=rows,
            lanes=self._lanes(team),
            link_lanes=self._link_lanes(),
            tape_shared=tape_shared,
            link_shared=link_shared,
            places=places,
            size=size,
            work=work_places,
            work_size=work_size,
            resident=resident,
            weights=weights,
            weights_size=end - rows * size,
        )

    def _region(self, backward: bool, team: int) -> dict[str, int]:
        """Floats of a sequence's region by name, without memory and links."""
        spec, n = self.spec, self.padded
        heads, width, units = spec.read_heads + 1, up_to(4, spec.memory_width), spec.controller_size
        hidden, products = spec.recurrent_layers * units, self.products
        columns, rows = _link_parts(team, self._link_lanes())
        links = (columns * (spec.read_heads + 2 * backward) + rows * (spec.read_heads + backward)) * n
        used = [name for name in products if name.endswith("BACK") == backward]
        scratch = max(links, *(products[name].sums for name in used))
        sizes = dict(SCRATCH=scratch, STATE=self.state_size * (2 if backward else 1), VECTORS=self.vectors_size)
        sizes |= dict(RAW=spec.interface.size, KEYS=heads * width, ERASE=width, ADD=width, SCALARS=8 * heads)
        masks = heads * width * spec.masked_content
        sizes |= dict(TOTAL=2, PSI=n, MASKS=masks, FOCUSES=masks)
        if not backward:
            upper = products["UPPER"].inputs * (spec.controller_layers - 1)
            return sizes | dict(
                X_FIRST=products["FIRST"].inputs, X_UPPER=upper, X_ASK=products["ASK"].inputs, CELL=hidden
            )
        sizes |= dict(D_STATE=self.state_size, D_PSI=n, NORMS=(heads if spec.masked_content else 2) * n)
        sizes |= dict(REPLAY=2 * (SEGMENT - 1) * n, KEY_SUMS=heads * width, SQUARES=masks, D_ERASE=width, D_ADD=width)
        gates = max(products[name].inputs for name in ("FIRST_BACK", "UPPER_BACK"))
        sizes |= dict(D_SCALARS=8 * heads, D_RAW=products["ASK_BACK"].inputs, D_GATES=gates, D_SEEN=self.summary)
        return sizes | dict(D_READS=self.reads, D_HIDDEN=max(units, hidden), D_CELL=hidden)

    def refusal(self) -> str | None:
        """One sentence if this machine does not fit."""
        if self._link_lanes() > THREADS:
            return f"the GPU kernel has at most {4 * THREADS} slots, and this tape {self.tape}."
        for word, layout in (("forward", self.forward), ("backward", self.backward)):
            if layout is None:
                need = self._layout(word == "backward", 1, False, False).shared_bytes
                return (
                    f"the GPU kernel does not fit this machine: its {word} pass on {self.tape} slots needs {need} "
                    f"bytes of shared memory, without memory and links, and this device gives a block "
                    f"{self.shared_limit}."
                )
        return None

    @property
    def work_size(self) -> int:
        """Floats of a sequence in global memory, of what does not fit into shared memory."""
        return max(layout.work_size for layout in (self.forward, self.backward) if layout is not None)

    # --- the weight gradients -----------------------------------------------------------------------------------------

    def jobs(self) -> list[dict[str, int]]:
        """One matrix product for each weight and its bias, by field of `GradientJob`.

        d_at: where the gradients of its outputs stand among those of a step, -1 for the output layer's; seen_at: where
        its inputs stand in what the layers saw.
        """
        spec, offsets = self.spec, self.offsets
        layers, gates, summary = spec.controller_layers, up_to(4, self.gates), up_to(4, self.summary)
        first, upper = self.columns
        jobs = [
            dict(
                rows=self.gates, columns=upper if layer else first, d_at=layer * gates,
                seen_at=summary + (up_to(4, first) + (layer - 1) * up_to(4, upper) if layer else 0),
                weight=offsets[f"controller.weight_{layer}"], bias=offsets[f"controller.bias_{layer}"],
            )
            for layer in range(layers)
        ]  # fmt: skip
        for name, rows, columns, d_at in (
            ("interface", spec.interface.size, spec.controller_size, layers * gates),
            ("output", spec.output_size, self.summary, -1),
        ):
            places = dict(weight=offsets[f"{name}.weight"], bias=offsets[f"{name}.bias"])
            jobs.append(dict(rows=rows, columns=columns, d_at=d_at, seen_at=0) | places)
        return jobs

    @functools.cached_property
    def tiles(self) -> int:
        return sum((job["columns"] // TILE_COLUMNS + 1) * -(-job["rows"] // TILE_ROWS) for job in self.jobs())

    @functools.cached_property
    def offsets(self) -> dict[str, int]:
        """Of the parameters in a seed's flat vector."""
        offsets, at = {}, 0
        for name, shape in self.spec.parameter_shapes.items():
            offsets[name] = at
            at += math.prod(shape)
        return offsets

    # --- the source ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def header(self) -> str:
        """The constants, as the first lines of the CUDA source."""
        spec, offsets, products = self.spec, self.offsets, self.products
        read, write = spec.interface.read, spec.interface.write
        assert read["key"].start == write["key"].start == 0, "scan.cu takes keys from the beginning of a head's entries"
        layers = spec.controller_layers
        numbers: dict[str, int | bool] = {
            "THREADS": THREADS, "SEGMENT": SEGMENT, "HEADS_AT_ONCE": HEADS_AT_ONCE, "OUTPUT_THREADS": OUTPUT_THREADS,
            "TILE_ROWS": TILE_ROWS, "TILE_COLUMNS": TILE_COLUMNS, "TILE_DEPTH": TILE_DEPTH,
            "TILE_THREADS": TILE_THREADS,
            "INPUTS": spec.input_size, "OUTPUTS": spec.output_size, "UNITS": spec.controller_size, "LAYERS": layers,
            "READ_HEADS": spec.read_heads, "WIDTH": spec.memory_width, "TAPE": self.tape, "LSTM": self.lstm,
            "ONEPLUS": spec.strength == "oneplus", "DETACHED": spec.detached_usage, "MASKED": spec.masked_content,
            "DEALLOCATION": spec.deallocation, "SHARP": spec.link_sharpness,
            "READ_ENTRIES": read.size, "WRITE_ENTRIES": write.size,
            **{f"READ_{name.upper()}": read[name].start for name in read.sizes if name != "key"},
            **{f"WRITE_{name.upper()}": write[name].start for name in write.sizes if name != "key"},
            "PADDED": self.padded, "STRIDE": self.stride, "TAPE_SIZE": self.tape_size, "LINK_SIZE": self.link_size,
            "STATE_SIZE": self.state_size, "VECTORS_SIZE": self.vectors_size, "SEEN_WIDTH": self.seen_width,
            "WIDTH_PADDED": up_to(4, spec.memory_width), "UNITS_PADDED": up_to(4, spec.controller_size),
            "GATES_PADDED": up_to(4, self.gates), "INTERFACE_PADDED": up_to(4, spec.interface.size),
            "SUMMARY_PADDED": up_to(4, self.summary), "D_WIDTH": self.gradient_width,
            "FIRST_PADDED": up_to(4, self.columns[0]), "UPPER_PADDED": up_to(4, self.columns[1]),
            "UPPER_INPUTS": products["UPPER"].inputs, "PARAMETERS": spec.parameter_count,
            "WEIGHT_FIRST": offsets["controller.weight_0"],
            "WEIGHT_UPPER": offsets["controller.weight_1"] if layers > 1 else 0,
            "INTERFACE_WEIGHT": offsets["interface.weight"], "INTERFACE_BIAS": offsets["interface.bias"],
            "OUTPUT_WEIGHT": offsets["output.weight"], "OUTPUT_BIAS": offsets["output.bias"],
        }  # fmt: skip
        lines = [f"constexpr int {name} = {int(value)};" for name, value in numbers.items()]
        lines += [f"#define PRODUCT_{name} {product.splits}, {product.depth}" for name, product in products.items()]
        for name, layout in (("Forward", self.forward), ("Backward", self.backward)):
            assert layout is not None, "a plan that is refused has no source"
            lines.append(_struct(name, layout, self.spec.read_heads + 2 * (name == "Backward"), self.padded))
        jobs = self.jobs()
        fields = ", ".join(jobs[0])
        rows = ", ".join("{" + ", ".join(map(str, job.values())) + "}" for job in jobs)
        lines.append(f"struct GradientJob {{ int {fields}; }};")
        lines.append(f"__device__ const GradientJob GRADIENT_JOBS[] = {{{rows}}};")
        return "\n".join(lines) + "\n"


def _places(sizes: Mapping[str, int], at: int = 0) -> tuple[dict[str, int], int]:
    """One part after the other, each at a multiple of four floats; and where the last ends."""
    places = {}
    for name, size in sizes.items():
        places[name] = at
        at += up_to(4, size)
    return places, at


def _link_parts(team: int, lanes: int) -> tuple[int, int]:
    """How many sums of a column, and of a row, come from different warps."""
    return team // max(32, lanes), max(1, lanes // 32)


def _struct(name: str, layout: Layout, column_sums: int, padded: int) -> str:
    columns, rows = _link_parts(layout.team, layout.link_lanes)
    numbers = {
        "ROWS": layout.rows, "TEAM": layout.team, "WARPS": layout.team // 32, "LANES": layout.lanes,
        "LINK_LANES": layout.link_lanes, "LINK_GROUPS": layout.team // layout.link_lanes,
        "COLUMN_PARTS": columns, "ROW_PARTS": rows, "ROW_SUMS": columns * column_sums * padded,
        "TAPE_SHARED": int(layout.tape_shared), "LINK_SHARED": int(layout.link_shared), "REGION": layout.size,
        **layout.places, **layout.work,
        **{f"RESIDENT_{product}": count for product, count in layout.resident.items()},
        **{f"WEIGHTS_{product}": place for product, place in layout.weights.items()},
    }  # fmt: skip
    fields = ", ".join(f"{field} = {value}" for field, value in numbers.items())
    return f"struct {name} {{ static constexpr int {fields}; }};"
