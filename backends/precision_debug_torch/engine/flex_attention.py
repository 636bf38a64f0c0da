"""torch's flex_attention compiles itself, which it cannot do while its operators are watched."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

__all__ = ["run_uncompiled"]


_SWITCH = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
_lock = threading.Lock()
_users = 0
_before = [False]


@contextlib.contextmanager
def run_uncompiled() -> Iterator[None]:
    """While a run is watched, in any thread: torch's own switch for debugging, and back afterwards."""
    global _users  # noqa: PLW0603
    module = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None or not hasattr(module, _SWITCH):
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            _before[0] = getattr(module, _SWITCH)
            setattr(module, _SWITCH, True)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                setattr(module, _SWITCH, _before[0])
