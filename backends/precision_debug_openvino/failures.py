"""OpenVINO's errors, in one line of ours."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from precision_debug.errors import BackendError, ModelError, shortened, translated

from .reasons import say

__all__ = ["building", "plain", "reading", "running"]

_PLACES = re.compile(
    r"Exception from src/\S+:\s*|(?:Check )?'[^']*' failed at src/\S+:\s*|FrontEnd API failed with \w+:"
)
_LOG = re.compile(r"Model wasn't fully converted\.|Failed operations detailed log:|Summary:")


def plain(error: BaseException) -> str:
    """Return what an exception of OpenVINO says, without the places in its source, on one line that keeps both ends."""
    text = _LOG.sub(" ", _PLACES.sub(" ", str(error)))
    return shortened(" ".join(text.split()).strip(" :") or type(error).__name__, 400)


def reading(path: str) -> AbstractContextManager[None]:
    """Around reading a model file: ModelError for what OpenVINO raises."""
    hint = say("reads_these")
    return translated(
        path, lambda error: ModelError(say("cannot_read", error=plain(error)), where=path, hint=hint)
    )


def building(path: str, mode: str) -> AbstractContextManager[None]:
    """Around compiling a model: BackendError for what OpenVINO raises."""
    return translated(
        path, lambda error: BackendError(f"OpenVINO could not compile it for {mode} ({plain(error)})", where=path)
    )


def running(path: str, mode: str) -> AbstractContextManager[None]:
    """Around a run: BackendError for what OpenVINO raises."""
    return translated(
        path, lambda error: BackendError(f"OpenVINO failed while running {mode} ({plain(error)})", where=path)
    )
