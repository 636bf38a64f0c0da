"""A model's folder as transformers saves it: what its config.json says, and the same model with other values there.

Several engines read such folders, so that this is no single backend's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ModelError, OutputError
from .protocols import ABSENT, Place

__all__ = ["WORDS", "read_configuration", "write_configured"]

WORDS = "transformers"

_READ_BY_NOBODY = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})
"""Keys that say where a folder comes from, and in which type it was trained: the run mode says in which it runs."""

_FILE = "config.json"


def read_configuration(folder: str) -> Mapping[str, Any]:
    """Return what a folder's config.json says; {} where there is none, or none that can be read."""
    try:
        found = json.loads((Path(folder) / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: value for key, value in found.items() if key not in _READ_BY_NOBODY} if isinstance(found, dict) else {}


def write_configured(folder: str, values: Mapping[Place, Any], place: Path) -> None:
    """Write the same model with other values in its config.json; all other files are links to the folder's.

    place: an existing empty folder. Raises ModelError or OutputError.
    """
    source = Path(folder).resolve()
    try:
        found = json.loads((source / _FILE).read_text(encoding="utf-8"))
        others = [one for one in source.iterdir() if one.name != _FILE]
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"its {_FILE} cannot be read ({type(error).__name__})", where=folder) from error
    try:
        for one in others:
            (place / one.name).symlink_to(one)
        (place / _FILE).write_text(json.dumps(_with(found, values), indent=2), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot be written ({error.strerror or error})", where=str(place)) from error


def _with(configuration: Any, values: Mapping[Place, Any]) -> Any:
    changed = copy.deepcopy(configuration)
    for (*way, last), value in values.items():
        inner = changed
        for key in way:
            inner = inner[key]
        if value is ABSENT:
            inner.pop(last, None)
        else:
            inner[last] = value
    return changed
