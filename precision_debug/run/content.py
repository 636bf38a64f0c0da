"""What decides the numbers of a command, as digests of what it holds now: a result is gone on from where all are equal.

Files count by their bytes, not by names and times: a model that was replaced in place is another one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import registry
from ..codec import encode
from ..errors import ModelError, PrecisionDebugError
from ..numbers.arrays import as_array
from ..protocols import Feeds
from ..records import ModelFiles, RunSpec
from ..settings.options import differing, options_of
from .overwriting import files_named
from .plan import Opening

__all__ = ["contents", "digest_of", "feeds_digest", "named_contents", "weights_digest"]

_ENGINES = (
    "precision-debug", "precision_debug", "numpy", "ml-dtypes", "onnx", "onnxruntime", "onnxruntime-gpu", "tensorrt",
    "torch", "torchao", "transformers", "paddlepaddle", "paddlepaddle-gpu", "openvino", "nncf", "ai-edge-litert",
    "xllamacpp",
)  # fmt: skip

_WITHOUT_EFFECT = ("command", "demo_sheet", "explain", "record", "save_tensors")
"""Fields of a command that decide nothing of a sample's rows."""

_WRITTEN = ("save_", "timing_cache")
"""How settings begin whose files a run writes itself."""

_WEIGHTS = frozenset({".data", ".bin", ".pdiparams", ".pdmodel", ".json", ".weights", ".pb", ".onnx_data"})
"""Endings of files that lie beside a model, begin with its name, and belong to it."""

_REPORTS = frozenset({".xlsx", ".html", ".md", ".csv", ".npz", ".log", ".txt"})
"""Endings that no model's folder keeps weights in, and that a run may write there."""

_BLOCK = 1 << 22
"""Bytes that are hashed at a time: a model's weights may be larger than memory."""


def contents(spec: RunSpec, *, without: Sequence[Path] = ()) -> dict[str, str]:
    """By what it is of (options, model, baseline, inputs, ...): a digest of what it holds.

    without: files that are not read, though they lie in a folder that is. Raises ModelError where a file that is there
    cannot be read.
    """
    plain = encode(spec)
    written = (one.name for one in options_of(RunSpec) if one.file == "written")
    for name in (*_WITHOUT_EFFECT, *written):
        plain.pop(name, None)
    options = {key: one for key, one in spec.options.items() if not _plain_name(key).startswith(_WRITTEN)}
    plain["options"] = encode(options)
    files = _Files(without)
    found = {"options": digest_of(plain), "model": files.model(spec.model)}
    if spec.baseline_model is not None:
        found["baseline's model"] = files.model(spec.baseline_model)
    for one, named in differing(spec):
        if one.file == "read" and one.name not in _WITHOUT_EFFECT and not one.field.startswith("model."):
            found[one.name] = files.named(named)
    found["files of the options"] = files.named(options)
    found["versions"] = digest_of(_versions())
    return found


def named_contents(*texts: str) -> str:
    """A digest of every file and folder that these name."""
    return _Files(()).named(*texts)


def digest_of(value: Any) -> str:
    """Of plain values."""
    return hashlib.sha256(json.dumps(encode(value), sort_keys=True).encode()).hexdigest()[:32]


def feeds_digest(sets: Iterable[Feeds]) -> str:
    """Of arrays by input name, one mapping after the other."""
    digest = hashlib.sha256()
    for feeds in sets:
        for name in sorted(feeds):
            _add_value(digest, name, feeds[name])
    return digest.hexdigest()[:32]


def weights_digest(openings: Iterable[Opening]) -> str:
    """Of models that are programs: their weights as they are loaded, and the user's modules that they come from.

    "" where none is one. Their files alone do not say what weights they load.
    """
    digest, some = hashlib.sha256(), False
    for opening in openings:
        keeper = opening.capabilities.weight_keeper
        if ".py" not in opening.spec.model.model_file or keeper is None:
            continue
        some = True
        try:
            weights = keeper.weights(opening.spec)
        except PrecisionDebugError:  # what is wrong with the model is said where it is opened
            continue
        for name in sorted(weights):
            _add_value(digest, name, weights[name])
        folder = Path(opening.spec.model.model_file.partition(".py")[0]).absolute().parent
        for path in sorted(_imported_from(folder)):
            digest.update(path.encode("utf-8", "surrogateescape"))
            _add_file(digest, Path(path))
    return digest.hexdigest()[:32] if some else ""


def _imported_from(folder: Path) -> Iterator[str]:
    """Files of modules that were imported from a folder, whichever way they are named there."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or not Path(file).absolute().is_relative_to(folder):
            continue
        if Path(file).is_file():  # torch.classes says that it is "_classes.py", wherever that would be
            yield file


class _Files:
    def __init__(self, without: Sequence[Path]) -> None:
        self._without = {_real(path) for path in without}

    def model(self, files: ModelFiles) -> str:
        """Of a model's files, its external weights and what lies beside it under its name."""
        digest = hashlib.sha256()
        for name in (files.model_file, files.params_file, files.model_dir):
            for path in dict.fromkeys(files_named(name)):
                if Path(path).is_dir():
                    self._folder(digest, Path(path), _REPORTS)
                else:
                    _add_file(digest, Path(path))
                    for beside in self._beside(Path(path)):
                        digest.update(beside.name.encode("utf-8", "surrogateescape"))
                        _add_file(digest, beside)
        return digest.hexdigest()[:32]

    def named(self, *things: Any) -> str:
        """Of every file and folder that strings name."""
        digest = hashlib.sha256()
        for path in dict.fromkeys(files_named(*things)):
            digest.update(path.encode("utf-8", "surrogateescape"))
            if Path(path).is_dir():
                self._folder(digest, Path(path))
            elif path.endswith(".py"):  # what a script imports from its own folder belongs to it
                for beside in sorted(Path(path).absolute().parent.glob("*.py")):
                    _add_file(digest, beside)
            else:
                _add_file(digest, Path(path))
        return digest.hexdigest()[:32]

    def _folder(self, digest: Any, folder: Path, left_out: frozenset[str] = frozenset()) -> None:
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden and path.suffix not in left_out and _real(path) not in self._without:
                digest.update(f"{path.relative_to(folder)}".encode("utf-8", "surrogateescape"))
                _add_file(digest, path)

    def _beside(self, model: Path) -> list[Path]:
        named = (path for path in model.absolute().parent.iterdir() if path.name.startswith(model.stem))
        found = {path for path in named if path.suffix in _WEIGHTS and path.name != model.name}
        if model.suffix == ".onnx":
            found |= set(_external(model))
        return sorted(path for path in found if path.is_file() and _real(path) not in self._without)


def _external(model: Path) -> Iterator[Path]:
    """The files of an ONNX model's external weights: beside it, and beside what it is a link to."""
    from ..onnx.graph import external_tensors
    from ..onnx.model import loaded

    try:
        tensors = list(external_tensors(loaded(model).graph))
    except PrecisionDebugError:  # what is wrong with it is said where it is opened
        return
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    for name in names:
        if "\0" not in name:
            yield from (folder / name for folder in (model.absolute().parent, _real(model).parent))


def _add_file(digest: Any, path: Path) -> None:
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    digest.update(b"\0end\0")


def _add_value(digest: Any, name: str, value: Any) -> None:
    digest.update(f"{name}\0{type(value).__name__}\0".encode("utf-8", "surrogateescape"))
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _add_value(digest, str(key), value[key])
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _add_value(digest, str(number), item)
    elif value is not None:
        array = as_array(value)
        digest.update(f"{array.dtype} {array.shape}\0".encode())
        if array.dtype.kind in "OUS":
            digest.update("\0".join(map(str, array.ravel().tolist())).encode("utf-8", "surrogateescape"))
        elif array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _plain_name(key: str) -> str:
    return key.removeprefix("target.").removeprefix("baseline.")


def _versions() -> dict[str, str]:
    """Of every engine that is installed, and of the packages that bring backends of their own."""
    found = {}
    for name in _ENGINES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for entry in importlib.metadata.entry_points(group=registry.GROUP):
        if entry.dist is not None:
            found[entry.dist.name] = entry.dist.version
    return found


def _real(path: Path) -> Path:
    """Where a path really lies. ``Path.resolve`` raises at links that go round in a circle, before Python 3.13."""
    return Path(os.path.realpath(path))
