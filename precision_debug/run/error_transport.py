"""An error of ours as it travels from one process to another."""

from __future__ import annotations

import errno

from .. import errors, events
from ..errors import BackendError, OutputError, PrecisionDebugError, UsageError, shortened
from ..reasons import say

__all__ = ["as_ours", "error_of", "failure_of", "of_the_machine"]


def failure_of(error: PrecisionDebugError) -> events.Failure:
    """The event that tells of it. A backend's own kind of an error travels as the one of ours that it is."""
    ours = (kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return events.Failure(
        text=str(error), kind=next(ours, type(error).__name__), what=error.what, where=error.where, hint=error.hint
    )


def error_of(failure: events.Failure) -> PrecisionDebugError:
    """The inverse; of a kind that this version does not know, BackendError."""
    kind = getattr(errors, failure.kind, BackendError)
    error: PrecisionDebugError = kind(failure.what, where=failure.where, hint=failure.hint)
    return error


def as_ours(error: BaseException) -> PrecisionDebugError:
    """Any exception as one of ours; one that nobody expected says so."""
    if isinstance(error, PrecisionDebugError):
        return error
    known = of_the_machine(error)
    if known is not None:
        return known
    text = shortened(f"internal error: {type(error).__name__}: {error}", 400)
    return BackendError(text, hint="please report it with the output of --verbose")


def of_the_machine(error: BaseException) -> PrecisionDebugError | None:
    """What the machine refuses, which is not a fault of anybody's code: room, memory, descriptors, processes."""
    cause: BaseException | None = error
    while cause is not None:
        where = str(getattr(cause, "filename", None) or "")
        match getattr(cause, "errno", None):
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                return OutputError(say("disk_full"), where=where, hint=say("free_space"))
            case errno.EMFILE | errno.ENFILE:
                return UsageError(say("no_descriptors"), where=where, hint=say("more_descriptors"))
            case errno.EAGAIN if isinstance(cause, BlockingIOError):
                return UsageError(say("no_processes"), where=where, hint=say("more_processes"))
            case errno.EROFS | errno.EACCES | errno.EPERM if where:
                reason = getattr(cause, "strerror", None) or str(cause)
                return OutputError(say("cannot_write", error=reason), where=where, hint=say("another_place"))
        if isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM:
            return BackendError(say("out_of_memory"), hint=say("smaller"))
        cause = cause.__cause__ or cause.__context__
    return None
