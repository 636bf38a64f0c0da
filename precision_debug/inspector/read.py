"""The layers of a built engine, read from TensorRT's engine inspector.

Shapes that are known: {"Layers": [...], "Bindings": [...]} (TensorRT, trtexec), a bare list of layers (Paddle), and a
single layer. The text is not strict JSON: Metadata holds raw control characters. Up to TensorRT 10 a tensor has one
field "Format/Datatype", from 11 on "Format" and "Datatype".
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..codec import parse_json
from ..errors import ModelError
from ..reasons import say
from .layer import EngineLayer, EngineTensor

__all__ = ["expand", "parse_inspector", "read_inspector"]

_TYPES = {
    "float": "FP32", "fp32": "FP32", "half": "FP16", "fp16": "FP16", "bfloat16": "BF16", "bf16": "BF16", "fp8": "FP8",
    "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "int4": "INT4", "fp4": "FP4", "bool": "BOOL",
}  # fmt: skip
_TYPE = re.compile(rf"(?<![a-z0-9])({'|'.join(_TYPES)})(?![a-z0-9])", re.IGNORECASE)
_ENTRY = re.compile(r"[\x1e\x1f]+|(?<=\])(?=\[ONNX Layer: )")
_ONNX = "[ONNX Layer: "
_VERBOSITY = "build the engine with profiling_verbosity DETAILED (trtexec --profilingVerbosity=detailed)"


def read_inspector(*sources: str | Path) -> tuple[EngineLayer, ...]:
    """Return the layers in all files, each a path or a glob; files of one glob in the order of their names.

    Raises ModelError where a source matches no file or a file is not an inspector output with details.
    """
    files = [file for source in sources for file in expand(str(source))]
    return tuple(layer for file in dict.fromkeys(files) for layer in parse_inspector(_read_text(file), where=str(file)))


def parse_inspector(text: str, *, where: str = "engine inspector") -> tuple[EngineLayer, ...]:
    """Return the layers in the text that the inspector returned. Raises ModelError."""
    try:
        data = parse_json(text, strict=False)
    except ValueError as error:
        raise ModelError(f"is not engine-inspector JSON: {error}", where=where, hint="dump it again") from error
    entries = data
    if isinstance(data, Mapping):
        entries = data.get("Layers", data.get("layers", [data] if "LayerType" in data else None))
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ModelError("has no list of layers", where=where, hint="dump the engine information as JSON")
    if not entries:
        raise ModelError("has no layer", where=where, hint="dump the engine information as JSON")
    if any(isinstance(entry, str) for entry in entries):
        raise ModelError("has only the names of the layers", where=where, hint=_VERBOSITY)
    if not all(isinstance(entry, Mapping) and "Name" in entry for entry in entries):
        raise ModelError("has layers without a name", where=where, hint="dump the engine information as JSON")
    if not any("Outputs" in entry for entry in entries):
        raise ModelError("has no layer with its outputs", where=where, hint=_VERBOSITY)
    layers = []
    for number, entry in enumerate(entries):
        try:
            layers.append(_parse_layer(entry))
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            what = f"its layer {number} is of no known form ({error})"
            raise ModelError(what, where=where, hint="dump the engine information as JSON") from error
    return tuple(layers)


def expand(source: str) -> list[Path]:
    """Return the files that a path or glob pattern names; raise ModelError where there is none."""
    if Path(source).is_file():
        return [Path(source)]
    files = sorted(path for name in glob.glob(source, recursive=True) if (path := Path(name)).is_file())
    if not files:
        raise ModelError(say("no_inspector"), where=source, hint=say("check_pattern"))
    return files


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}", where=str(file)) from error


def _parse_layer(entry: Mapping[str, Any]) -> EngineLayer:
    name, kind, origin = str(entry["Name"]), str(entry.get("LayerType", "")), str(entry.get("Origin") or "")
    weights = entry.get("Weights", entry.get("weights"))
    nodes, cut = _parse_nodes(str(entry.get("Metadata") or ""))
    copies = name.startswith("Reformatting CopyNode") or origin == "REFORMAT" or (kind == "Reformat" and not origin)
    return EngineLayer(
        name=name,
        layer_type=kind,
        inputs=tuple(_parse_tensor(tensor) for tensor in entry.get("Inputs") or ()),
        outputs=tuple(_parse_tensor(tensor) for tensor in entry.get("Outputs") or ()),
        weights_type=_parse_type(str(weights.get("Type", ""))) if isinstance(weights, Mapping) else "",
        tactic_name=str(entry.get("TacticName") or ""),
        onnx_nodes=nodes,
        nodes_cut=cut,
        origin=origin,
        is_reformat=copies,
        tactic_value=str(entry.get("TacticValue") or ""),
    )


def _parse_tensor(entry: Mapping[str, Any]) -> EngineTensor:
    shape = entry.get("Dimensions")
    both = str(entry.get("Format/Datatype", ""))
    return EngineTensor(
        name=str(entry.get("Name", "")),
        shape=tuple(int(dim) for dim in shape) if isinstance(shape, list) else None,
        format=str(entry.get("Format", "" if _TYPE.fullmatch(both) else both)),
        dtype=_parse_type(str(entry.get("Datatype", both))),
    )


def _parse_type(text: str) -> str:
    found = _TYPE.search(text)
    return _TYPES[found[1].lower()] if found else ""


def _parse_nodes(metadata: str) -> tuple[tuple[str, ...], bool]:
    """ONNX node names, and whether the last one is cut off (TensorRT ends Metadata at 4000 characters)."""
    entries = [entry for entry in _ENTRY.split(metadata) if entry]
    whole = [entry[len(_ONNX) : -1] for entry in entries if entry.startswith(_ONNX) and entry.endswith("]")]
    return tuple(dict.fromkeys(whole)), bool(entries) and not entries[-1].endswith("]")
