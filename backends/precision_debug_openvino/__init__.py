"""The OpenVINO backend: the real runtime on a CPU, what each of its layers ran in, and every tensor that survives.

Imports no framework.
"""

from __future__ import annotations

from .backend import OpenVinoBackend

__all__ = ["OpenVinoBackend"]
