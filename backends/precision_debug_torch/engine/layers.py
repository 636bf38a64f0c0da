"""What each module was built with, in ONNX's words: its parameters by what they are for, and its attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from precision_debug.protocols import Layer
from precision_debug.records import TensorMeta

__all__ = ["layer_of", "layers_of", "layers_of_names"]

_WINDOW = re.compile(r"(?:Conv|ConvTranspose|MaxPool|AvgPool)([123])d$")
_ROLES = {"running_mean": "mean", "running_var": "variance", "num_batches_tracked": ""}
_FLOATS = {"eps": "epsilon", "negative_slope": "alpha", "alpha": "alpha"}


def layers_of(module: Any) -> dict[str, Layer]:
    """By the module's path, for modules that have something to compare."""
    found = {}
    for path, part in module.named_modules():
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        layer = Layer(
            parameters=_roles(path, (name for name, value in own if value is not None)), attributes=_attributes(part)
        )
        if layer.parameters or layer.attributes:
            found[path] = layer
    return found


def layers_of_names(names: Iterable[str]) -> dict[str, Layer]:
    """Return the same of the names of a state dict alone; attributes are not known then."""
    grouped: dict[str, list[str]] = {}
    for full in names:
        path, _, name = full.rpartition(".")
        grouped.setdefault(path, []).append(name)
    return {path: Layer(parameters=_roles(path, own)) for path, own in grouped.items()}


def layer_of(meta: TensorMeta) -> str:
    """Return the path of the module that a tensor was made in, or whose backward pass or parameter it is about, without
    call numbers."""
    before = "" if meta.rank is None else f"rank{meta.rank}/"
    node = meta.node.removeprefix(before)
    if meta.phase in ("backward", "optimiser") and node.startswith(f"{meta.phase}/"):
        owner = node.split("/", 1)[1].rpartition("/")[0]
        path = owner.rpartition(".")[0] if meta.phase == "optimiser" else owner.partition("/")[0] * ("/" in owner)
        return path.partition("@")[0]
    node = (meta.extra.get("Part of") or node).removeprefix(before)
    path = node.rpartition("/")[0] if "/" in node or meta.op_type.startswith("aten.") else node
    return path.partition("@")[0]


def _roles(path: str, names: Iterable[str]) -> dict[str, str]:
    roles = {name: _ROLES.get(name, name.rpartition(".")[2]) for name in names}
    return {role: f"{path}.{name}" if path else name for name, role in roles.items() if role}


def _attributes(module: Any) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for own, name in _FLOATS.items():
        value = getattr(module, own, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = float(value)
    kind = type(module).__name__
    if "Softmax" in kind and isinstance(getattr(module, "dim", None), int):
        found["axis"] = module.dim
    window = _WINDOW.match(kind)
    if window is not None:
        rank = int(window[1])
        for own, name in (("stride", "strides"), ("dilation", "dilations")):
            value = getattr(module, own, None)
            if value is not None:
                found[name] = _each(value, rank)
        padding = getattr(module, "padding", None)
        if padding is not None and not isinstance(padding, str) and getattr(module, "padding_mode", "zeros") == "zeros":
            found["pads"] = _each(padding, rank) * 2
    if isinstance(getattr(module, "groups", None), int):
        found["group"] = module.groups
    if kind == "GELU":
        found["approximate"] = str(module.approximate)
    return found


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(int(item) for item in value) if isinstance(value, (tuple, list)) else (int(value),) * rank
