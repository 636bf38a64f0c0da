"""Switches of the whole process that a model may turn inside forward; a run beside it in another thread sees them too.

``sdpa_kernel`` is one: it chooses attention's kernel for every thread, and puts back what was there before. Two runs
that turn it at the same time compute by each other's choice, and may leave it turned for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LISTING", "Switches"]

LISTING = threading.Lock()
"""Held by a run that lists a model's tensors, so that what it notices is its own model's doing."""


def _known() -> dict[str, Callable[[], Any]]:
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
        self._getters = _known()
        self._before = [get() for get in self._getters.values()]
        self.turned = ""

    def look(self) -> None:
        """Costs a microsecond or two: for runs that list only."""
        if not self.turned:
            for (name, get), before in zip(self._getters.items(), self._before, strict=True):
                if get() != before:
                    self.turned = name
                    return
