"""Elementary functions. In float32 they are polynomials, written so that loops over them vectorise; in float64, which
is for checking gradients, they are those of the C library."""

import math
from typing import Any

import numba
import numpy as np

from tapehead.kernels.ntm_scan.cpu.compiled.intrinsics import exponent, mantissa, power_of_two
from tapehead.kernels.ntm_scan.cpu.compiled.options import compiled, overload


def exp(x: Any) -> Any:
    """e^x, at most 1.4 ulp off; zero below -87 in float32."""


def log(x: Any) -> Any:
    """Natural logarithm of a normal number, at most 1 ulp off; NaN for anything else."""


def tanh(x: Any) -> Any:
    """Hyperbolic tangent, at most 3 ulp off, also near zero."""


def norm_limit(x: Any) -> Any:
    """A squared norm above this is computed with scaling: well below overflow. x: any array of the type in question."""


f32 = np.float32


@overload(exp)
def _exp(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.exp(x)

    def single(x: Any) -> Any:  # exp(x) = 2^k exp(y) with |y| <= log(2) / 2; coefficients of Cephes' expf
        z = f32(-87.5) if x < f32(-87.5) else x  # comparisons are false for NaN, which therefore passes
        z = f32(88.5) if z > f32(88.5) else z
        shifted = z * f32(1.4426950408889634) + f32(12582912.0)
        k = shifted - f32(12582912.0)
        y = z - k * f32(0.693359375)
        y = y - k * f32(-2.12194440e-4)
        p = f32(1.9875691500e-4)
        p = p * y + f32(1.3981999507e-3)
        p = p * y + f32(8.3334519073e-3)
        p = p * y + f32(4.1665795894e-2)
        p = p * y + f32(1.6666665459e-1)
        p = p * y + f32(5.0000001201e-1)
        e = ((p * y) * y + y + f32(1)) * power_of_two(shifted)
        return f32(0) if x < f32(-87.3) else e

    return single if x is numba.types.float32 else double


@overload(log)
def _log(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.log(x)

    def single(x: Any) -> Any:  # x = 2^k (1 + f); log(1 + f) by s = f / (2 + f), coefficients of FreeBSD's logf
        k = exponent(x)
        f = mantissa(x) - f32(1)
        s = f / (f32(2) + f)
        z = s * s
        p = f32(0.24279078841)
        p = p * z + f32(0.28498786688)
        p = p * z + f32(0.40000972152)
        p = p * z + f32(0.66666662693)
        half_square = f32(0.5) * f * f
        small = s * (half_square + p * z) + k * f32(9.0580006145e-06)
        y = small - half_square + f + k * f32(6.9313812256e-01)
        return y if x >= f32(1.2e-38) else f32(math.nan)

    return single if x is numba.types.float32 else double


@overload(tanh)
def _tanh(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.tanh(x)

    def single(x: Any) -> Any:  # near zero a polynomial (Cephes' tanhf), elsewhere 1 - 2 / (exp(2|x|) + 1)
        z = x * x
        p = f32(-5.70498872745e-3)
        p = p * z + f32(2.06390887954e-2)
        p = p * z + f32(-5.37397155531e-2)
        p = p * z + f32(1.33314422036e-1)
        p = p * z + f32(-3.33332819422e-1)
        near = (p * z) * x + x
        size = abs(x)
        far = f32(1) - f32(2) / (exp(f32(2) * size) + f32(1))
        far = -far if x < f32(0) else far
        return near if size < f32(0.625) else far

    return single if x is numba.types.float32 else double


@overload(norm_limit)
def _norm_limit(x: Any) -> Any:
    limit = np.float32(1e36) if x.dtype is numba.types.float32 else np.float64(1e300)

    def constant(x: Any) -> Any:
        return limit

    return constant


@compiled
def sigmoid(x: Any, one: Any) -> Any:
    e = exp(-abs(x))
    y = one / (one + e)
    return e * y if x < 0 else y


@compiled
def softplus(x: Any) -> Any:
    """log(1 + e^x), and x itself above 20, as torch has it."""
    if x > 20:
        return x
    return math.log1p(math.exp(x))


@compiled
def softplus_slope(x: Any, one: Any) -> Any:
    return one if x > 20 else sigmoid(x, one)
