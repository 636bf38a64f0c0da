"""The TensorRT backend: the real engine, its layers' real precision, and every tensor that it lets be seen.

Imports no framework.
"""

from __future__ import annotations

from .backend import TensorRTBackend

__all__ = ["TensorRTBackend"]
