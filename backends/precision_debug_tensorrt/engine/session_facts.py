"""What is known of a session once its real engine is built: tensors, layers, columns, notes."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precision_debug.inspector import (
    EngineLayer,
    describe_edge_types,
    find_real_precision,
    is_opaque,
    split_fused_outputs,
)
from precision_debug.ownership import guard_output
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import TensorMeta

from ..make import Built, Road
from ..model import EngineFile, OnnxModel, Script
from ..modes import Recipe
from ..naming import LayerIndex, columns, onnx_tensors, script_tensors
from ..reasons import say
from .constraints import Asked, Outcome, find_outcomes, group_by_node
from .device_memory import Device
from .fp16_weights import WeightCount, builder_lines, count_weights
from .messages import Messages
from .network import find_refused_marks
from .options import Options
from .versions import Api

__all__ = ["Facts", "gather", "region_notes"]


# Myelin regions of TensorRT 8: many operators compiled as a whole, of which the inspector tells the edges only.

_FLOAT = 4


def region_notes(
    layers: Sequence[EngineLayer], tensors: Sequence[TensorMeta], times: Mapping[str, Mapping[str, float]],
    plan: int, proto: Any,
) -> list[Reason]:  # fmt: skip
    """Return what can be known of the engine's regions. times: see RegionTimes. plan: bytes. proto: None without a
    model."""
    regions = [layer for layer in layers if is_opaque(layer)]
    if not regions:
        return []
    index = LayerIndex(layers, {meta.name: meta.inputs for meta in tensors})
    lines = []
    for layer in regions[:8]:
        inside = sum(index.find(meta.name, meta.node) is layer for meta in tensors if meta.op_type != "Input")
        lines.append(say("region", name=layer.name, count=inside, types=describe_edge_types(layer)))
        tried = times.get(layer.name, {})
        if len(tried) > 1:
            times_of = [say("milliseconds", time=milli, types=types) for types, milli in sorted(tried.items())]
            lines.append(say("region_timed", times=times_of))
    if len(regions) > 8:
        lines.append(say("regions_more", count=len(regions) - 8))
    if plan and proto is not None:
        weights = sum(_bytes(item) for item in proto.graph.initializer if item.data_type == 1)
        lines.append(say("engine_bytes", plan=plan, weights=weights))
    return lines


def _bytes(item: Any) -> int:
    size = _FLOAT
    for dim in item.dims:
        size *= dim
    return size


@dataclass(frozen=True, kw_only=True)
class Facts:
    """proto: the ONNX model, None without one. mark_outputs: marks are wanted even where a listener exists. on_device:
    hooks get torch tensors where the engine left them.
    """

    api: Api
    device: Device
    messages: Messages
    path: str
    inputs: tuple[str, ...]
    tensors: tuple[TensorMeta, ...]
    layers: tuple[EngineLayer, ...]
    notes: tuple[Reason, ...]
    versions: Mapping[str, str]
    proto: Any = None
    memory_budget: int | None = None
    mark_outputs: bool = False
    fused_only: bool = False
    marked_builds: int | None = None
    on_device: bool = False
    inspector_path: str = ""
    outcomes: tuple[Outcome, ...] = field(default=())

    def node_of(self, tensor: str) -> str:
        """Return the node that makes a tensor."""
        return next((meta.node for meta in self.tensors if meta.name == tensor), "")

    def keep_inspector(self, text: str, number: int) -> None:
        """Write a rebuilt engine's inspector JSON beside the real one's, where the user wants them."""
        if self.inspector_path:
            path = Path(self.inspector_path)
            with guard_output(path.with_name(f"{path.stem}_marked{number}{path.suffix}")) as place:
                place.write_text(text, encoding="utf-8")


def gather(
    *, api: Api, device: Device, messages: Messages, source: OnnxModel | Script | EngineFile, recipe: Recipe,
    options: Options, road: Road, built: Built, inspector: str, layers: tuple[EngineLayer, ...],
    inputs: tuple[str, ...], outputs: tuple[str, ...], samples: int, extra_notes: Sequence[Reason] = (),
    asked: Sequence[Asked] = (),
) -> Facts:  # fmt: skip
    """Put together what the real engine and its network tell. asked: of layers, beyond what ``built`` knows."""
    proto = source.model.proto if isinstance(source, OnnxModel) else None
    counts = _weights(source, recipe)
    tensors = _tensors(source, built, layers, inputs, outputs, options)
    reads = {meta.name: meta.inputs for meta in tensors}
    results = find_outcomes([*built.asked, *asked], layers, messages.disobeyed, reads)
    if options.save_inspector:
        with guard_output(options.save_inspector) as place:
            place.write_text(inspector, encoding="utf-8")
    notes = [
        *road.notes,
        *extra_notes,
        *_build_notes(built, layers, recipe, source, samples),
        *region_notes(layers, tensors, messages.regions.found, len(built.data), proto),
        *_constraint_notes(results, options),
        *builder_lines(messages.weight_issues, counts),
    ]
    on_device = options.on_device and device.shows_tensors
    if on_device:
        notes.append(say("on_device", library=device.library))
    listed = {meta.name for meta in tensors}
    tensors = tuple(
        dataclasses.replace(meta, inputs=tuple(name for name in meta.inputs if name in listed)) for meta in tensors
    )
    return Facts(
        api=api,
        device=device,
        messages=messages,
        path=source.path,
        inputs=inputs,
        tensors=_with_columns(tensors, layers, results, counts, messages),
        layers=layers,
        notes=tuple(notes),
        versions={"tensorrt": api.version, "device": device.name, "device memory by": device.library},
        proto=proto,
        memory_budget=options.memory_budget,
        mark_outputs=options.observe == "marks" or (options.fused_only and not api.unfused_debug_tensors),
        fused_only=options.fused_only,
        marked_builds=options.marked_builds,
        on_device=on_device,
        inspector_path=options.save_inspector,
        outcomes=results,
    )


def _tensors(
    source: OnnxModel | Script | EngineFile, built: Built, layers: tuple[EngineLayer, ...], inputs: tuple[str, ...],
    outputs: tuple[str, ...], options: Options,
) -> tuple[TensorMeta, ...]:  # fmt: skip
    if isinstance(source, EngineFile):
        return _engine_tensors(layers, inputs, outputs)
    refused = find_refused_marks(built.layers)
    if isinstance(source, OnnxModel):
        network = {output.name: output.dtype for layer in built.layers for output in layer.outputs}
        network |= dict.fromkeys(inputs, "")
        tensors = onnx_tensors(source.model.proto.graph, network, refused)
    else:
        tensors = script_tensors(built.layers, inputs, built.outputs, refused)
    if not options.fused_only:
        return tensors
    kept = {*split_fused_outputs(layers)[0], *inputs, *outputs}
    return tuple(meta for meta in tensors if meta.name in kept)


def _engine_tensors(
    layers: tuple[EngineLayer, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> tuple[TensorMeta, ...]:
    index = LayerIndex(layers)
    metas = [TensorMeta(name=name, op_type="Input", is_output=name in outputs) for name in inputs]
    names = dict.fromkeys([*(name for name in split_fused_outputs(layers)[0] if name not in outputs), *outputs])
    for name in names:
        if name in inputs:
            continue
        layer = index.find(name, "")
        metas.append(
            TensorMeta(
                name=name,
                op_type=layer.layer_type if layer is not None else "Output",
                node=layer.name if layer is not None else "",
                inputs=tuple(t.name for t in layer.inputs) if layer is not None else (),
                unseen=NOTHING if name in outputs else say("built_engine"),
                is_output=name in outputs,
            )
        )
    return tuple(metas)


def _with_columns(
    tensors: Sequence[TensorMeta], layers: tuple[EngineLayer, ...], results: Sequence[Outcome],
    counts: Mapping[str, WeightCount], messages: Messages,
) -> tuple[TensorMeta, ...]:  # fmt: skip
    warned = _warned_layers(messages)
    index = LayerIndex(layers, {meta.name: meta.inputs for meta in tensors})
    by_layer = {result.asked.layer: result for result in results}
    by_layer |= {node: _of_node(found) for node, found in group_by_node(results).items()}
    dressed = []
    for meta in tensors:
        extra = {} if meta.op_type == "Input" else dict(columns(index.find(meta.name, meta.node)))
        if extra.get("Fused Layer") in warned:
            extra["Builder Warning"] = warned[extra["Fused Layer"]]
        if meta.is_output:
            extra["Seen In"] = "the real engine"
        if meta.node in by_layer:
            result = by_layer[meta.node]
            extra["Asked Precision"] = _asked(result)
            extra["Obeyed"] = {True: "yes", False: "no", None: "not reported"}[result.obeyed]
        if meta.node in counts and counts[meta.node].text:
            extra["FP16 Weights"] = counts[meta.node].text
        dressed.append(dataclasses.replace(meta, extra=extra))
    return tuple(dressed)


def _warned_layers(messages: Messages) -> dict[str, str]:
    """Return layers of whose weights the builder warned, which it names "<layer>.weight", and of what."""
    found: dict[str, list[str]] = {}
    for issue in messages.weight_issues:
        for weight in issue.weights:
            found.setdefault(weight.rpartition(".")[0], []).append(issue.what.rstrip("."))
    return {layer: "; ".join(said) for layer, said in found.items()}


def _weights(source: OnnxModel | Script | EngineFile, recipe: Recipe) -> dict[str, WeightCount]:
    if "FP16" not in recipe.precisions or not isinstance(source, OnnxModel):
        return {}
    return count_weights(source.model.proto.graph, source.model.folder)


def _build_notes(
    built: Built, layers: Sequence[EngineLayer], recipe: Recipe, source: OnnxModel | Script | EngineFile, samples: int
) -> list[Reason]:
    notes: list[Reason] = []
    if isinstance(source, EngineFile):
        if recipe.mode.name != "trt_engine":
            notes.append(say("built_before", mode=recipe.mode.name))
    else:
        notes.append(say("built_in", seconds=built.seconds))
    if built.calibrated:
        notes.append(say("calibrated", count=samples))
    if built.untaken:
        notes.append(say("tactics_not_taken", count=len(built.untaken), first=built.untaken[:4]))
    if not layers:
        notes.append(say("no_details"))
        return notes
    counts = collections.Counter(
        "copies" if layer.is_reformat else find_real_precision(layer)[0] or "not reported" for layer in layers
    )
    kinds = [f"{count} {kind}" for kind, count in counts.most_common()]
    notes.append(say("layers_by_precision", count=len(layers), kinds=kinds))
    return notes


def _constraint_notes(results: Sequence[Outcome], options: Options) -> list[Reason]:
    if not results:
        return []
    words = {True: say("obeyed"), False: say("not_obeyed"), None: say("not_told")}
    counts = collections.Counter(result.obeyed for result in results)
    kinds = [say("of_kind", count=count, kind=words[obeyed]) for obeyed, count in counts.items()]
    lines = [say("constraints", how=options.precision_constraints, count=len(results), kinds=kinds)]
    kept = group_by_node(results)
    for node, found in kept.items():  # all of them: whoever keeps a node wants to know what became of it
        layers, told = [result.asked.layer for result in found], _of_node(found)
        obeyed, got = words[told.obeyed], told.got
        lines.append(say("kept_as", node=node, count=len(layers), layers=layers, obeyed=obeyed, got=got))
    others = [result for result in results if not result.asked.node]
    for result in others[:20]:
        name, asked = result.asked.layer, _asked(result)
        lines.append(say("constraint", layer=name, asked=asked, obeyed=words[result.obeyed], got=result.got))
    if len(others) > 20:
        lines.append(say("constraints_more", count=len(others) - 20))
    return lines


def _of_node(results: Sequence[Outcome]) -> Outcome:
    """Return what became of a kept node: of its layers the worst, that of its own name where several are."""
    node, order = results[0].asked.node, {False: 0, None: 1, True: 2}
    return min(results, key=lambda one: (order[one.obeyed], one.asked.layer != node))


def _asked(result: Outcome) -> str:
    asked = result.asked
    output = f"output {asked.output_type}" if asked.output_type else ""
    return ", ".join(part for part in (asked.precision, output) if part)
