"""The Gaussian process: against the textbook's formulas, and what it must do at and far from what it has seen."""

import math

import numpy as np
import pytest
import torch

from tapehead.sublayers import gaussian

pytestmark = pytest.mark.usefixtures("one_thread")  # for tensors as small as these
SETS = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
VALUES = torch.tensor([1.0, 3.0, 2.0, 5.0])
ASKED = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]])


def kernel(one, other, scale):
    return np.array(
        [[math.exp(-sum(a != b for a, b in zip(x, y, strict=True)) / (2 * scale)) for y in other] for x in one]
    )


def test_against_the_inverse_of_the_covariance():
    process = gaussian.fit(SETS, VALUES)
    seen, asked, y = SETS.tolist(), ASKED.tolist(), VALUES.numpy().astype(float)
    inverse = np.linalg.inv(kernel(seen, seen, process.scale) + process.noise * np.eye(4))
    across, spread = kernel(asked, seen, process.scale), y.std()
    mean = y.mean() + across @ inverse @ (y - y.mean())
    deviation = spread * np.sqrt(np.maximum(0, 1 - np.einsum("mi,ij,mj->m", across, inverse, across)))
    found = process.predict(ASKED)
    np.testing.assert_allclose(found[0].numpy(), mean, rtol=1e-10)
    np.testing.assert_allclose(found[1].numpy(), deviation, rtol=1e-6, atol=1e-8)


def test_scale_and_noise_have_the_greatest_likelihood_of_the_grid():
    def likelihood(scale, noise):
        y = (VALUES.numpy() - VALUES.numpy().mean()) / VALUES.numpy().std()
        matrix = kernel(SETS.tolist(), SETS.tolist(), scale) + noise * np.eye(4)
        return -0.5 * y @ np.linalg.solve(matrix, y) - 0.5 * np.linalg.slogdet(matrix)[1]

    process = gaussian.fit(SETS, VALUES)
    grid = [(scale, noise) for scale in gaussian.SCALES for noise in gaussian.NOISES]
    assert (process.scale, process.noise) == max(grid, key=lambda point: likelihood(*point))


def test_equal_values_and_a_single_one():
    for values in (torch.tensor([2.0, 2.0, 2.0, 2.0]), torch.tensor([7.0])):
        mean, deviation = gaussian.fit(SETS[: len(values)], values).predict(ASKED)
        torch.testing.assert_close(mean, torch.full((3,), float(values[0]), dtype=torch.float64))
        assert bool(torch.isfinite(deviation).all())
