"""Where the kernels of ``compare`` leave their numbers: memory of the host that the device writes to."""

from __future__ import annotations

import threading
from typing import Any

import torch

__all__ = ["Answer", "give_back", "taken"]

_KEPT = 512
"""Answers of one size that are kept for another use."""

_free: dict[tuple[str, int, bool], list[Answer]] = {}
_lock = threading.Lock()


class Answer:
    """One row of numbers, and what comes with it. The arrays see the same memory as the tensors."""

    __slots__ = ("copied", "extra", "extras", "key", "row", "values")

    def __init__(self, width: int, size: int, errors: bool, device: torch.device) -> None:
        """width: of the row. size: of extra, float32 where it holds errors, else int32."""
        memory = torch.empty(width + -(-size // 2), dtype=torch.float64, pin_memory=device.type == "cuda")
        self.row = memory[:width]
        self.values: Any = self.row.numpy()
        self.extra = memory[width:].view(torch.float32 if errors else torch.int32)
        self.extras: Any = self.extra.numpy()
        self.copied: Any = torch.cuda.Event() if device.type == "cuda" else None
        self.key = (str(device), size, errors)

    def wait(self) -> None:
        if self.copied is not None:
            self.copied.synchronize()

    @property
    def ready(self) -> bool:
        return self.copied is None or bool(self.copied.query())


def taken(width: int, size: int, errors: bool, device: torch.device) -> Answer:
    """An answer for extra numbers; more than ``size`` where errors are kept, so that few sizes are in use."""
    size = max(4096, 1 << (size - 1).bit_length()) if errors else size
    with _lock:
        kept = _free.get((str(device), size, errors))
        if kept:
            return kept.pop()
    return Answer(width, size, errors, device)


def give_back(answer: Answer) -> None:
    """Keep an answer whose numbers were read, and into which nothing is written any more."""
    with _lock:
        kept = _free.setdefault(answer.key, [])
        if len(kept) < _KEPT:
            kept.append(answer)
