"""Training: what is wrong in one step, and in the log of many."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DOORS"]

DOORS: Mapping[str, Mapping[str, str]] = {
    "verbs": {"training": f"{__name__}.training_verb"},
    "explainers": {"step": f"{__name__}.explain_step:explain_step"},
    "fixes": {"step": f"{__name__}.step_fix"},
}
