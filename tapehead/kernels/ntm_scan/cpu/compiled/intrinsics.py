"""What LLVM is told directly: views without checks, functions that stay apart, flushing, and bits of float32."""

import platform
from typing import Any

import numba
import numba.np.arrayobj
from llvmlite import ir  # type: ignore[import-untyped]

from tapehead.kernels.ntm_scan.cpu.compiled.options import intrinsic

X86 = platform.machine().lower() in ("x86_64", "amd64")


@intrinsic
def array_at(context: Any, address: Any, like: Any, size: Any) -> Any:
    """The `size` numbers that stand at an address, as an array of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = builder.inttoptr(arguments[0], context.get_data_type(like.dtype).as_pointer())
        item = context.get_constant(numba.types.intp, context.get_abi_sizeof(context.get_data_type(like.dtype)))
        return _make_array(context, builder, like, data, arguments[2], item)

    return like(address, like, numba.types.intp), generate


@intrinsic
def view(context: Any, array: Any, start: Any, size: Any) -> Any:
    """array[start : start + size], unchecked: six instructions, where a slice by Python's rules takes forty."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(array)(context, builder, arguments[0])
        data = builder.gep(whole.data, [arguments[1]])
        return _make_array(context, builder, array, data, arguments[2], whole.itemsize)

    return array(array, numba.types.intp, numba.types.intp), generate


def _make_array(context: Any, builder: Any, kind: Any, data: Any, size: Any, item: Any) -> Any:
    array = context.make_array(kind)(context, builder)
    populate: Any = numba.np.arrayobj.populate_array
    populate(array, data=data, shape=[size], strides=[item], itemsize=item, meminfo=None)
    return array._getvalue()


@intrinsic
def leaf(context: Any) -> Any:
    """Keeps LLVM from copying the function that calls this into its callers, each time to be optimised anew, and lets
    it use vectors as wide as the processor has; of itself it prefers half of that on some."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows no attributes with a value
        return context.get_dummy_value()

    return numba.types.none(), generate


FLUSH_BITS = 0x8040  # of x86's control register MXCSR: results and operands below the normal range count as zero


def _control_register(builder: Any, operation: str, place: Any) -> None:
    """Stores x86's MXCSR at `place`, or loads it from there."""
    pointer = ir.IntType(8).as_pointer()
    function = builder.module.declare_intrinsic(
        f"llvm.x86.sse.{operation}", fnty=ir.FunctionType(ir.VoidType(), [pointer])
    )
    builder.call(function, [builder.bitcast(place, pointer)])


@intrinsic
def flush_denormals(context: Any) -> Any:
    """Makes this thread take numbers below the normal range for zero; returns what to give to `restore_denormals`.

    Sharp weightings are full of such numbers, and x86 processors take a hundred cycles for each: three times slower.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        if not X86:
            return integer(0)
        place = builder.alloca(integer)
        _control_register(builder, "stmxcsr", place)
        before = builder.load(place)
        builder.store(builder.or_(before, integer(FLUSH_BITS)), place)
        _control_register(builder, "ldmxcsr", place)
        return before

    return numba.types.int32(), generate


@intrinsic
def restore_denormals(context: Any, before: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if X86:
            place = builder.alloca(ir.IntType(32))
            builder.store(arguments[0], place)
            _control_register(builder, "ldmxcsr", place)
        return context.get_dummy_value()

    return numba.types.none(numba.types.int32), generate


@intrinsic
def power_of_two(context: Any, shifted: Any) -> Any:
    """2^k for a float32 k + 1.5 * 2^23, whose lowest bits hold the integer k."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        return builder.bitcast(builder.add(builder.shl(bits, integer(23)), integer(0x3F800000)), ir.FloatType())

    return shifted(shifted), generate


@intrinsic
def exponent(context: Any, x: Any) -> Any:
    """The float32 k for which x / 2^k lies in [sqrt(1/2), sqrt(2))."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.sub(builder.bitcast(arguments[0], integer), integer(0x3F3504F3))
        return builder.sitofp(builder.ashr(bits, integer(23)), ir.FloatType())

    return x(x), generate


@intrinsic
def mantissa(context: Any, x: Any) -> Any:
    """The float32 x / 2^k in [sqrt(1/2), sqrt(2))."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        bits = builder.bitcast(arguments[0], integer)
        whole = builder.and_(builder.sub(bits, integer(0x3F3504F3)), integer(0xFF800000))
        return builder.bitcast(builder.sub(bits, whole), ir.FloatType())

    return x(x), generate
