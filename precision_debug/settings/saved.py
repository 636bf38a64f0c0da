"""Settings that name a file which a run writes: for the run that the user asked for, and for no trial beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SAVED", "without_saving"]

SAVED = frozenset(["save_engine", "save_inspector", "save_ir", "save_model", "save_tactics"])


def without_saving(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run that is tried with other settings: it writes none of the user's files.

    Their names may begin with a side ("target.save_model").
    """
    return {name: value for name, value in options.items() if name.rpartition(".")[2] not in SAVED}
