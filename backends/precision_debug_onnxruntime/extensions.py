"""onnxruntime-extensions without what it drags in.

Its ``__init__`` imports torch and transformers where they are installed (seconds), for tokenizer converters that are
not used here, and switches protobuf to its pure-Python implementation through the environment.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

__all__ = ["extensions"]

_lock = threading.Lock()
_UNUSED = ("torch", "transformers")
_PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"


def extensions() -> Any:
    """The module ``onnxruntime_extensions``. Raises ImportError where it is not installed."""
    with _lock:
        if "onnxruntime_extensions" not in sys.modules:
            hidden = [name for name in _UNUSED if name not in sys.modules]
            before = os.environ.get(_PROTOBUF)
            for name in hidden:
                sys.modules[name] = None  # type: ignore[assignment]
            try:
                import onnxruntime_extensions  # noqa: F401
            finally:
                for name in hidden:
                    del sys.modules[name]
                if before is None:
                    os.environ.pop(_PROTOBUF, None)
                else:
                    os.environ[_PROTOBUF] = before
        return sys.modules["onnxruntime_extensions"]
