"""Tools around a comparison: what they put behind the core's doors."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DOORS"]

_VERBS = ("check", "data", "diff", "inputs", "inspect", "ladder", "marks", "reduce", "roads")

DOORS: Mapping[str, Mapping[str, str]] = {
    "verbs": {name: f"{__name__}.{name}" for name in _VERBS},
    "options": {"gen_script": f"{__name__}.script:write_script", "plots": f"{__name__}.plots:show_plots"},
    "overlays": {name: f"{__name__}.overlays.{name}" for name in ("explorer", "netron", "tensorboard")},
    "stages": {"climbed": f"{__name__}.ladder:climb_stages"},
}
