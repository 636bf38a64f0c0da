"""Finds a model's files and reads its program; the weights stay on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from precision_debug.errors import ModelError
from precision_debug.reasons import say as core
from precision_debug.records import ModelFiles

from .engine.legacy_program import read_legacy
from .engine.pir_program import read_pir
from .engine.program import Program
from .reasons import say

__all__ = ["Model", "read_model"]

_PREFERRED = ("inference", "model", "__model__")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A program and where it and its weights lie."""

    program: Program
    file: Path
    params: Path

    @property
    def path(self) -> str:
        """The path that names the model in messages."""
        return str(self.file)


def read_model(files: ModelFiles) -> Model:
    """Read a program, legacy or PIR. Raises ModelError."""
    file = Path(files.model_file) if files.model_file else _find_in_folder(Path(files.model_dir))
    if file.is_dir():
        file = _find_in_folder(file)
    if not file.is_file():
        raise ModelError("no such file", where=str(file), hint="check --model_file")
    try:
        if file.stat().st_size == 0:
            raise ModelError(core("file_empty"), where=str(file), hint=core("export_again"))
        program: Program = read_pir(file) if file.suffix.lower() == ".json" else read_legacy(file)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(file)) from error
    params = Path(files.params_file) if files.params_file else _find_params(file)
    if not params.is_file():
        raise ModelError("no such file", where=str(params), hint="check --params_file")
    return Model(program=program, file=file, params=params)


def _find_in_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ModelError("no such folder", where=str(folder), hint="check --model_dir")
    found = sorted(
        path
        for path in folder.iterdir()
        if path.suffix == ".pdmodel" or path.name == "__model__"
        or (path.suffix == ".json" and path.with_suffix(".pdiparams").exists())
    )  # fmt: skip
    chosen = next((path for stem in _PREFERRED for path in found if path.stem == stem), None)
    if chosen is not None:
        return chosen
    if len(found) == 1:
        return found[0]
    if found:
        names = " ".join(path.name for path in found)
        raise ModelError(say("several_models", names=names), where=str(folder), hint=core("name_model_file"))
    raise ModelError(say("no_model"), where=str(folder), hint=core("name_model_file"))


def _find_params(file: Path) -> Path:
    names = ("__params__", "params") if file.name == "__model__" else (f"{file.stem}.pdiparams",)
    for name in names:
        if file.with_name(name).is_file():
            return file.with_name(name)
    beside = sorted(file.parent.glob("*.pdiparams"))
    if len(beside) == 1:
        return beside[0]
    raise ModelError(f"its weights {names[0]} are not beside it", where=str(file), hint="name them with --params_file")
