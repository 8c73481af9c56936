"""What is compiled of the update, and nothing else: the formulas of optimisers.py in one pass over the parameters.

The arithmetic is in the parameters' dtype, the norm in float64. `numbers` are an optimiser's hyper-parameters, float64.
"""

from typing import Any

import numba
import numpy as np

# Without nnan and ninf: a NaN must stay one.
OPTIONS: dict[str, Any] = dict(fastmath={"reassoc", "contract", "arcp", "nsz"}, nogil=True, error_model="numpy")


@numba.njit(**OPTIONS)
def _usable(gradient, costs):  # type: ignore[no-untyped-def]
    """Squared norm of the gradient, or -1 if it or a cost is not finite."""
    for b in range(costs.shape[0]):
        if not np.isfinite(costs[b]):
            return -1.0
    total = 0.0
    for i in range(gradient.shape[0]):
        total += np.float64(gradient[i]) * np.float64(gradient[i])
    return total if np.isfinite(total) else -1.0


@numba.njit(**OPTIONS)
def _graves(w, g, n, m, d, rate, scale, limit, numbers):  # type: ignore[no-untyped-def]
    kind = w.dtype.type
    decay, fresh = kind(numbers[0]), kind(1 - numbers[0])
    momentum, epsilon = kind(numbers[1]), kind(numbers[2])
    for i in range(w.shape[0]):
        x = min(max(g[i] * scale, -limit), limit)
        n[i] = decay * n[i] + fresh * x * x
        m[i] = decay * m[i] + fresh * x
        variance = max(n[i] - m[i] * m[i], kind(0))
        d[i] = momentum * d[i] - rate * x / np.sqrt(variance + epsilon)
        w[i] += d[i]


@numba.njit(**OPTIONS)
def _adam(w, g, first, second, rate, scale, limit, numbers, count):  # type: ignore[no-untyped-def]
    kind = w.dtype.type
    b1, b2, epsilon = kind(numbers[0]), kind(numbers[1]), kind(numbers[2])
    unbias1 = kind(1 / (1 - numbers[0] ** count))
    unbias2 = kind(1 / (1 - numbers[1] ** count))
    for i in range(w.shape[0]):
        x = min(max(g[i] * scale, -limit), limit)
        first[i] = b1 * first[i] + (kind(1) - b1) * x
        second[i] = b2 * second[i] + (kind(1) - b2) * x * x
        w[i] -= rate * (first[i] * unbias1) / (np.sqrt(second[i] * unbias2) + epsilon)


def update_population(is_adam, clip, clip_at, decay, numbers, rates, w, g, costs, a, b, c, average, applied, skipped):  # type: ignore[no-untyped-def]
    kind = w.dtype.type
    for s in range(w.shape[0]):
        squares = _usable(g[s], costs[s])
        skipped[s] = squares < 0
        if skipped[s]:
            continue
        scale, limit = kind(1), kind(np.inf)
        if clip == 1:
            limit = kind(clip_at)
        elif clip == 2:
            norm = np.sqrt(squares)
            if norm > clip_at:
                scale = kind(clip_at / norm)
        if is_adam:
            _adam(w[s], g[s], a[s], b[s], rates[s], scale, limit, numbers, applied[s] + 1)
        else:
            _graves(w[s], g[s], a[s], b[s], c[s], rates[s], scale, limit, numbers)
        applied[s] += 1
        if decay > 0:
            keep, fresh = kind(decay), kind(1 - decay)
            for i in range(w.shape[1]):
                average[s, i] = keep * average[s, i] + fresh * w[s, i]
