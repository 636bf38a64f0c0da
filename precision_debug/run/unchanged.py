"""Whether a model is still the one that something stored was made of.

A recording, a report and saved outputs outlive the model's file, which may be exported again under the same name. What
is there now is held against a digest that was kept; what cannot be known is not taken for the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from ..errors import PrecisionDebugError
from ..records import Doubt, FileState, ModelFiles, Side
from ..report.formats.json import digest_of_files, state_of
from ..report.model import Report

__all__ = ["held_against", "model_digest", "model_files", "with_changes"]

_PARAMETERS = {".pdmodel": ".pdiparams", ".json": ".pdiparams", ".xml": ".bin"}
"""Of a format, how the file ends that lies beside the model under its name and holds its weights."""


def model_digest(model: ModelFiles) -> str:
    """SHA-256 over a model's files as they are now; "" of what is not a file. See ``model_files``."""
    return digest_of_files(model_files(model))


def model_files(model: ModelFiles) -> tuple[FileState, ...]:
    """A model's files: its own, its parameters, an ONNX file's external weights.

    () of what is not a file: a folder may hold anything, and a program loads its weights from wherever it likes.
    """
    files = [Path(name) for name in (model.model_file, model.params_file) if name]
    if model.model_dir or not files or not all(file.is_file() for file in files) or files[0].suffix == ".py":
        return ()
    try:
        # a file may be reached by several links, and counts once
        beside = sorted({file.resolve() for file in _beside(files[0])} - {file.resolve() for file in files})
        return tuple(state_of(file.absolute()) for file in (*files, *beside))
    except (OSError, PrecisionDebugError):
        return ()


def _beside(model: Path) -> Iterator[Path]:
    parameters = model.with_suffix(_PARAMETERS.get(model.suffix.lower(), ".none"))
    if parameters.is_file():
        yield parameters
    if model.suffix.lower() == ".onnx":
        from .content import external_files

        yield from (file for file in external_files(model) if file.is_file())


def held_against(
    what: str, path: str, when: str, digest: str, given: ModelFiles, *, named: bool
) -> tuple[str, tuple[Doubt, ...]]:
    """Hold what was stored against the models that it can be of: "same", "changed" or "unknown", and what to say.

    what: the folder or file that was stored. path, digest: of its model at that time, "" where they are not known.
    given: the model of the command. named: the user says that it is of that one.
    """
    own = ModelFiles(model_file=path)
    theirs = given.path and (named or not path or Path(given.path).name == Path(path).name)
    candidates = [given] if named else [*([given] if theirs else []), *([own] if path else [])]
    found = {one.path: now for one in candidates if (now := model_digest(one))}
    if not digest or not found:
        return "unknown", ()
    if digest in found.values():
        return "same", ()
    return "changed", (Doubt(code="model_changed", values={"what": what, "file": next(iter(found)), "when": when}),)


def with_changes(report: Report, what: str) -> Report:
    """A stored report, whose sides say where their model's file is another one by now."""
    spec = report.spec
    target = _checked(report.target, spec.model, what, report.started)
    baseline = _checked(report.baseline, spec.baseline_model or spec.model, what, report.started)
    return dataclasses.replace(report, target=target, baseline=baseline)


def _checked(side: Side, model: ModelFiles, what: str, when: str) -> Side:
    if not side.digest or side.stored:
        return side
    _, doubts = held_against(what, "", when, side.digest, model, named=True)
    return dataclasses.replace(side, doubts=(*side.doubts, *doubts)) if doubts else side
