"""The ONNX Runtime backend: every tensor of a session, seen in execution order while it lives. Imports no framework."""

from __future__ import annotations

from .backend import OnnxRuntimeBackend

__all__ = ["OnnxRuntimeBackend"]
