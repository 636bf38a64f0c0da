"""What vLLM's process says when it fails, in one line of ours."""

from __future__ import annotations

import re

from precision_debug.errors import BackendError, ModelError, shorten

__all__ = ["make_not_loaded_error", "make_not_run_error"]

_MOST = 600
_NO_PARAMETER = re.compile(r"There is no module or parameter named '([^']+)' in (\w+)")


def make_not_loaded_error(path: str, mode: str, what: str) -> ModelError:
    """Of a model that the engine refuses."""
    if found := _NO_PARAMETER.search(what):
        name, kind = found.groups()
        hint = "the folder was saved with weights that this class ties or does not have: take them out, or tie them"
        return ModelError(f"vLLM's {kind} has no {name}, which the folder's weights bring", where=path, hint=hint)
    return ModelError(f"vLLM cannot load it for {mode} ({shorten(what, _MOST)})", where=path)


def make_not_run_error(path: str, mode: str, what: str) -> BackendError:
    """Of a run that ended early."""
    return BackendError(f"vLLM failed in {mode} ({shorten(what, _MOST)})", where=path)
