"""What OpenVINO really runs: the layers of a compiled model's runtime graph, and what each of them holds.

A layer names the operators that were fused into it (originalLayersNames), the type that it computed in
(runtimePrecision), the type and layout of what it gives (outputPrecisions, outputLayouts), its kernel (primitiveType)
and, after a run, its time (execTimeMcs).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.inspector import EngineLayer, EngineTensor

from ..naming import numpy_name

__all__ = [
    "BODIES", "NO_LAYER", "Layer", "engine_layers", "names_of", "precision_counts", "precision_name", "read_layers",
]  # fmt: skip

BODIES = frozenset({"If", "Loop", "TensorIterator"})
"""Layers that run a graph of their own: of that nothing is listed, and their own type is the one of their condition."""

NO_LAYER = frozenset({"Const", "Input", "Output", "Parameter", "Result", "Constant"})
_NAMES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16", "i8": "INT8", "u8": "UINT8", "boolean": "BOOL"}
_IDLE = frozenset({"Reorder", "Reshape", "Reference", "ShapeOf"})
_MADE = re.compile(r"([A-Z][A-Za-z]*)_\d+")
_UNDECIDED = ("undef", "unknown")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One executed node. ops: source operators that it holds. made: what else it names, numbers taken off: what
    OpenVINO's passes made. precision, outputs: OpenVINO's words ("bf16"). place: in execution order."""

    name: str
    kind: str
    ops: tuple[str, ...]
    made: tuple[str, ...]
    precision: str
    outputs: tuple[str, ...]
    kernel: str
    layout: str
    microseconds: str
    place: int

    @property
    def undecided(self) -> bool:
        """Its kernel is chosen at the first run, which was not yet."""
        return self.kernel.startswith(_UNDECIDED)

    @property
    def arithmetic(self) -> tuple[Any, ...]:
        """What decides its numbers but for the order of sums: what is fused, and the types."""
        return self.kind, self.ops, self.made, self.precision, self.outputs

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the report."""
        fused = ", ".join((*self.ops, *self.made))
        return {
            "Fused Layer": f"{self.kind}: {fused}", "Real Precision": precision_name(self.precision),
            "Kernel": self.kernel, "Layout": self.layout, "Time (us)": self.microseconds,
        }  # fmt: skip

    def held(self, port: int) -> str:
        """Return numpy's name of the type in which it holds what a port gives; "" where it does not tell."""
        kinds = self.outputs
        return numpy_name(kinds[port] if port < len(kinds) else kinds[-1]) if kinds else ""


def precision_name(kind: str) -> str:
    """Return "BF16" of "bf16"."""
    return _NAMES.get(kind.lower(), kind.upper())


def read_layers(compiled: Any, known: Collection[str]) -> tuple[Layer, ...]:
    """Return the layers of a compiled model in execution order; inputs, outputs and constants are left out.

    known: source operators.
    """
    found = []
    for node in compiled.get_runtime_model().get_ops():
        info = {key: str(item.value) for key, item in node.get_rt_info().items()}
        kind = info.get("layerType", "")
        if kind in NO_LAYER:
            continue
        names = names_of(info.get("originalLayersNames", ""), known)
        found.append(
            Layer(
                name=str(node.get_friendly_name()), kind=kind,
                ops=tuple(name for name in names if name in known),
                made=tuple(re.sub(r"_\d+", "", name) for name in names if name not in known),
                precision="" if kind in BODIES else info.get("runtimePrecision", ""),
                outputs=tuple(one for one in info.get("outputPrecisions", "").split(",") if one),
                kernel=info.get("primitiveType", ""), layout=info.get("outputLayouts", ""),
                microseconds=info.get("execTimeMcs", "").replace("not_executed", ""),
                place=int(info.get("execOrder", "0")),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda layer: layer.place))


def names_of(text: str, known: Collection[str]) -> list[str]:
    """Split originalLayersNames, joined by commas, which a name may have itself: the longest known name wins."""
    parts, found = text.split(",") if text else [], []
    while parts:
        size = next((n for n in range(len(parts), 0, -1) if ",".join(parts[:n]) in known), 1)
        found.append(",".join(parts[:size]))
        parts = parts[size:]
    return found


def engine_layers(
    layers: Iterable[Layer], tensors: Mapping[str, Sequence[str]], floats: Collection[str]
) -> tuple[EngineLayer, ...]:
    """As the report lists them. tensors: names of the tensors that come out of an operator. floats: operators that
    make real numbers: unsigned bytes are their INT8 (a convolution behind a Relu), and others' truth values.

    What OpenVINO's passes made bears a number that counts over the process, in no fixed order: it is counted anew.
    """
    found = []
    counted: Counter[str] = Counter()
    for layer in layers:
        passes = None if layer.name in layer.ops else _MADE.fullmatch(layer.name)
        name = layer.name
        if passes is not None:
            counted[passes[1]] += 1
            name = f"{passes[1]}#{counted[passes[1]]}"
        dtype = precision_name(layer.outputs[0] if layer.outputs else "")
        unsigned = layer.precision == "u8" and any(op in floats for op in layer.ops)
        precision = "INT8" if unsigned else precision_name(layer.precision)
        names = [tensor for op in layer.ops for tensor in tensors.get(op, ())]
        found.append(
            EngineLayer(
                name=name, layer_type=layer.kind, onnx_nodes=layer.ops, tactic_name=layer.kernel,
                weights_type=precision, is_reformat=layer.kind == "Reorder",
                outputs=tuple(EngineTensor(name=one, format=layer.layout, dtype=dtype) for one in names),
            )
        )  # fmt: skip
    return tuple(found)


def precision_counts(layers: Iterable[Layer]) -> Counter[str]:
    """Return how many layers computed in which precision; those that only move or reshape are left out."""
    return Counter(precision_name(layer.precision) for layer in layers if layer.kind not in _IDLE | BODIES)
