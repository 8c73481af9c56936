"""How one machine is laid out on a multiprocessor: every size that scan.cu takes as a compile-time constant.

This is the only place that knows how much on-chip memory a machine takes; scan.cu gets the offsets from here, so the
arithmetic below is the truth on both sides. Nothing here needs a GPU.

Legend as in contract.py. One block of 256 or 512 threads runs one sequence. A memory slot belongs to a team of
`lanes_per_slot` neighbouring lanes, each with `columns` of the slot's M values in registers.

A matrix product y[out] = sum_k W[out, k] x[k] is cut among the threads: a thread owns four neighbouring outputs (a
group) and `depth` values of k (one of `splits`), and so a private list of `depth` float4 of weights. The first
`in_registers` of them stay in registers, the next `in_shared` in shared memory, the rest is streamed from global memory
at every step.
"""

import dataclasses
import functools
import math

from tapehead.kernels.ntm_scan.spec import ScanSpec

FEW_THREADS, MOST_THREADS = 256, 512
FEW_TAPE_VALUES = 20  # of the memory in one thread's registers, for few threads to be worth it
MOST_TAPE_VALUES = 64
OUTPUTS_PER_THREAD = 4  # of one product
MOST_OUTPUTS = OUTPUTS_PER_THREAD * MOST_THREADS
MOST_SPLITS = 32  # partial sums that one thread adds up
TILE_ROWS, TILE_COLUMNS = 64, 80  # of the weight gradient's matrix product


def up_to(multiple: int, value: int) -> int:
    return -(-value // multiple) * multiple


@dataclasses.dataclass(frozen=True)
class Product:
    """One matrix product of a step, and where its weights live."""

    name: str
    outputs: int
    inner: int  # values of k
    splits: int
    depth: int
    count: int = 1  # layers that have one of their own
    in_registers: int = 0
    in_shared: int = 0

    @property
    def groups(self) -> int:
        return -(-self.outputs // 4)

    @property
    def active(self) -> int:
        """Threads with work."""
        return self.groups * self.splits

    @property
    def vector(self) -> int:
        """Floats of the input vector, with each split's part aligned to 16 bytes."""
        return self.splits * up_to(4, self.depth)

    @property
    def partials(self) -> int:
        return self.active * 4

    @property
    def streamed(self) -> int:
        return self.depth - self.in_registers - self.in_shared

    @property
    def row_bytes(self) -> int:
        """Shared memory of one row of all threads' lists, in all layers."""
        return 16 * self.active * self.count


def _product(threads: int, name: str, outputs: int, inner: int, count: int = 1, splits: int | None = None) -> Product:
    """`splits` is given where two products add into the same sums."""
    groups = -(-outputs // OUTPUTS_PER_THREAD)
    if splits is not None:
        return Product(name, outputs, inner, splits, -(-inner // splits), count)
    most = max(1, min(threads // groups, MOST_SPLITS))
    depth = up_to(4, -(-inner // most))
    return Product(name, outputs, inner, -(-inner // depth), depth, count)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The layout of one specification on one kind of device."""

    spec: ScanSpec
    tape: int
    shared_limit: int  # bytes one block may have

    @functools.cached_property
    def threads(self) -> int:
        """Of a block. All lanes of a slot repeat what is computed once per slot, so few threads have less to do; many
        are for wide controllers and long tapes."""
        widest = max(self.gates, self.spec.interface.size, self.reads)
        fits = widest <= OUTPUTS_PER_THREAD * FEW_THREADS and self.spec.input_size <= FEW_THREADS
        values = self._tape_values(FEW_THREADS)
        small = values <= max(FEW_TAPE_VALUES, self._tape_values(MOST_THREADS))
        return FEW_THREADS if fits and small else MOST_THREADS

    def _lanes(self, threads: int) -> int:
        lanes = 8
        while lanes > 1 and (lanes * self.tape > threads or lanes > up_to(2, self.spec.memory_width)):
            lanes //= 2
        return lanes

    def _tape_values(self, threads: int) -> int:
        """Values of the memory that each thread has in registers."""
        lanes = self._lanes(threads)
        return -(-self.tape // (threads // lanes)) * -(-self.spec.memory_width // lanes)

    @property
    def warps(self) -> int:
        return self.threads // 32

    @property
    def lanes_per_slot(self) -> int:
        return self._lanes(self.threads)

    @property
    def slot_teams(self) -> int:
        return self.threads // self.lanes_per_slot

    @property
    def slots_per_thread(self) -> int:
        return -(-self.tape // self.slot_teams)

    @property
    def columns(self) -> int:
        return -(-self.spec.memory_width // self.lanes_per_slot)

    @property
    def padded_width(self) -> int:
        return self.columns * self.lanes_per_slot

    @property
    def slot_warps(self) -> int:
        """Warps that hold slots."""
        return -(-min(self.tape, self.slot_teams) * self.lanes_per_slot // 32)

    @property
    def heads(self) -> int:
        return self.spec.read_heads + self.spec.write_heads

    @property
    def gates(self) -> int:
        """Rows of a controller layer's weight."""
        return self.spec.controller_size * (4 if self.spec.controller == "lstm" else 1)

    @property
    def reads(self) -> int:
        return self.spec.read_heads * self.spec.memory_width

    @property
    def taps(self) -> int:
        return 2 * self.spec.shift_range + 1

    @property
    def row_width(self) -> int:
        """Reads and all layers' hidden values of one step, kept for the weight gradients."""
        return up_to(4, self.reads + self.spec.controller_layers * self.spec.controller_size)

    @property
    def gradient_width(self) -> int:
        """Gradients of all gates, of the interface, and of what the output layer saw, at one step."""
        spec = self.spec
        return up_to(4, spec.controller_layers * self.gates + spec.interface.size + spec.controller_size + self.reads)

    @property
    def output_width(self) -> int:
        return self.spec.controller_size + (self.reads if self.spec.output_from == "hidden_and_reads" else 0)

    @property
    def read_sums(self) -> int:
        """Sums over the slots that the backward pass takes for a read head; see `HeadSums` in scan.cu."""
        return self.padded_width + 6 + self.taps

    @property
    def write_sums(self) -> int:
        return self.read_sums + 2 * self.padded_width

    def kept_size(self, steps: int) -> int:
        """Floats that the forward pass keeps of one sequence for the backward pass."""
        spec = self.spec
        lstm = spec.recurrent_layers * up_to(4, spec.controller_size) * 5
        interface = 2 * up_to(4, spec.interface.size)
        slots = 4 * self.heads * self.tape
        tape = self.slots_per_thread * self.columns * self.slot_warps * 32
        return self.rows_size(steps) + steps * (lstm + interface + slots + tape)

    def rows_size(self, steps: int) -> int:
        """Floats of one sequence that even a forward pass without gradient writes down: reads and hidden values."""
        return (steps + 1) * self.row_width

    def _shapes(self, backward: bool) -> list[Product]:
        """The products of a step, in the order in which they get room in shared memory."""
        spec = self.spec
        c, layers = spec.controller_size, spec.controller_layers
        product = functools.partial(_product, self.threads)
        if backward:
            products = [
                product("BELOW_FIRST", self.reads, self.gates),
                product("INTERFACE", c, spec.interface.size),
            ]
            if layers > 1:
                products.append(product("BELOW_UPPER", c, self.gates, layers - 1))
            if spec.recurrent_layers:
                products.append(product("RECURRENT", c, self.gates, layers))
            return products
        splits = max(1, min(self.threads // max(1, -(-self.gates // OUTPUTS_PER_THREAD)), MOST_SPLITS))
        products = [
            product("BELOW_FIRST", self.gates, spec.input_size + self.reads + 1, splits=splits),
            product("INTERFACE", spec.interface.size, c + 1),
        ]
        if layers > 1:
            products.append(product("BELOW_UPPER", self.gates, c + 1, layers - 1, splits))
        if spec.recurrent_layers:
            products.append(product("RECURRENT", self.gates, c, layers, splits))
        return products

    def _working_set(self, backward: bool) -> dict[str, int]:
        """Floats of shared memory that are not weights, by name, in order."""
        spec = self.spec
        products = {p.name: p for p in self._shapes(backward)}
        sizes = {f"VECTOR_{p.name}": p.vector * p.count for p in products.values()}
        slots = up_to(4, self.tape)
        sizes["PARTIALS"] = max(p.partials for p in products.values() if not (backward and p.name == "RECURRENT"))
        sizes["CELL"] = spec.recurrent_layers * spec.controller_size
        sizes["KEYS"] = self.heads * self.padded_width
        sizes["ERASE"] = sizes["ADD"] = spec.write_heads * self.padded_width
        sizes["SCALARS"] = self.heads * (4 + self.taps)
        sizes["CHAIN_FIRST"] = sizes["CHAIN_SECOND"] = self.heads * self.warps
        if backward:
            sizes["PARTIALS_RECURRENT"] = sum(p.partials * p.count for p in products.values() if p.name == "RECURRENT")
            sizes["D_HIDDEN"] = spec.recurrent_layers * spec.controller_size
            sizes["D_READS"] = spec.read_heads * self.padded_width
            sizes["D_SHIFTED"] = self.heads * slots
            sizes["KEY_NORMS"] = 2 * self.heads
            sizes["SUMS"] = self.slot_warps * (spec.read_heads * self.read_sums + spec.write_heads * self.write_sums)
        else:
            sizes["PREVIOUS"] = sizes["EXPONENTIALS"] = self.heads * slots
            sizes["READ_PARTIALS"] = self.slot_warps * spec.read_heads * self.padded_width
        return {name: up_to(4, size) for name, size in sizes.items()}

    def register_rows(self, backward: bool) -> int:
        """float4 of weights that a thread can hold beside its heads; 256 threads have 255 registers, 512 have 128."""
        if self.threads == FEW_THREADS:
            return 16 if self.heads <= 8 else 8
        return 8 if self.heads <= 8 and not backward else 4

    def working_bytes(self, backward: bool) -> int:
        return 4 * sum(self._working_set(backward).values())

    @functools.cache  # noqa: B019 - plans are few and live as long as the process
    def products(self, backward: bool) -> tuple[Product, ...]:
        """The products with the homes of their weights: registers for the largest, then shared memory in order."""
        shapes = self._shapes(backward)
        largest = max(range(len(shapes)), key=lambda i: (shapes[i].row_bytes * shapes[i].depth, i))
        room = self.shared_limit - self.working_bytes(backward)
        placed = []
        for i, product in enumerate(shapes):
            held = min(product.depth, self.register_rows(backward) // product.count // 4 * 4) if i == largest else 0
            fits = min(product.depth - held, max(0, room) // product.row_bytes)
            if held + fits < product.depth:
                fits -= fits % 4  # a streamed part starts at a multiple of four rows
            room -= fits * product.row_bytes
            placed.append(dataclasses.replace(product, in_registers=held, in_shared=fits))
        return tuple(placed)

    @functools.cache  # noqa: B019
    def shared_bytes(self, backward: bool) -> int:
        return self.working_bytes(backward) + sum(p.in_shared * p.row_bytes for p in self.products(backward))

    @functools.cache  # noqa: B019
    def streamed_floats(self, backward: bool) -> int:
        """Packed weights per seed that do not fit on the chip."""
        return sum(4 * p.streamed * p.active * p.count for p in self.products(backward))

    def refusal(self) -> str | None:
        """One sentence if this machine does not fit."""
        spec = self.spec
        for name, value, most in (
            ("its controller has {} gate rows a layer", self.gates, MOST_OUTPUTS),
            ("its interface has {} entries", spec.interface.size, MOST_OUTPUTS),
            ("its reads have {} values", self.reads, MOST_OUTPUTS),
            ("its input has {} channels", spec.input_size, MOST_THREADS),
            ("its heads have {} shifts", spec.shift_inputs, 32),
        ):
            if value > most:
                return f"the GPU kernel does not fit this machine: {name.format(value)}, and the most is {most}."
        values = self._tape_values(self.threads)
        if values > MOST_TAPE_VALUES:
            return (
                f"the GPU kernel does not fit this machine: a tape of {self.tape} x {spec.memory_width} takes {values} "
                f"registers a thread, and the most is {MOST_TAPE_VALUES}."
            )
        for backward in (False, True):
            need = self.working_bytes(backward)
            if need > self.shared_limit:
                word = "backward" if backward else "forward"
                return (
                    f"the GPU kernel does not fit this machine: its {word} pass needs {need} bytes of shared memory "
                    f"beside the weights, and this device gives a block {self.shared_limit}."
                )
        return None

    # --- the weight gradient: G[o, i] = sum over rows of D[row, o] A[row, i] ---

    def gradient_jobs(self) -> list[dict[str, int]]:
        """One matrix product for each weight and its bias, by field of `GradientJob` in scan.cu.

        What a layer saw has two parts, each a run of columns in the kept rows (of this step, or one `later`) or, where
        `second_source` is 0, in the inputs.
        """
        spec = self.spec
        c, layers, lstm = spec.controller_size, spec.controller_layers, spec.controller == "lstm"
        offsets = self.parameter_offsets()
        top = self.reads + (layers - 1) * c  # column of the last layer's hidden values in a kept row

        def job(name: str, d_column: int, *, columns: int, bias: int, at: int = 0, **parts: int) -> dict[str, int]:
            rows, stride = spec.parameter_shapes[name]
            begin = offsets[name]
            second = dict(second_columns=0, second_source=1, second_column=0, second_later=0, second_at=0) | parts
            second["second_at"] += begin
            across = -(-(columns + second["second_columns"] + 1) // TILE_COLUMNS)
            sizes = dict(rows=rows, stride=stride, across=across, down=-(-rows // TILE_ROWS))
            return dict(d_column=d_column, columns=columns, bias=bias, at=begin + at) | second | sizes

        jobs = [
            job(
                "controller.weight_0", 0, bias=offsets["controller.bias_0"],
                column=0, columns=self.reads + c * lstm, later=0, at=spec.input_size,
                second_source=0, second_columns=spec.input_size,
            )
        ]  # fmt: skip
        for layer in range(1, layers):
            below = self.reads + (layer - 1) * c
            own = dict(second_column=below + c, second_columns=c, second_at=c) if lstm else {}
            name, bias = f"controller.weight_{layer}", offsets[f"controller.bias_{layer}"]
            jobs.append(job(name, layer * self.gates, bias=bias, column=below, columns=c, later=1, **own))
        bias = offsets["interface.bias"]
        jobs.append(job("interface.weight", layers * self.gates, bias=bias, column=top, columns=c, later=1))
        seen = dict(second_column=0, second_columns=self.reads, second_later=1, second_at=c)
        seen = seen if spec.output_from == "hidden_and_reads" else {}
        jobs.append(job("output.weight", -1, bias=offsets["output.bias"], column=top, columns=c, later=1, **seen))
        return jobs

    @property
    def entry_order(self) -> list[int]:
        """Interface entries sorted by what is done to them, each kind padded to whole warps with -1."""
        spec = self.spec
        taps, names = spec.shift_inputs, spec.interface.part_names()
        order: list[int] = []
        for kinds in (("shift",), ("strength", "sharpening"), ("gate", "write_gate"), ("key",), ("erase",), ("add",)):
            entries = [o for o, name in enumerate(names) if name in kinds]
            in_warp = 32 // taps * taps if kinds == ("shift",) else 32  # a head's taps stay together
            for first in range(0, len(entries), in_warp):
                warp = entries[first : first + in_warp]
                order += warp + [-1] * (32 - len(warp))
        return order

    def parameter_offsets(self) -> dict[str, int]:
        offsets, at = {}, 0
        for name, shape in self.spec.parameter_shapes.items():
            offsets[name] = at
            at += math.prod(shape)
        return offsets

    @functools.cache  # noqa: B019
    def header(self) -> str:
        """The constants, as the first lines of the CUDA source."""
        spec = self.spec
        offsets = self.parameter_offsets()
        upper = spec.controller_layers > 1
        activations = {"linear": 0, "tanh": 1, "sigmoid": 2}
        numbers: dict[str, int | bool] = {
            "THREADS": self.threads, "TILE_ROWS": TILE_ROWS, "TILE_COLUMNS": TILE_COLUMNS,
            "INPUTS": spec.input_size, "OUTPUTS": spec.output_size, "UNITS": spec.controller_size,
            "LAYERS": spec.controller_layers, "READ_HEADS": spec.read_heads, "WRITE_HEADS": spec.write_heads,
            "WIDTH": spec.memory_width, "TAPE": self.tape, "SHIFT_RANGE": spec.shift_range,
            "LSTM": spec.controller == "lstm", "SHIFT_SOFTMAX": spec.shift == "softmax",
            "WRITE_FIRST": spec.order == "write_then_read", "KEY_TANH": spec.key_activation == "tanh",
            "ADD_ACTIVATION": activations[spec.add_activation], "WRITE_GATE": spec.write_gate,
            "OUTPUT_READS": spec.output_from == "hidden_and_reads", "CLIP": spec.interface_clip is not None,
            "LANES_PER_SLOT": self.lanes_per_slot, "SLOTS_PER_THREAD": self.slots_per_thread, "COLUMNS": self.columns,
            "SLOT_WARPS": self.slot_warps, "ROW_WIDTH": self.row_width, "GRADIENT_WIDTH": self.gradient_width,
            "READ_ENTRIES": spec.interface.read.size, "WRITE_ENTRIES": spec.interface.write.size,
            **{f"{name.upper()}_AT": spec.interface.write[name].start for name in spec.interface.write.sizes},
            "SHIFT_INPUTS": spec.shift_inputs,
            "READ_SUMS": self.read_sums, "WRITE_SUMS": self.write_sums,
            "PARAMETERS": spec.parameter_count,
            "WEIGHT_FIRST": offsets["controller.weight_0"], "BIAS_FIRST": offsets["controller.bias_0"],
            "WEIGHT_UPPER": offsets["controller.weight_1"] if upper else 0,
            "BIAS_UPPER": offsets["controller.bias_1"] if upper else 0,
            "INTERFACE_WEIGHT": offsets["interface.weight"], "INTERFACE_BIAS": offsets["interface.bias"],
            "OUTPUT_WEIGHT": offsets["output.weight"], "OUTPUT_BIAS": offsets["output.bias"],
        }  # fmt: skip
        lines = ["template <int, int, int, int, int, int> struct Product;"]
        lines += [f"constexpr int {name} = {int(value)};" for name, value in numbers.items()]
        lines.append(f"constexpr float CLIP_AT = {float(spec.interface_clip or 0):.9e}f;")
        for backward in (False, True):
            lines.append(f"namespace {'backward_layout' if backward else 'forward_layout'} {{")
            lines += self._layout_lines(backward)
            lines.append("}")
        jobs = self.gradient_jobs()
        fields = list(jobs[0])
        rows = ", ".join("{" + ", ".join(str(job[field]) for field in fields) + "}" for job in jobs)
        lines += [
            "struct GradientJob { int " + ", ".join(fields) + "; };",
            f"constexpr int GRADIENT_JOBS = {len(jobs)};",
            f"__device__ const GradientJob GRADIENT_JOB[GRADIENT_JOBS] = {{{rows}}};",
        ]
        order = self.entry_order
        lines.append(f"constexpr int ENTRY_ORDER_SIZE = {len(order)};")
        lines.append(f"__device__ const short ENTRY_ORDER[] = {{{', '.join(map(str, order))}}};")
        return "\n".join(lines) + "\n"

    def _layout_lines(self, backward: bool) -> list[str]:
        at, lines = 0, []
        for name, size in self._working_set(backward).items():
            lines.append(f"constexpr int {name} = {at};")
            at += size
        packed = 0
        have = set()
        for p in self.products(backward):
            have.add(p.name)
            lines.append(f"constexpr int WEIGHTS_{p.name} = {at};  // float offset in shared memory")
            lines.append(f"constexpr int PACKED_{p.name} = {packed};  // float4 offset in the packed weights of a seed")
            numbers = (p.outputs, p.inner, p.splits, p.depth, p.in_registers, p.in_shared)
            lines.append(f"using Product_{p.name} = Product<{', '.join(map(str, numbers))}>;")
            at += p.in_shared * p.row_bytes // 4
            packed += p.streamed * p.active * p.count
        for name in ("BELOW_UPPER", "RECURRENT"):
            if name not in have:  # never touched, but the source speaks of it
                lines += [f"constexpr int {c}_{name} = 0;" for c in ("WEIGHTS", "PACKED", "VECTOR")]
                lines.append(f"using Product_{name} = Product<4, 1, 1, 1, 0, 1>;")
        lines.append(f"constexpr int PACKED_TOTAL = {packed};")
        return lines

    @functools.cached_property
    def gradient_tiles(self) -> int:
        return sum(job["across"] * job["down"] for job in self.gradient_jobs())
