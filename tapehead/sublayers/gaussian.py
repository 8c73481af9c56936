"""A small Gaussian process on sets of bits, for Bayesian optimisation.

Legend: n sets seen, m sets asked about, d bits. The covariance of two sets that differ in h bits is exp(-h / (2 l^2));
values are standardised. Length scale and noise are those of the greatest marginal likelihood on a small grid.
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

SCALES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""l^2, in bits."""
NOISES = (1e-6, 1e-3, 1e-1)
"""Variances, where the values themselves have a variance of one."""


class GaussianProcess(NamedTuple):
    """Made by `fit`."""

    seen: Tensor  # [n, d]
    scale: float
    noise: float
    factor: Tensor  # Cholesky factor of the covariance, [n, n]
    weights: Tensor  # [n]
    mean: float
    deviation: float

    def predict(self, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the value of each set.   [m, d] -> [m], [m]"""
        across = covariance(sets.double(), self.seen, self.scale)  # [m, n]
        solved = torch.linalg.solve_triangular(self.factor, across.T, upper=False)  # [n, m]
        variance = (1.0 - solved.square().sum(dim=0)).clamp(min=0.0)
        return self.mean + self.deviation * (across @ self.weights), self.deviation * variance.sqrt()


def covariance(one: Tensor, other: Tensor, scale: float) -> Tensor:
    """[m, d], [n, d] -> [m, n]"""
    differing = (one.unsqueeze(1) != other.unsqueeze(0)).sum(dim=-1)
    return torch.exp(-differing.double() / (2 * scale))


def fit(seen: Tensor, values: Tensor) -> GaussianProcess:
    """The process that has seen sets [n, d] with values [n]; n is at least 1."""
    seen, values = seen.double(), values.double()
    mean = float(values.mean())
    deviation = float(values.std(correction=0)) or 1.0
    standard = (values - mean) / deviation
    best = max(
        (_fitted(seen, standard, scale, noise) for scale, noise in itertools.product(SCALES, NOISES)),
        key=lambda found: found[0],
    )
    _, scale, noise, factor, weights = best
    return GaussianProcess(seen, scale, noise, factor, weights, mean, deviation)


def _fitted(seen: Tensor, values: Tensor, scale: float, noise: float) -> tuple[float, float, float, Tensor, Tensor]:
    """Log marginal likelihood, scale, noise, Cholesky factor, weights."""
    n = len(seen)
    factor = torch.linalg.cholesky(covariance(seen, seen, scale) + noise * torch.eye(n, dtype=torch.float64))
    weights = torch.cholesky_solve(values.unsqueeze(-1), factor).squeeze(-1)
    likelihood = -0.5 * (values @ weights) - factor.diagonal().log().sum() - 0.5 * n * math.log(2 * math.pi)
    return float(likelihood), scale, noise, factor, weights
