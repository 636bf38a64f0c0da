"""What a file's head says of how operators compute, and the same file with other values there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError, OutputError
from precision_debug.protocols import ABSENT, Place
from precision_debug.records import ModelFiles, SessionSpec

from ..failures import reading

__all__ = ["HeadConfigurations"]

_READ_BY_NOBODY = ("general.", "tokenizer.", "split.", "quantize.")
"""How keys begin that no operator reads: names, the vocabulary's texts, where the file comes from."""


class HeadConfigurations:
    """See ``protocols.Configurations``: numbers and words of a head; lists stay as they are."""

    words = "gguf"
    weights = None

    def read(self, spec: SessionSpec) -> Mapping[str, Any]:
        """See ``protocols.Configurations``."""
        from ..model import read_model

        try:
            values = read_model(spec.model.model_file).values
        except ModelError:
            return {}
        return {key: one for key, one in values.items() if one is not None and not key.startswith(_READ_BY_NOBODY)}

    def exchange(
        self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path, base: SessionSpec  # noqa: ARG002
    ) -> ModelFiles:  # fmt: skip
        """See ``protocols.Configurations``."""
        from ..model import read_model
        from .file import write_widened
        from .library import load_library

        made, model, place = load_library(), read_model(spec.model.model_file), folder / "configured.gguf"
        told = {".".join(one): None if value is ABSENT else value for one, value in values.items()}
        try:
            with reading(spec.model.model_file):
                write_widened(
                    model, place, (), lambda one: made.data_size(one.kind, one.elements), lambda _: None, told
                )
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror or error})", where=str(place)) from error
        return ModelFiles(model_file=str(place))
