"""What decides the numbers of a command, as digests of what it holds now: a result is gone on from where all are equal.

Files count by their bytes, not by names and times: a model that was replaced in place is another one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from .script_reads import ScriptReads, file_stamp, scripts_named

__all__ = [
    "command_contents", "contents", "digest_of", "external_files", "feeds_digest", "named_contents", "unknown_reads",
    "weights_digest",
]  # fmt: skip

_ENGINES = (
    "precision-debug", "precision_debug", "numpy", "ml-dtypes", "onnx", "onnxruntime", "onnxruntime-gpu", "tensorrt",
    "torch", "torchao", "transformers", "paddlepaddle", "paddlepaddle-gpu", "openvino", "nncf", "ai-edge-litert",
    "xllamacpp",
)  # fmt: skip

_PACKAGES = (
    "onnxruntime", "openvino", "tensorrt", "tensorrt_libs", "torch", "paddle", "ai_edge_litert", "precision_debug",
)  # fmt: skip
"""What the engines' libraries lie in."""

_NO_LIBRARIES = frozenset({"__pycache__", "include", "test", "tests", "testing", "_inductor", "share"})

_OF_ENGINES = re.compile(
    r"(ORT|ONNX|OMP|KMP|MKL|OPENBLAS|GOTO|BLIS|ATEN|TORCH|PYTORCH|CUDA|CUBLAS|CUDNN|NVIDIA|TF|XLA|FLAGS|PADDLE|DNNL"
    r"|ONEDNN|OV|OPENVINO|TRT|TENSORRT|XNNPACK|INDUCTOR|TRITON|HF|TRANSFORMERS|LD|GLIBC|PYTHON)_?[A-Z0-9_]*|FLAGS_\w+"
)
"""Variables of the environment that an engine, or what it is linked to, may read."""

_NO_ENGINES = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "PYTHONFAULTHANDLER"})

_WITHOUT_EFFECT = ("command", "demo_sheet", "explain", "options_from", "record", "save_tensors")
"""Fields of a command that decide nothing of a sample's rows."""

_WRITTEN = ("save_", "timing_cache")
"""How settings begin whose files a run writes itself."""

_WEIGHTS = frozenset({".data", ".bin", ".pdiparams", ".pdmodel", ".json", ".weights", ".pb", ".onnx_data"})
"""Endings of files that lie beside a model, begin with its name, and belong to it."""

_REPORTS = frozenset({".xlsx", ".html", ".md", ".csv", ".npz", ".log", ".txt"})
"""Endings that no model's folder keeps weights in, and that a run may write there."""

_BLOCK = 1 << 22
"""Bytes that are hashed at a time: a model's weights may be larger than memory."""


def contents(spec: RunSpec, *, without: Sequence[Path] = (), once: str = "") -> dict[str, str]:
    """By what it is of (options, model, baseline, inputs, ...): a digest of what it holds.

    without: files that are not read, though they lie in a folder that is. once: what stands for what cannot be known;
    "": another text each time, so that nothing is gone on from. Raises ModelError where a file that is there
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
    found["files of the options"] = files.named(options, _entries(options))
    found["versions"] = digest_of([_versions(), _files_of_engines()])
    reads = _reads(spec, without)
    found["what the scripts read"] = reads.digest()
    found["environment"] = digest_of(_environment(reads.words))
    if reads.unknown:
        found[_unknown(reads)] = once or secrets.token_hex(8)
    return found


def command_contents(command: str, *, without: Sequence[Path] = (), once: str = "") -> str:
    """A digest of all that a command of the user's can read: its program, the current folder, the files that it names.

    See ``contents`` for ``without`` and ``once``.
    """
    if not command:
        return ""
    reads = ScriptReads(without=without)
    reads.add_command(command)
    unknown = (once or secrets.token_hex(8)) if reads.unknown else ""
    return digest_of([reads.digest(), _environment(reads.words), unknown])


def unknown_reads(spec: RunSpec, command: str) -> tuple[str, ...]:
    """Why it cannot be known what a run's scripts, or a command, read; () where it can."""
    reads = _reads(spec, ())
    if command:
        reads.add_command(command)
    return tuple(dict.fromkeys(reads.unknown))


def _reads(spec: RunSpec, without: Sequence[Path]) -> ScriptReads:
    reads = ScriptReads(without=without)
    named_by = [named for one, named in differing(spec) if one.file == "read" and one.name not in _WITHOUT_EFFECT]
    models = (spec.model.model_file, spec.baseline_model.model_file if spec.baseline_model else "")
    for script in scripts_named(*named_by, *models, spec.metric, spec.compare, spec.options):
        reads.add_script(script)
    return reads


def _unknown(reads: ScriptReads) -> str:
    """Under which name it is said that nothing can be gone on from."""
    more = len(reads.unknown) - 1
    return f"what cannot be known: {reads.unknown[0]}" + (f" and {more} more" if more else "")


def _entries(options: Mapping[str, Any]) -> list[str]:
    """Every entry of a list that is one text."""
    texts = [one for one in options.values() if isinstance(one, str)]
    return [part for text in texts for part in re.split(r"[,;:\s]+", text) if part and part != text]


def _environment(words: Collection[str]) -> dict[str, str]:
    """Variables that engines read, or whose names stand in the user's scripts."""
    return {
        name: value for name, value in os.environ.items()
        if (_OF_ENGINES.match(name) or name in words) and name not in _NO_ENGINES
    }  # fmt: skip


def _files_of_engines() -> dict[str, str]:
    """Size and time of every library of the engines that are installed, and of this tool's own modules."""
    found = {}
    for name in _PACKAGES:
        spec = None
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for place, folders, names in os.walk(folder):
                folders[:] = [one for one in folders if one not in _NO_LIBRARIES]
                for file in names:
                    if ".so" in file or file.endswith((".dll", ".pyd", ".dylib")) or name == "precision_debug":
                        found[f"{place}/{file}"] = file_stamp(Path(place, file))
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
            found |= set(external_files(model))
        return sorted(path for path in found if path.is_file() and _real(path) not in self._without)


def external_files(model: Path) -> Iterator[Path]:
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
    # whoever installs or removes a package changes the folder that its metadata lie in; reading them takes 0.2 s
    return dict(_versions_in(tuple((place, file_stamp(Path(place or "."))) for place in sys.path)))


@functools.lru_cache(maxsize=4)
def _versions_in(_: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
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
