"""What a model's file says beside its weights, and the same model with other values there."""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ..errors import ModelError, OutputError
from ..records import ModelFiles, SessionSpec

__all__ = ["ABSENT", "Absent", "Configurations", "Configurer", "FolderConfigurations", "Place"]

Place = tuple[str, ...]
"""Where a value stands: the keys on the way to it."""


class Absent(enum.Enum):
    """That a configuration does not have a key, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Configurations(Protocol):
    """Reads and writes what models of one format say of how their operators compute."""

    @property
    def words(self) -> str:
        """Whose names the keys are: configurations in the same words can be held against each other."""

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return what a model says, without names and dates, which no operator reads; {} where it has none."""

    def exchange(self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec) -> ModelFiles:
        """Write the same model with other values, ``ABSENT`` where a key is to be left out.

        folder: an existing empty one. base: the model that has these values. Raises ModelError or OutputError."""


class Configurer(Protocol):
    """A backend whose models say in a configuration what their operators compute; by its capability."""

    @property
    def configurations(self) -> Configurations:
        """Of the models that it reads."""


class FolderConfigurations:
    """Of folders as transformers saves them, which several engines read. See ``Configurations``."""

    words = "transformers"

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """See ``Configurations``: what config.json says."""
        try:
            found = json.loads((Path(spec.model.path) / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {key: one for key, one in found.items() if key not in _READ_BY_NOBODY} if isinstance(found, dict) else {}

    def exchange(
        self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec  # noqa: ARG002
    ) -> ModelFiles:  # fmt: skip
        """See ``Configurations``: all files but config.json are links to the model's own."""
        source = Path(spec.model.path).resolve()
        try:
            found = json.loads((source / _FILE).read_text(encoding="utf-8"))
            others = [one for one in source.iterdir() if one.name != _FILE]
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"its {_FILE} cannot be read ({type(error).__name__})", where=spec.model.path) from error
        try:
            for one in others:
                (folder / one.name).symlink_to(one)
            (folder / _FILE).write_text(json.dumps(_with(found, values), indent=2), encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror or error})", where=str(folder)) from error
        return ModelFiles(model_dir=str(folder))


_FILE = "config.json"

_READ_BY_NOBODY = frozenset({
    "_name_or_path", "transformers_version", "torch_dtype", "dtype", "quantization_config", "compression_config",
})  # fmt: skip
"""Keys that say where a folder comes from, in which type it was trained (the run mode says in which it runs), and how
its weights are packed: with another value of that the weights could not be read."""


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
