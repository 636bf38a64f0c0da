"""Reasons, notes, causes and doubts as codes with arguments, worded in English and Chinese in one place."""

from __future__ import annotations

from .core import CORE, list_some, suggest_nearest
from .reason import (
    NOTHING,
    Catalogue,
    Plain,
    Reason,
    ReasonOrText,
    Text,
    Wording,
    arguments_of,
    as_reason,
    fill_template,
    same,
    split,
)

__all__ = [
    "CORE",
    "NOTHING",
    "Catalogue",
    "Plain",
    "Reason",
    "ReasonOrText",
    "Text",
    "Wording",
    "arguments_of",
    "as_reason",
    "fill_template",
    "list_some",
    "same",
    "say",
    "split",
    "suggest_nearest",
]

say = CORE
"""Makes the core's own reasons: ``say("fused_into", operator=…, node=…)``."""
