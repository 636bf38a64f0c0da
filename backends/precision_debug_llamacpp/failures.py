"""llama.cpp's errors, in one line of ours."""

from __future__ import annotations

from contextlib import AbstractContextManager

from precision_debug.errors import BackendError, ModelError, shorten, translate_errors

__all__ = ["building", "reading", "running"]


def _plain(error: BaseException) -> str:
    return shorten(" ".join(str(error).split()) or type(error).__name__, 400)


def reading(path: str) -> AbstractContextManager[None]:
    """Around reading a model file: ModelError for whatever its reader raises."""
    hint = "write it again with llama.cpp's convert_hf_to_gguf.py"
    return translate_errors(
        path, lambda error: ModelError(f"it is no GGUF file ({_plain(error)})", where=path, hint=hint)
    )


def building(path: str, mode: str) -> AbstractContextManager[None]:
    """Around loading a model: ModelError for what llama.cpp says."""
    return translate_errors(
        path, lambda error: ModelError(f"llama.cpp cannot load it for {mode} ({_plain(error)})", where=path)
    )


def running(path: str, mode: str) -> AbstractContextManager[None]:
    """Around a run: BackendError for what llama.cpp says."""
    return translate_errors(
        path, lambda error: BackendError(f"llama.cpp failed in {mode} ({_plain(error)})", where=path)
    )
