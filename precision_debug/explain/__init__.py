"""Who introduced the error, and why: each operator alone, the effect of its error, and the cause with evidence."""

from __future__ import annotations

from .bounds import usual_error
from .explain import Subject, explain
from .units import is_narrow

__all__ = ["Subject", "explain", "is_narrow", "usual_error"]
