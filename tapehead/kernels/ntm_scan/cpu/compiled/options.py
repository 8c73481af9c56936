"""How the parts of the kernel are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.extending
import numpy.typing as npt

Array = npt.NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered and products fused; NaN and infinity are honoured ("nnan" and "ninf" are not given). Division by
# zero gives infinity or NaN: numba's other model tests every divisor, and loops with such tests do not vectorise.
# Nothing is allocated in the kernel, so it needs no reference counts ("nrt").
RELAXED = {"reassoc", "contract", "arcp", "nsz", "afn"}
OPTIONS: dict[str, Any] = dict(fastmath=RELAXED, error_model="numpy", nogil=True, _nrt=False)
# Python calls only two entries; the other functions need no wrappers for it, which take as long to compile.
INNER: dict[str, Any] = dict(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled(function: Function) -> Function:
    """Part of the kernel, compiled when its entries are."""
    result: Function = numba.njit(**INNER)(function)
    return result


def inlined(function: Function) -> Function:
    """Part of the kernel that numba pastes into its caller. For all that is called from one or two places: compiled by
    themselves, such functions would be optimised and translated again with every level of callers above them."""
    result: Function = numba.njit(**INNER, inline="always")(function)
    return result


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function of the kernel that writes its own LLVM code."""
    return numba.extending.intrinsic(function)


def overload(function: Callable[..., Any]) -> Callable[[Function], Function]:
    """A function of the kernel that is another one for each type. Its sums are not reordered: exp adds and subtracts
    1.5 * 2^23 to round to an integer."""
    exact: Any = {**INNER, "fastmath": {"contract"}, "forceinline": True}

    def register(implementation: Function) -> Function:
        result: Function = numba.extending.overload(function, jit_options=exact)(implementation)
        return result

    return register
