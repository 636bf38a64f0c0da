"""OpenVINO's errors, in one line of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError, shortened

__all__ = ["building", "plain", "reading", "running"]

_PLACES = re.compile(
    r"Exception from src/\S+:\s*|(?:Check )?'[^']*' failed at src/\S+:\s*|FrontEnd API failed with \w+:"
)
_LOG = re.compile(r"Model wasn't fully converted\.|Failed operations detailed log:|Summary:")


def plain(error: BaseException) -> str:
    """What an exception of OpenVINO says, without the places in its source, on one line that keeps both ends."""
    text = _LOG.sub(" ", _PLACES.sub(" ", str(error)))
    return shortened(" ".join(text.split()).strip(" :") or type(error).__name__, 400)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Around reading a model file: ModelError for what OpenVINO raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        hint = "OpenVINO reads .onnx, .xml, .pdmodel, .pb and .tflite; another engine's mode may read this one"
        raise ModelError(f"OpenVINO cannot read it ({plain(error)})", where=path, hint=hint) from error


@contextmanager
def building(path: str, mode: str) -> Iterator[None]:
    """Around compiling a model: BackendError for what OpenVINO raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise BackendError(f"OpenVINO could not compile it for {mode} ({plain(error)})", where=path) from error


@contextmanager
def running(path: str, mode: str) -> Iterator[None]:
    """Around a run: BackendError for what OpenVINO raises."""
    try:
        yield
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise BackendError(f"OpenVINO failed while running {mode} ({plain(error)})", where=path) from error
