"""The Paddle Inference backend, for the legacy format (.pdmodel) and PIR (.json). Imports no framework."""

from __future__ import annotations

from .backend import PaddleBackend

__all__ = ["PaddleBackend"]
