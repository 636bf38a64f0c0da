"""The vLLM backend: a folder of transformers as a serving engine runs it, in an environment of its own.

Imports no framework.
"""

from __future__ import annotations

from .backend import VllmBackend

__all__ = ["VllmBackend"]
