"""What is injected on a card is cut off where it is on the host."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from precision_debug_torch.workbench import TorchWorkbench

from precision_debug.explain.workbench import HostWorkbench

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("value", [[1.0, -INF, 3.0], [INF, 0.5, -2.0], [NAN, 5.0, 7.0]])
def test_a_masks_infinity_stays_and_nan_is_no_end(value: list[float]) -> None:
    exact, wrong = np.array([2.0, 3.0, 4.0], np.float32), np.array([2.5, 3.0, 3.5], np.float32)
    host = HostWorkbench().with_error(np.array(value, np.float32), exact, wrong)
    here = TorchWorkbench().with_error(torch.tensor(value), torch.tensor(exact), torch.tensor(wrong))
    assert np.array_equal(host, here.numpy(), equal_nan=True), (host, here)


def test_what_came_to_the_end_of_a_range_is_there_of_nearly_the_same_numbers_too() -> None:
    """Of 13 sigmoids that float16 makes 1, 10 were so in the replay, and the logarithm of 1 less the others finite."""
    value, exact = np.float32([[0.99974, 0.3, 1e-5], [0.99981, 0.31, 2e-5]])
    wrong = np.float32([1.0, 0.3125, 0.0])
    host = HostWorkbench().with_error(value, exact, wrong)
    here = TorchWorkbench().with_error(*map(torch.tensor, (value, exact, wrong)))
    assert np.array_equal(host, here.numpy())
    assert host[[0, 2]].tolist() == [1, 0]
    far = HostWorkbench().with_error(np.float32([0.9, 0.3]), np.float32([0.9998, 0.3]), np.float32([1.0, 0.3]))
    assert far[0] == pytest.approx(0.9002), "of another number it is an error like any"
