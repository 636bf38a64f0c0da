"""What vLLM's process says when it fails, in one line of ours."""

from __future__ import annotations

from precision_debug.errors import BackendError, ModelError, shortened

__all__ = ["not_loaded", "not_run"]

_MOST = 600


def not_loaded(path: str, mode: str, what: str) -> ModelError:
    """Of a model that the engine refuses."""
    return ModelError(f"vLLM cannot load it for {mode} ({shortened(what, _MOST)})", where=path)


def not_run(path: str, mode: str, what: str) -> BackendError:
    """Of a run that ended early."""
    return BackendError(f"vLLM failed in {mode} ({shortened(what, _MOST)})", where=path)
