"""LiteRT's errors, in one line of ours."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from precision_debug.errors import (
    BackendError,
    BackendUnavailable,
    ModelError,
    PrecisionDebugError,
    shorten,
    translate_errors,
)

from .reasons import say

__all__ = ["building", "reading", "running", "to_one_line"]


def to_one_line(error: BaseException) -> str:
    """Return what an exception of LiteRT says, on one line that keeps both ends."""
    return shorten(" ".join(str(error).split()) or type(error).__name__, 400)


def reading(path: str) -> AbstractContextManager[None]:
    """Around reading a model file: ModelError for what the flatbuffer's reader raises."""
    return translate_errors(
        path,
        lambda error: ModelError(f"LiteRT cannot read it ({to_one_line(error)})", where=path, hint="convert it again"),
    )


def building(path: str, mode: str, content: bytes) -> AbstractContextManager[None]:
    """Around making an interpreter: BackendError for what LiteRT raises, BackendUnavailable where it lacks a kernel."""

    def ours(error: BaseException) -> PrecisionDebugError:
        lacking = re.search(r"nresolved custom op: ([^\s]+?)\.?(\s|$)", str(error))
        if lacking is None:
            return BackendError(f"LiteRT could not prepare it for {mode} ({to_one_line(error)})", where=path)
        runs = _runs_as_it_ships(content)
        hint = say("opt_runs_it") if runs else say("nothing_runs_it")
        return BackendUnavailable(say("no_kernel", mode=mode, op_type=lacking[1]), where=path, hint=hint)

    return translate_errors(path, ours)


def _runs_as_it_ships(content: bytes) -> bool:
    """Return whether LiteRT with its delegate prepares the file: XNNPACK has kernels of operators that LiteRT itself
    lacks."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN).allocate_tensors()
    except (RuntimeError, ValueError):
        return False
    return True


def running(path: str, mode: str) -> AbstractContextManager[None]:
    """Around a run: BackendError for what LiteRT raises."""
    return translate_errors(
        path, lambda error: BackendError(f"LiteRT failed while running {mode} ({to_one_line(error)})", where=path)
    )
