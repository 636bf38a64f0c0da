"""Reasons, notes, causes and doubts as codes with arguments, worded in English and Chinese in one place."""

from __future__ import annotations

from .core import CORE, did_you_mean, some
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
    filled,
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
    "did_you_mean",
    "filled",
    "same",
    "say",
    "some",
    "split",
]

say = CORE
"""Makes the core's own reasons: ``say("fused_into", operator=…, node=…)``."""
