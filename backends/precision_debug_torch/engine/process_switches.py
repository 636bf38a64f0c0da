"""Switches of the whole process that a model may turn inside forward; a run beside it in another thread sees them too.

``sdpa_kernel`` is one: it chooses attention's kernel for every thread, and puts back what was there before. Two runs
that turn it at the same time compute by each other's choice, and may leave it turned for good.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

__all__ = ["GLOBALS", "LISTING", "Switches", "seed_all"]


LISTING = threading.Lock()
"""Held by a run that lists a model's tensors, so that what it notices is its own model's doing."""


def _list_known() -> dict[str, Callable[[], Any]]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    wanted: dict[str, tuple[Any, str]] = {
        "sdpa_kernel (flash)": (cuda, "flash_sdp_enabled"),
        "sdpa_kernel (math)": (cuda, "math_sdp_enabled"),
        "sdpa_kernel (efficient)": (cuda, "mem_efficient_sdp_enabled"),
        "sdpa_kernel (cudnn)": (cuda, "cudnn_sdp_enabled"),
        "set_default_dtype": (torch, "get_default_dtype"),
        "use_deterministic_algorithms": (torch, "are_deterministic_algorithms_enabled"),
        "mkldnn": (torch._C, "_get_mkldnn_enabled"),
        "cudnn": (torch._C, "_get_cudnn_enabled"),
    }
    found = {name: getattr(place, getter) for name, (place, getter) in wanted.items() if hasattr(place, getter)}
    found["cudnn.benchmark"] = lambda: cudnn.benchmark
    return found


class Switches:
    """What they are when a run begins; ``turned`` names the first that was found otherwise since."""

    def __init__(self) -> None:
        self._getters = _list_known()
        self._before = [get() for get in self._getters.values()]
        self.turned = ""

    def look(self) -> None:
        """Costs a microsecond or two: for runs that list only."""
        if not self.turned:
            for (name, get), before in zip(self._getters.items(), self._before, strict=True):
                if get() != before:
                    self.turned = name
                    return


# The random states of the process, which all threads share: who changes them holds the lock meanwhile.

GLOBALS = threading.RLock()
"""Held while torch's switches and random states of the whole process are one run's, or one factory's, own."""


@contextlib.contextmanager
def seed_all(seed: int) -> Iterator[None]:
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
