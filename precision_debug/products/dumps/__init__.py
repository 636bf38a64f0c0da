"""Another side: other tools' tensors, and a model beside what another framework has of it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DOORS"]

DOORS: Mapping[str, Mapping[str, str]] = {
    "verbs": {"dumps": f"{__name__}.dumps"},
    "sides": {"dump": f"{__name__}.dumped"},
    "pairings": {
        "across_frameworks": f"{__name__}.across_frameworks:match_values",
        "converted": f"{__name__}.converted:match_converted",
    },
}
