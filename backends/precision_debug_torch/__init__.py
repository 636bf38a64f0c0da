"""The PyTorch backend: every module's output or every ATen operator's, seen while it lives. Imports no framework."""

from __future__ import annotations

from .backend import TorchBackend

__all__ = ["TorchBackend"]
