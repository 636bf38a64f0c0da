"""The llama.cpp backend: a .gguf file as it is deployed on a CPU, and in float32.

Imports no framework.
"""

from __future__ import annotations

from .backend import LlamaCppBackend

__all__ = ["LlamaCppBackend"]
