"""The LiteRT (TensorFlow Lite) backend: a .tflite file as it ships, with its reference kernels, and in float32.

Imports no framework.
"""

from __future__ import annotations

from .backend import LiteRtBackend

__all__ = ["LiteRtBackend"]
