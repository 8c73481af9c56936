"""Sixteen numbers at a time in registers, for loops where LLVM keeps less there than the processor has room for.

LLVM splits them where registers are shorter. Each lane of a sum is added up in the order in which the code says so.
"""

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import models, register_model

from tapehead.kernels.ntm_scan.cpu.compiled.options import intrinsic

WIDTH = 16


class Lanes(numba.types.Type):
    """Sixteen numbers of a type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        number = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, WIDTH))  # type: ignore[no-untyped-call]


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    vector = context.get_value_type(Lanes(kind.dtype))
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


@intrinsic
def load(context: Any, array: Any, at: Any) -> Any:
    """array[at : at + 16], unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_place(context, builder, array, *arguments))
        loaded.align = array.dtype.bitwidth // 8
        return loaded

    return Lanes(array.dtype)(array, numba.types.intp), generate


@intrinsic
def store(context: Any, lanes: Any, array: Any, at: Any) -> Any:
    """array[at : at + 16] = lanes, unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.store(arguments[0], _place(context, builder, array, *arguments[1:]))
        stored.align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return numba.types.none(lanes, array, numba.types.intp), generate


@intrinsic
def spread(context: Any, x: Any) -> Any:
    """Sixteen times x."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nothing = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        first = builder.insert_element(nothing, arguments[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), None))

    return Lanes(x)(x), generate


@intrinsic
def add_product(context: Any, total: Any, x: Any, y: Any) -> Any:
    """total + x y, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, x, y = arguments
        name = f"llvm.fmuladd.v{WIDTH}f{signature.return_type.dtype.bitwidth}"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(total.type, [total.type] * 3), name)
        return builder.call(function, [x, y, total])

    return total(total, x, y), generate
