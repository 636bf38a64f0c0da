"""LiteRT's errors, in one line of ours."""

from __future__ import annotations

from contextlib import AbstractContextManager

from precision_debug.errors import BackendError, ModelError, shortened, translated

__all__ = ["building", "plain", "reading", "running"]


def plain(error: BaseException) -> str:
    """What an exception of LiteRT says, on one line that keeps both ends."""
    return shortened(" ".join(str(error).split()) or type(error).__name__, 400)


def reading(path: str) -> AbstractContextManager[None]:
    """Around reading a model file: ModelError for what the flatbuffer's reader raises."""
    return translated(
        path, lambda error: ModelError(f"LiteRT cannot read it ({plain(error)})", where=path, hint="convert it again")
    )


def building(path: str, mode: str) -> AbstractContextManager[None]:
    """Around making an interpreter: BackendError for what LiteRT raises."""
    hint = "tflite_opt has kernels that the reference ones lack" if mode == "tflite_ref" else ""
    return translated(
        path,
        lambda error: BackendError(f"LiteRT could not prepare it for {mode} ({plain(error)})", where=path, hint=hint),
    )


def running(path: str, mode: str) -> AbstractContextManager[None]:
    """Around a run: BackendError for what LiteRT raises."""
    return translated(
        path, lambda error: BackendError(f"LiteRT failed while running {mode} ({plain(error)})", where=path)
    )
