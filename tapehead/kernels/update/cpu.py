"""The update in one pass over the parameters, in numba: every number is read and written once.

The formulas are those of reference.py. The arithmetic is in the parameters' dtype, the norm in float64.
"""

import numba
import numpy as np
import torch
from torch import Tensor

from tapehead.kernels.update.contract import (
    ADAM_BETAS,
    ADAM_EPSILON,
    GRAVES_DECAY,
    GRAVES_EPSILON,
    GRAVES_MOMENTUM,
    UpdateRule,
    UpdateState,
)

# Without nnan and ninf: a NaN must stay one.
FAST = {"reassoc", "contract", "arcp", "nsz"}
CLIPS = {"none": 0, "elementwise": 1, "norm": 2}


@numba.njit(cache=True, fastmath=FAST, nogil=True, error_model="numpy")
def _usable(gradient, costs):  # type: ignore[no-untyped-def]
    """Squared norm of the gradient, or -1 if it or a cost is not finite."""
    for b in range(costs.shape[0]):
        if not np.isfinite(costs[b]):
            return -1.0
    total = 0.0
    for i in range(gradient.shape[0]):
        total += np.float64(gradient[i]) * np.float64(gradient[i])
    return total if np.isfinite(total) else -1.0


@numba.njit(cache=True, fastmath=FAST, nogil=True, error_model="numpy")
def _graves(w, g, n, m, d, rate, scale, limit):  # type: ignore[no-untyped-def]
    kind = w.dtype.type
    decay, fresh = kind(GRAVES_DECAY), kind(1 - GRAVES_DECAY)
    momentum, epsilon = kind(GRAVES_MOMENTUM), kind(GRAVES_EPSILON)
    for i in range(w.shape[0]):
        x = min(max(g[i] * scale, -limit), limit)
        n[i] = decay * n[i] + fresh * x * x
        m[i] = decay * m[i] + fresh * x
        variance = max(n[i] - m[i] * m[i], kind(0))
        d[i] = momentum * d[i] - rate * x / np.sqrt(variance + epsilon)
        w[i] += d[i]


@numba.njit(cache=True, fastmath=FAST, nogil=True, error_model="numpy")
def _adam(w, g, first, second, rate, scale, limit, count):  # type: ignore[no-untyped-def]
    kind = w.dtype.type
    b1, b2, epsilon = kind(ADAM_BETAS[0]), kind(ADAM_BETAS[1]), kind(ADAM_EPSILON)
    unbias1 = kind(1 / (1 - ADAM_BETAS[0] ** count))
    unbias2 = kind(1 / (1 - ADAM_BETAS[1] ** count))
    for i in range(w.shape[0]):
        x = min(max(g[i] * scale, -limit), limit)
        first[i] = b1 * first[i] + (kind(1) - b1) * x
        second[i] = b2 * second[i] + (kind(1) - b2) * x * x
        w[i] -= rate * (first[i] * unbias1) / (np.sqrt(second[i] * unbias2) + epsilon)


@numba.njit(cache=True, fastmath=FAST, nogil=True, error_model="numpy")
def _population(is_adam, clip, clip_at, decay, rates, w, g, costs, a, b, c, average, applied, skipped):  # type: ignore[no-untyped-def]
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
            _adam(w[s], g[s], a[s], b[s], rates[s], scale, limit, applied[s] + 1)
        else:
            _graves(w[s], g[s], a[s], b[s], c[s], rates[s], scale, limit)
        applied[s] += 1
        if decay > 0:
            keep, fresh = kind(decay), kind(1 - decay)
            for i in range(w.shape[1]):
                average[s, i] = keep * average[s, i] + fresh * w[s, i]


def update(
    rule: UpdateRule,
    state: UpdateState,
    gradient: Tensor,
    costs: Tensor,
    rates: Tensor,
    squares: Tensor | None = None,
) -> Tensor:
    """As reference.update."""
    skipped = torch.empty(costs.shape[0], dtype=torch.bool)
    w = state.parameters.numpy()
    moments = [moment.numpy() for moment in state.moments]
    _population(
        rule.optimiser == "adam",
        CLIPS[rule.clip],
        rule.clip_at,
        rule.average,
        rates.numpy(),
        w,
        gradient.numpy(),
        costs.numpy(),
        moments[0],
        moments[1],
        moments[-1],  # Adam has two
        w if state.average is None else state.average.numpy(),
        state.applied.numpy(),
        skipped.numpy(),
    )
    return skipped
