"""LiteRT's errors, in one line of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError, shortened

__all__ = ["building", "plain", "reading", "running"]


def plain(error: BaseException) -> str:
    """What an exception of LiteRT says, on one line that keeps both ends."""
    return shortened(" ".join(str(error).split()) or type(error).__name__, 400)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Around reading a model file: ModelError for what the flatbuffer's reader raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise ModelError(f"LiteRT cannot read it ({plain(error)})", where=path, hint="convert it again") from error


@contextmanager
def building(path: str, mode: str) -> Iterator[None]:
    """Around making an interpreter: BackendError for what LiteRT raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        hint = "tflite_opt has kernels that the reference ones lack" if mode == "tflite_ref" else ""
        raise BackendError(f"LiteRT could not prepare it for {mode} ({plain(error)})", where=path, hint=hint) from error


@contextmanager
def running(path: str, mode: str) -> Iterator[None]:
    """Around a run: BackendError for what LiteRT raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise BackendError(f"LiteRT failed while running {mode} ({plain(error)})", where=path) from error
