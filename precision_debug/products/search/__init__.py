"""Search: the smallest set to keep in higher precision, and every run mode in one table."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DOORS"]

DOORS: Mapping[str, Mapping[str, str]] = {
    "verbs": {"search": f"{__name__}.search_verb", "sweep": f"{__name__}.sweep_verb"},
    "jobs": {"search": f"{__name__}.search_run:search"},
}
