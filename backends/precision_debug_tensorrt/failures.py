"""TensorRT's failures in the user's words: which node, which operator, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from precision_debug.errors import BackendError, BackendUnavailable, ModelError, PrecisionDebugError

if TYPE_CHECKING:
    from .model import OnnxModel

__all__ = ["add_suspect", "build_error", "engine_error", "parser_error", "run_error", "tidy_message"]

_LIMIT = 300
_SIZED_BY_DATA = {"NonZero", "Unique", "Compress", "NonMaxSuppression"}
_ADVICE = {
    "NonZero": "its output's size depends on the data: replace it by a mask (Where, Mul) or TopK, or cut the model "
    "before it; TensorRT knows it from 8.5 on",
    "Loop": "export the loop unrolled, or with a fixed number of iterations",
    "If": "export one branch only (both must give tensors of the same rank)",
    "EinSum": "write it as MatMul and Transpose",
}


def parser_error(
    source: OnnxModel, problems: Sequence[tuple[int, str, str, str]], said: Sequence[str]
) -> PrecisionDebugError:
    """Return an error that names the first node that the parser refuses."""
    if not problems:
        return ModelError(f"TensorRT's parser refuses it: {tidy_message(said)}", where=source.path, hint=_SIMPLIFY)
    place, name, op_type, text = problems[0]
    graph = source.model.proto.graph
    node = next((node for node in graph.node if name and node.name == name), None)
    if node is None and 0 <= place < len(graph.node):
        node = graph.node[place]
    op_type = op_type or (node.op_type if node is not None else "")
    name = name or (node.name if node is not None else "")
    custom = node is not None and node.domain not in {"", "ai.onnx"}
    lost = re.search(r"[Pp]lugin not found|UNSUPPORTED_NODE|No importer registered|creator", text)
    if op_type in _ADVICE:
        hint = _ADVICE[op_type]
    elif custom or lost:
        hint = "give the library that has it with --plugins LIBRARY.so, or replace the operator before the export"
    else:
        hint = _SIMPLIFY
    others = f" (and {len(problems) - 1} more nodes)" if len(problems) > 1 else ""
    domain = f"{node.domain}." if custom and node is not None else ""
    what = f"TensorRT cannot take node '{name}' ({domain}{op_type}){others}: {_shorten(text)}"
    return ModelError(what, where=source.path, hint=hint)


def build_error(path: str, said: Sequence[str]) -> BackendError:
    """The build gave no engine."""
    text = tidy_message(said)
    if re.search(r"out of memory|OutOfMemory|insufficient memory", text, re.IGNORECASE):
        hint = "mark fewer tensors, lower --workspace, or free the device"
    elif "no conforming implementation" in text or "obey" in text.lower():
        hint = "no kernel does what the constraints ask: use --precision_constraints prefer, or constrain fewer layers"
    elif "Could not find any implementation" in text:
        hint = "no kernel fits: raise --workspace, widen --tactic_sources, or loosen --precision_constraints"
    elif "profile" in text:
        hint = "check --min_shapes, --opt_shapes and --max_shapes"
    else:
        hint = "--verbose shows all that TensorRT says"
    return BackendError(f"TensorRT built no engine: {text or 'it does not say why'}", where=path, hint=hint)


def engine_error(path: str, said: Sequence[str], version: str) -> PrecisionDebugError:
    """Return a serialised engine that cannot be loaded."""
    text = tidy_message(said)
    if re.search(r"version tag|engine version|platform|compute capability|cuda version", text, re.IGNORECASE):
        return BackendUnavailable(
            f"this engine was built by another TensorRT or for another GPU ({text})", where=path,
            hint=f"build it here, with TensorRT {version}",
        )  # fmt: skip
    if "plugin" in text.lower():
        return ModelError(f"the engine needs a plugin: {text}", where=path, hint="name its library with --plugins")
    return ModelError(
        f"is not an engine that TensorRT {version} can load: {text or 'it does not say why'}", where=path,
        hint="build or copy it again",
    )  # fmt: skip


def run_error(path: str, said: Sequence[str]) -> BackendError:
    """The engine did not run."""
    text = tidy_message(said)
    short = "memory" in text
    hint = "mark fewer tensors or lower --memory_budget" if short else "--verbose shows all that TensorRT says"
    return BackendError(f"TensorRT could not run the engine: {text or 'it does not say why'}", where=path, hint=hint)


def add_suspect(error: BackendError, source: object) -> BackendError:
    """Return the error with the first node whose output's size depends on the data, where the model has one: TensorRT
    may build such an engine, and then fail to make its execution context with a message that names nothing. """
    graph = getattr(getattr(getattr(source, "model", None), "proto", None), "graph", None)
    node = next((node for node in getattr(graph, "node", ()) if node.op_type in _SIZED_BY_DATA), None)
    if node is None:
        return error
    what = f"{error.what}; the reason may be node '{node.name}' ({node.op_type})"
    return BackendError(what, where=error.where, hint=_ADVICE["NonZero"])


def tidy_message(said: Sequence[str]) -> str:
    """Return the last words of TensorRT, without its numbers and source places."""
    kept = [text for text in said if text.strip()]
    return _shorten(kept[-1]) if kept else ""


def _shorten(text: str) -> str:
    text = re.sub(r"^\d+: \[[^\]]*\] ", "", " ".join(text.split()))
    text = re.sub(r"Error Code \d+: ", "", text)
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}…"


_SIMPLIFY = "simplify the model (constant folding, a lower opset) or cut it before this node"
