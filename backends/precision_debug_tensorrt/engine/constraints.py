"""Precisions that the user asks of single layers (weakly typed), and whether the engine obeyed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.errors import MarkError
from precision_debug.inspector import EngineLayer, find_real_precision, is_opaque
from precision_debug.reasons import suggest_nearest

from ..naming import LayerIndex, operators
from .kept import is_silent, keep
from .options import Options
from .versions import Api

__all__ = ["Asked", "Outcome", "apply", "find_outcomes", "group_by_node", "list_asked", "match_layers"]


_FLOATS = frozenset({"FP32", "FP16", "BF16", "FP8", "INT8"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of one layer; "" where nothing was. node: of the model, where that is kept, and not the layer."""

    layer: str
    node: str = ""
    precision: str = ""
    output_type: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of it. obeyed: None where the engine does not tell. got: what the inspector says."""

    asked: Asked
    obeyed: bool | None
    got: str
    fused_layer: str = ""


def match_layers(
    wanted: Mapping[str, str], names: Sequence[str], *, where: str, silent: Collection[str] = ()
) -> dict[str, str]:
    """Layer name to precision. A key is a name, a pattern with * and ?, or re:EXPR; a name beats a pattern.

    silent: layers that patterns leave alone, since they compute nothing in floating point. Raises MarkError where a
    key matches no layer.
    """
    found: dict[str, str] = {}
    known = set(names)
    for exact in (False, True):
        for key, kind in wanted.items():
            if (key in known) is not exact:
                continue
            pattern = _pattern(key)
            matches = [key] if exact else [name for name in names if pattern is not None and pattern.fullmatch(name)]
            if matches and not exact:
                matches = [name for name in matches if name not in silent]
                if not matches:
                    raise MarkError(
                        f"no layer that '{key}' matches computes in floating point", where=where,
                        hint="name the layers that do",
                    )  # fmt: skip
            if not matches:
                raise MarkError(
                    f"the network has no layer '{key}'", where=where,
                    hint=suggest_nearest(key, names) or f"its layers: {', '.join(names[:6])}, …",
                )  # fmt: skip
            found.update(dict.fromkeys(matches, kind))
    return found


def apply(api: Api, network: Any, options: Options, graph: Any | None = None) -> Mapping[str, str]:
    """Set what the options ask on the network's layers; gives the kept node of each layer that was made of one.

    graph: the model's that the network was parsed from. Raises MarkError, and BackendError as ``keep``.
    """
    layers = {network.get_layer(place).name: network.get_layer(place) for place in range(network.num_layers)}
    names = list(layers)
    silent = frozenset(name for name, layer in layers.items() if is_silent(layer))
    wanted = (
        ("--layer_precisions", options.layer_precisions), ("--layer_output_types", options.layer_output_types)
    )  # fmt: skip
    precisions, types = (match_layers(types, names, where=where, silent=silent) for where, types in wanted)
    for name, kind in precisions.items():
        layers[name].precision = api.data_type(kind)
    for name, kind in types.items():
        for index in range(layers[name].num_outputs):
            layers[name].set_output_type(index, api.data_type(kind))
    return keep(api, network, options.keep_layers, graph)


def list_asked(network: Any, nodes: Mapping[str, str] | None = None) -> tuple[Asked, ...]:
    """Return every layer with a precision or output type of its own, whoever set it: the options or a script.

    nodes: see ``apply``.
    """
    kinds = {"FLOAT": "FP32", "HALF": "FP16"}
    found = []
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        # casts and quantisers have an output type by nature
        by_nature = str(layer.type).rpartition(".")[2] in {"CAST", "QUANTIZE", "DEQUANTIZE", "CONSTANT"}
        output = layer.get_output(0)
        typed = layer.num_outputs > 0 and layer.output_type_is_set(0) and not by_nature
        if not layer.precision_is_set and not typed:
            continue
        precision = str(layer.precision).rpartition(".")[2] if layer.precision_is_set else ""
        output_type = str(layer.get_output_type(0)).rpartition(".")[2] if typed else ""
        asked = Asked(
            layer=layer.name,
            node=(nodes or {}).get(layer.name, ""),
            precision=kinds.get(precision, precision),
            output_type=kinds.get(output_type, output_type),
            output=output.name if output is not None else "",
        )
        if {asked.precision, asked.output_type} - {"", "INT32", "BOOL", "INT64"}:
            found.append(asked)
    return tuple(found)


def find_outcomes(
    asked: Sequence[Asked], layers: Sequence[EngineLayer], disobeyed: Mapping[str, str] | None = None,
    reads: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Outcome, ...]:  # fmt: skip
    """Return what the engine's inspector says of each. disobeyed: what the builder said itself (see Messages).

    reads: see LayerIndex.
    """
    index = LayerIndex(layers, reads)
    return tuple(_add_builder_word(_outcome(item, index), disobeyed or {}) for item in asked)


def group_by_node(results: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Of the kept nodes, what came of each layer that they became."""
    found: dict[str, list[Outcome]] = {}
    for result in results:
        if result.asked.node:
            found.setdefault(result.asked.node, []).append(result)
    return found


def _add_builder_word(outcome: Outcome, disobeyed: Mapping[str, str]) -> Outcome:
    """The builder's own word on a layer counts where the inspector is silent on it."""
    why = disobeyed.get(outcome.asked.layer) or disobeyed.get(outcome.fused_layer)
    if why is None or outcome.obeyed is True:
        return outcome
    said = "; ".join(part for part in (f"the builder says that it did not: {why}", outcome.got) if part)
    return dataclasses.replace(outcome, obeyed=False, got=said)


def _outcome(asked: Asked, index: LayerIndex) -> Outcome:
    layer = index.find(asked.output, asked.layer)
    if layer is None:
        return Outcome(asked=asked, obeyed=None, got="no layer of the engine names it")
    precision, source = find_real_precision(layer)
    fused = operators(layer)
    others = [node for node in fused if node != asked.layer]
    result = Outcome(asked=asked, obeyed=None, got="", fused_layer=layer.name)
    if is_opaque(layer):
        return dataclasses.replace(result, got=f"inside {source}; what it computes in is not reported")
    output = next((tensor.dtype for tensor in layer.outputs if tensor.name == asked.output), "")
    if asked.precision and source in {"", "output type"} and (others or not precision):
        # one kernel for several operators, of which only the types at its edges are told
        edges = {tensor.dtype for tensor in (*layer.inputs, *layer.outputs) if tensor.dtype in _FLOATS}
        obeyed = True if edges == {asked.precision} else False if edges and asked.precision not in edges else None
        types = " and ".join(sorted(edges)) or "types that the engine does not report"
        what = f"one kernel for {len(fused)} operators reads and writes {types}; what lies between is not reported"
        return dataclasses.replace(result, obeyed=obeyed, got=what)
    if asked.precision:
        same = precision == asked.precision  # TF32 is what TensorRT makes of FP32 where nobody forbids it, and another
        result = dataclasses.replace(result, obeyed=same if precision else None, got=f"{precision} by its {source}")
    if asked.output_type and output:
        same = output == asked.output_type
        obeyed = same if result.obeyed is None else result.obeyed and same
        got = "; ".join(part for part in (result.got, f"output {output}") if part)
        result = dataclasses.replace(result, obeyed=obeyed, got=got)
    return result if result.got else dataclasses.replace(result, got="the engine does not report it")


def _pattern(key: str) -> re.Pattern[str] | None:
    if key.startswith("re:"):
        try:
            return re.compile(key[3:])
        except re.error as error:
            raise MarkError(f"'{key}' is not a regular expression: {error}", hint="see Python's re module") from error
    if "*" in key or "?" in key:
        parts = {"*": ".*", "?": "."}
        return re.compile("".join(parts.get(char) or re.escape(char) for char in key), re.DOTALL)
    return None
