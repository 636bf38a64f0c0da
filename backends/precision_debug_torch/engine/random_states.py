"""The random states of the process, which all threads share: who changes them holds the lock meanwhile."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np

__all__ = ["GLOBALS", "seeded"]

GLOBALS = threading.RLock()
"""Held while torch's switches and random states of the whole process are one run's, or one factory's, own."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, numpy's and torch's random numbers start from ``seed``; the process's own go on afterwards.

    No other thread seeds or draws by this backend meanwhile: two models that are built at the same time would
    otherwise share one sequence of numbers.
    """
    import torch

    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with GLOBALS:
        python, arrays = random.getstate(), np.random.get_state()
        try:
            with torch.random.fork_rng(devices=devices):
                random.seed(seed)
                np.random.seed(seed % 2**32)
                torch.manual_seed(seed)
                yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
