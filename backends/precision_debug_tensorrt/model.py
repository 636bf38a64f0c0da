"""The three kinds of model that TensorRT runs: an ONNX file, a built engine, a script that builds a network."""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.onnx.input_roles import with_uses
from precision_debug.onnx.model import Model, read_model
from precision_debug.onnx.model import read_inputs as onnx_inputs
from precision_debug.records import InputMeta, ModelFiles
from precision_debug.safety.import_path import Neighbours
from precision_debug.safety.untrusted import refuse_special

__all__ = ["BUILT", "EngineFile", "OnnxModel", "Script", "Source", "load_function", "read_source"]

BUILT = frozenset({".engine", ".plan"})


@dataclass(frozen=True, kw_only=True)
class OnnxModel:
    """An ONNX file whose every node has a name of its own. model: see the ONNX Runtime backend's ``model``.

    types: once the precisions are written into it, those of the nodes that compute in floats, by name.
    """

    model: Model
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.model.path

    @property
    def inputs(self) -> tuple[InputMeta, ...]:
        return with_uses(onnx_inputs(self.model), self.model.proto.graph)

    @property
    def op_types(self) -> frozenset[str]:
        """Operator types in the main graph."""
        return frozenset(node.op_type for node in self.model.proto.graph.node)


@dataclass(frozen=True, kw_only=True)
class EngineFile:
    """A serialised engine."""

    path: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Script:
    """A Python function that makes a TensorRT network. path: as the user gave it, ``file.py[:function]``."""

    path: str
    function: Callable[..., Any]

    @property
    def takes_network(self) -> bool:
        """Whether it fills a network that it is given, ``f(builder, network)``, or makes one, ``f()``."""
        try:
            # a decorator that makes the network itself, as Polygraphy's func.extend, hides the inner signature
            inspect.signature(self.function, follow_wrapped=False).bind()
        except (TypeError, ValueError):
            return True
        return False


Source = OnnxModel | EngineFile | Script


def read_source(files: ModelFiles) -> Source:
    """Read the model, by the ending of its file. Raises ModelError."""
    path = files.model_file
    if not path:
        raise ModelError("TensorRT needs a file", where=files.path, hint="name one with --model_file")
    if ".py" in path and not path.endswith(".onnx") and Path(path.partition(".py:")[0]).suffix in {"", ".py"}:
        return Script(path=path, function=load_function(path, default="load_network"))
    if Path(path).suffix.lower() in BUILT:
        return _engine(Path(path))
    return OnnxModel(model=read_model(path))


def load_function(path: str, *, default: str) -> Callable[..., Any]:
    """Return a function from ``file.py[:function]``. Raises ModelError where file or function is missing or broken."""
    file, colon, name = path.rpartition(".py:")
    file, name = (f"{file}.py", name) if colon else (path, default)
    if not Path(file).is_file():
        raise ModelError("no such script", where=file, hint="check the path (it is relative to the current folder)")
    spec = importlib.util.spec_from_file_location(f"_precision_debug_script_{Path(file).stem}", file)
    if spec is None or spec.loader is None:
        raise ModelError("is not a Python file", where=file)
    module = importlib.util.module_from_spec(spec)
    try:
        with Neighbours(os.path.dirname(os.path.realpath(file))):
            spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"the script fails: {type(error).__name__}: {error}", where=file) from error
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"]
        raise ModelError(
            f"has no function {name}", where=file,
            hint=f"define it, or name another one as {file}:NAME (it has {', '.join(functions) or 'none'})",
        )  # fmt: skip
    return function  # type: ignore[no-any-return]


def _engine(path: Path) -> EngineFile:
    try:
        refuse_special(path, ModelError)
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not data:
        raise ModelError("the file is empty", where=str(path), hint="build or copy the engine again")
    if data.startswith(b"version https://git-lfs"):
        raise ModelError("is a Git LFS pointer, not the engine", where=str(path), hint="run git lfs pull")
    return EngineFile(path=str(path), data=data)
