"""The user's settings for TensorRT, checked and typed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import UsageError

__all__ = ["CONSTRAINTS", "Options", "Shape", "read_options"]

Shape = tuple[int, ...]

CONSTRAINTS = ("none", "prefer", "obey")
_PRECISIONS = {
    "float32": "FP32", "fp32": "FP32", "float": "FP32", "float16": "FP16", "fp16": "FP16", "half": "FP16",
    "bfloat16": "BF16", "bf16": "BF16", "int8": "INT8", "fp8": "FP8", "float8": "FP8", "float8_e4m3fn": "FP8",
    "int32": "INT32",
}  # fmt: skip
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Options:
    """layer_precisions, layer_output_types: layer name or pattern to precision ("FP32", "FP16", …).

    precision_constraints: "obey" where layers are given and nothing else is said: a precision that the user names is
    one that he wants. tactic_sources: names; None: TensorRT's own choice. workspace, memory_budget: bytes.
    optimization_level: TensorRT's, 0 (fast builds) to 5. shapes: input name to (min, opt, max). typing: "", "weak" or
    "strong". observe: "marks" sees intermediate tensors as marked outputs even where TensorRT has a debug listener.
    side: "baseline" or "target". on_device: the hook takes tensors of the device.
    """

    layer_precisions: Mapping[str, str] = field(default_factory=dict)
    layer_output_types: Mapping[str, str] = field(default_factory=dict)
    precision_constraints: str = "none"
    network_script: str = ""
    save_tactics: str = ""
    load_tactics: str = ""
    timing_cache: str = ""
    tactic_sources: tuple[str, ...] | None = None
    workspace: int | None = None
    optimization_level: int | None = None
    plugins: tuple[str, ...] = ()
    save_engine: str = ""
    save_inspector: str = ""
    shapes: Mapping[str, tuple[Shape, Shape, Shape]] = field(default_factory=dict)
    fused_only: bool = False
    memory_budget: int | None = None
    typing: str = ""
    observe: str = ""
    side: str = "target"
    on_device: bool = False

    @property
    def asks_for_layers(self) -> bool:
        """Some layer's precision or output type was asked for."""
        return bool(self.layer_precisions or self.layer_output_types)


def read_options(given: Mapping[str, Any]) -> Options:
    """Read ``SessionSpec.options``; keys of other backends are left alone. Raises UsageError.

    What decides or keeps the target's build (layer precisions, constraints, tactics, saved files) is not for a
    baseline that is a TensorRT run too: there ``side`` is "baseline".
    """
    side = str(given.get("side") or "target")
    common: dict[str, Any] = {
        "network_script": _text(given, "network_script"),
        "timing_cache": _text(given, "timing_cache"),
        "tactic_sources": _sources(given.get("tactic_sources")),
        "workspace": _size(given.get("workspace"), "--workspace"),
        "optimization_level": _level(given.get("optimization_level")),
        "plugins": _words(given.get("plugins")),
        "shapes": _shapes(given),
        "memory_budget": _size(given.get("memory_budget"), "--memory_budget"),
        "typing": _one_of(given, "typing", ("", "weak", "strong")),
        "observe": _one_of(given, "observe", ("", "marks", "listener")),
        "side": side,
        "on_device": given.get("comparer") is not None,
    }
    if side == "baseline":
        return Options(**common)
    precisions = _precisions(given.get("layer_precisions"), "--layer_precisions")
    output_types = _precisions(given.get("layer_output_types"), "--layer_output_types")
    constraints = _one_of(given, "precision_constraints", ("", *CONSTRAINTS))
    return Options(
        layer_precisions=precisions,
        layer_output_types=output_types,
        precision_constraints=constraints or ("obey" if precisions or output_types else "none"),
        save_tactics=_text(given, "save_tactics"),
        load_tactics=_text(given, "load_tactics"),
        save_engine=_text(given, "save_engine"),
        save_inspector=_text(given, "save_inspector"),
        fused_only=bool(given.get("fused_only")),
        **common,
    )


def _text(given: Mapping[str, Any], key: str) -> str:
    return str(given.get(key) or "")


def _one_of(given: Mapping[str, Any], key: str, allowed: Sequence[str]) -> str:
    value = _text(given, key).lower()
    if value not in allowed:
        words = ", ".join(word for word in allowed if word)
        raise UsageError(f"'{value}' is none of {words}", where=f"--{key}", hint=f"write one of {words}")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return tuple(word for part in shlex.split(value) for word in part.split(",") if word)
    return tuple(str(word) for word in value)


def _precisions(value: Any, where: str) -> dict[str, str]:
    if value is None:
        return {}
    pairs = (
        [(str(name), str(kind)) for name, kind in value.items()]
        if isinstance(value, Mapping)
        else [_pair(word, where) for word in (shlex.split(value) if isinstance(value, str) else value)]
    )
    found = {}
    for name, kind in pairs:
        if kind.lower() not in _PRECISIONS:
            known = "float32, float16, bfloat16, int8, fp8"
            raise UsageError(f"'{kind}' of layer '{name}' is no precision", where=where, hint=f"write one of {known}")
        found[name] = _PRECISIONS[kind.lower()]
    return found


def _pair(word: Any, where: str) -> tuple[str, str]:
    name, colon, kind = str(word).rpartition(":")
    if not colon or not name or not kind:
        raise UsageError(f"'{word}' is no layer with a precision", where=where, hint="write LAYER:float16")
    return name, kind


def _sources(value: Any) -> tuple[str, ...] | None:
    if value is None or value == "":
        return None
    words = _words(value)
    return () if [word.lower() for word in words] == ["none"] else tuple(word.upper() for word in words)


def _size(value: Any, where: str) -> int | None:
    if value is None or value == "":
        return None
    text = str(value).strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:] in _UNITS and not text[-1:].isdigit() else ""
    try:
        size = int(float(text.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError) as error:
        raise UsageError(f"'{value}' is not a size", where=where, hint="write 512M or 4G") from error
    if size <= 0:
        raise UsageError(f"'{value}' is not a size above 0", where=where, hint="write 512M or 4G")
    return size


def _level(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if not str(value).isdigit() or int(value) > 5:
        raise UsageError(f"'{value}' is no optimization level", where="--optimization_level", hint="write 0 to 5")
    return int(value)


def _shapes(given: Mapping[str, Any]) -> dict[str, tuple[Shape, Shape, Shape]]:
    ranges = [dict(given.get(f"{which}_shapes") or {}) for which in ("min", "opt", "max")]
    names = list(dict.fromkeys(name for part in ranges for name in part))
    if given.get("use_dynamic_shape") in (0, False) and not names:
        return {}
    found = {}
    for name in names:
        low, best, high = (part.get(name) for part in ranges)
        if low is None or high is None:
            missing = "--min_shapes" if low is None else "--max_shapes"
            raise UsageError(f"input '{name}' has no {missing}", where=missing, hint="give min and max of each input")
        chosen = best if best is not None else high
        lists = [tuple(int(dim) for dim in shape) for shape in (low, chosen, high)]
        if len({len(shape) for shape in lists}) != 1 or any(not a <= b <= c for a, b, c in zip(*lists, strict=True)):
            text = " ".join(str(list(shape)) for shape in lists)
            raise UsageError(f"input '{name}': min, opt and max do not rise: {text}", where="--min_shapes",
                             hint="each dimension needs min <= opt <= max")  # fmt: skip
        found[name] = (lists[0], lists[1], lists[2])
    return found
