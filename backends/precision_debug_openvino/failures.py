"""OpenVINO's errors, in one line of ours."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError, UsageError, shorten, translate_errors

from .reasons import say

__all__ = ["building", "reading", "running", "to_one_line"]

_PLACES = re.compile(
    r"Exception from src/\S+:\s*|(?:Check )?'[^']*' failed at src/\S+:\s*|FrontEnd API failed with \w+:"
)
_LOG = re.compile(r"Model wasn't fully converted\.|Failed operations detailed log:|Summary:")


def to_one_line(error: BaseException) -> str:
    """Return what an exception of OpenVINO says, without the places in its source, on one line that keeps both ends."""
    text = _LOG.sub(" ", _PLACES.sub(" ", str(error)))
    return shorten(" ".join(text.split()).strip(" :") or type(error).__name__, 400)


def reading(path: str) -> AbstractContextManager[None]:
    """Around reading a model file: ModelError for what OpenVINO raises."""
    hint = say("reads_these")
    return translate_errors(
        path, lambda error: ModelError(say("cannot_read", error=to_one_line(error)), where=path, hint=hint)
    )


def building(path: str, mode: str, properties: Collection[str] = ()) -> AbstractContextManager[None]:
    """Around compiling a model: BackendError for what OpenVINO raises, UsageError where that names a property of the
    user's."""

    def translate(error: BaseException) -> PrecisionDebugError:
        told = to_one_line(error)
        if name := next((one for one in properties if one in told), ""):
            return UsageError(f"OpenVINO refuses it ({told})", where=f"--option {name}")
        return BackendError(f"OpenVINO could not compile it for {mode} ({told})", where=path)

    return translate_errors(path, translate)


def running(path: str, mode: str) -> AbstractContextManager[None]:
    """Around a run: BackendError for what OpenVINO raises."""
    return translate_errors(
        path, lambda error: BackendError(f"OpenVINO failed while running {mode} ({to_one_line(error)})", where=path)
    )
