"""A disk without room is told as such, whatever was being written: it is not the model's fault."""

from __future__ import annotations

import errno

from precision_debug.errors import OutputError
from precision_debug.reasons import say

__all__ = ["raise_if_full"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAID = (
    "No space left on device", "Failed to write external initializers", "Failed to save ORT format model",
    "Protobuf serialization failed",
)  # fmt: skip
"""ONNX Runtime's words where a file of its own cannot be written, in a folder that is ours."""


def raise_if_full(error: BaseException, folder: str) -> None:
    """Raise OutputError where an error, or what it came from, says that nothing more can be written.

    folder: that was written to.
    """
    at: BaseException | None = error
    while at is not None:
        if (isinstance(at, OSError) and at.errno in _FULL) or any(words in str(at) for words in _SAID):
            raise OutputError(say("no_room"), where=folder, hint=say("free_space")) from error
        at = at.__cause__ or at.__context__
