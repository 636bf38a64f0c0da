"""Which operators stay in float32: the options op_block_list and node_block_list, as the stock converter takes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug.errors import UsageError
from precision_debug.onnx.graph import Scope, iterate_graphs, iterate_subgraphs
from precision_debug.onnx.model import Model, read_model
from precision_debug.onnx.removed_activations import list_not_removable
from precision_debug.protocols import Handed
from precision_debug.reasons import NOTHING, Reason, suggest_nearest
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.int8_units import Int8Units
from .engine.runtime import Runtime
from .engine.stock_script import (
    METHODS,
    PER_CHANNEL,
    TYPES,
    float16_script,
    int4_script,
    int8_script,
    later_opset,
    method_of,
    prepared_script,
)
from .reasons import say
from .settings import setting

if TYPE_CHECKING:
    from .modes import Recipe

__all__ = ["Blocked", "OrtKeep", "find_nodes"]


_INLINED = "_inlfunc_"


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Types and names of nodes. What is inside of a blocked If, Loop or Scan stays in float32 with it."""

    ops: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, runtime: Runtime, source: Model, running: Model | None = None) -> Blocked:
        """running: the graph whose nodes are asked about, where ONNX Runtime has taken functions of the model apart.
        Raises UsageError for a node that the model does not have."""
        named = frozenset(find_nodes(source, setting(runtime.settings, "node_block_list"), "node_block_list"))
        blocked = cls(ops=frozenset(setting(runtime.settings, "op_block_list")), nodes=named)
        if running is None or not (blocked.ops or blocked.nodes):
            return blocked
        return cls(ops=blocked.ops, nodes=named | _find_function_parts(source, running, blocked))

    def covers(self, node: Any) -> bool:
        """Return whether a node is named itself."""
        return node.op_type in self.ops or node.name in self.nodes

    def covers_scope(self, scope: Scope | None) -> bool:
        """Return whether a graph lies in a blocked node, at whatever depth."""
        return scope is not None and (
            (scope.owner is not None and self.covers(scope.owner)) or self.covers_scope(scope.parent)
        )

    def nodes_of(self, graph: Any, inside: bool = False) -> Iterator[tuple[Any, bool]]:
        """Yield every node of a graph and of those inside it, and whether it stays in float32; inside: all of them
        do."""
        for node in graph.node:
            blocked = inside or self.covers(node)
            yield node, blocked
            for _, inner in iterate_subgraphs(node):
                yield from self.nodes_of(inner, blocked)


def _find_function_parts(source: Model, running: Model, blocked: Blocked) -> frozenset[str]:
    """Return what became of blocked nodes that are functions: the nodes between what these read and what they give."""
    made = {out: node for graph in iterate_graphs(running.proto.graph) for node in graph.node for out in node.output}
    here = {node.name for node in made.values()}
    found: set[str] = set()
    for graph in iterate_graphs(source.proto.graph):
        for node in graph.node:
            if node.name in here or not blocked.covers(node):
                continue
            seen, waiting = set(node.input), list(node.output)
            while waiting:
                name = waiting.pop()
                if name not in seen and name in made:
                    found.add(made[name].name)
                    waiting += made[name].input
                seen.add(name)
    return frozenset(found)


def _find_functions(source: Model, tensor: str) -> list[str]:
    """Return nodes of the type whose function ONNX Runtime took apart, by the name that it gives a tensor inside of
    one."""
    inside = tensor.removeprefix(_INLINED)
    nodes = [node for graph in iterate_graphs(source.proto.graph) for node in graph.node]
    types = {node.op_type for node in nodes if inside != tensor and inside.startswith(f"{node.op_type}_")}
    return [node.name for node in nodes if node.op_type == max(types, key=len, default="")]


def find_nodes(source: Model, names: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the nodes of these names, and those that make the tensors of the others, as a report names them (an
    iteration's too). Raises UsageError for what the model has neither of."""
    if not names:
        return ()
    made = {
        out: node.name for graph in iterate_graphs(source.proto.graph) for node in graph.node for out in node.output
    }
    known = {node.name for graph in iterate_graphs(source.proto.graph) for node in graph.node}
    inputs = {item.name for graph in iterate_graphs(source.proto.graph) for item in graph.input}
    found: dict[str, None] = {}
    for name in names:
        tensor = name if name in made else name.rpartition("@")[0]
        if name in inputs and name not in known:
            continue  # an input has no node: what reads it is kept by its own name
        if name not in known and tensor not in made and (parts := _find_functions(source, name)):
            found |= dict.fromkeys(parts)
            continue
        if name not in known and tensor not in made:
            hint = suggest_nearest(name, sorted(known | made.keys()))
            raise UsageError(f"the model has no node or tensor {name}", where=f"--option {option}", hint=hint)
        found[name if name in known else made[tensor]] = None
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class OrtKeep:
    """See keeping.Keep. The float16 and simulated modes keep nodes, the int8 modes exclude them."""

    spec: SessionSpec
    recipe: Recipe
    unit: str = "operator"

    @property
    def simulation(self) -> str:
        return "ort_fp16_sim" if self.recipe.change == "float16" and self.recipe.engine != "cpu" else ""

    @property
    def saves(self) -> tuple[str, ...]:
        return () if self.recipe.mode.simulation and self.recipe.change != "float16_sim" else ("save_model",)

    def key_of(self, meta: TensorMeta) -> str:
        return meta.node if self._int8 is None else self._int8.home.get(meta.node, "")

    @cached_property
    def _int8(self) -> Int8Units | None:
        if not self.recipe.quantises:
            return None
        only: tuple[str, ...] = setting(self.spec.options, "op_types")
        return Int8Units.of(self.spec.model.model_file, self.recipe.change, only)

    @property
    def _name(self) -> str:
        return "nodes_to_exclude" if self.recipe.quantises else "node_block_list"

    @property
    def _common(self) -> Mapping[str, Any]:
        """What the model needs in any mode."""
        names = ("custom_ops_library", "intra_op_num_threads")
        return {name: self.spec.options[name] for name in names if name in self.spec.options}

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, self._name)
        if self._int8 is not None:
            keys = [name for key in keys for name in self._int8.names.get(key, (key,))]
        return {self._name: tuple(dict.fromkeys((*kept, *keys)))}

    def caution(self, keys: Sequence[str], tensors: Sequence[TensorMeta]) -> Reason:
        """See protocols.Cautions: the stock converter casts to float16 and back between two nodes that are kept."""
        names = frozenset(self.options(keys)[self._name])
        if self.recipe.change not in ("float16", "float16_sim"):
            return NOTHING
        made = {meta.name: meta.node or meta.name for meta in tensors if meta.dtype in ("", "float32")}
        read = {name for meta in tensors if meta.node in names for name in meta.inputs}
        cut = [name for name in read if made.get(name) in names]
        return say("round_trips_stock", count=len(cut)) if cut else NOTHING

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path) -> Sequence[Handed]:
        """Return the names for the stock tool, and the model that was judged, which ``save_model`` wrote beside
        them."""
        names = self.options(keys)[self._name]
        stem = Path(self.spec.model.model_file).stem
        listed = json.dumps(list(names), ensure_ascii=False)
        handed = [
            Handed(
                kind="setting", title=core("named_for_this_tool", name=self._name),
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'{self._name}={listed}')}",
                mode=self.spec.mode, options={self._name: names},
            )
        ]  # fmt: skip
        wanted = setting(self.spec.options, "save_model")
        if self.recipe.mode.simulation:
            script = [self._script(names)] if self.recipe.change == "float16_sim" else []
            return [*handed, *script, self._mixed(names, Path(wanted) if wanted else folder / f"{stem}.mixed.onnx")]
        path = Path(wanted) if wanted else folder / f"{stem}.{self.recipe.change.partition('_')[0]}.onnx"
        handed.append(self._script(names))
        if self.simulation == "" and self.recipe.change == "float16":
            # ONNX Runtime computes most of float16 on a CPU in float32: another engine does not
            handed.append(
                Handed(
                    kind="setting", title=say("handed_genuine"), mode="ort_fp16_sim",
                    text=f"--run_mode ort_fp16_sim --option {shlex.quote(f'{self._name}={listed}')}",
                    options={self._name: names, **self._common},
                )
            )  # fmt: skip
        handed.append(
            Handed(
                kind="model", title=say("handed_judged"),
                path=str(path), mode=_PLAIN[self.recipe.engine], model=str(path), options=self._common,
                maker=self.spec.mode,
                maker_options={self._name: names, **self._common, "save_model": str(path)},
            )
        )  # fmt: skip
        return handed

    def _script(self, names: Sequence[str]) -> Handed:
        """Return the same by the stock tool, from the file as it is, to paste."""
        model, options = str(Path(self.spec.model.model_file).absolute()), self.spec.options
        if not self.recipe.quantises:
            types: tuple[str, ...] = setting(options, "op_block_list")
            text, library = float16_script(model, types, names), "onnxruntime.transformers.float16"
            return Handed(kind="config", title=say("handed_for", library=library), text=text, note=_AS_GIVEN)
        if self.recipe.change == "int4":
            made = {name: setting(options, name) for name in ("block_size", "symmetric", "accuracy_level")}
            library = "onnxruntime.quantization.matmul_nbits_quantizer"
            return Handed(
                kind="config", title=say("handed_for", library=library), text=int4_script(model, names, **made),
                note=_AS_GIVEN,
            )  # fmt: skip
        static, channels, read = self.recipe.change == "int8", setting(options, "per_channel"), read_model(model)
        opset = max((one.version for one in read.proto.opset_import if not one.domain), default=0)
        later = setting(options, "raise_opset") if static else 0
        before, model = later_opset(model, later) if opset < later else ("", model)
        if static and setting(options, "pre_process"):
            folded, model = prepared_script(model)
            before += folded
        channels = channels and (not static or max(opset, later) >= PER_CHANNEL)
        left = list_not_removable(read) if static else {}
        method = method_of(setting(options, "activation_type"), setting(options, "calibration"))
        text = before + int8_script(
            model, tuple(dict.fromkeys((*names, *left))), setting(options, "op_types"), static=static,
            activation=TYPES[setting(options, "activation_type")] if static else "",
            weight=TYPES[setting(options, "weight_type")],
            method=METHODS[method] if static else "", per_channel=channels,
            reduce_range=setting(options, "reduce_range"),
        )  # fmt: skip
        library = f"onnxruntime.quantization.quantize_{'static' if static else 'dynamic'}"
        return Handed(kind="config", title=say("handed_for", library=library), text=text, note=_AS_GIVEN)

    def _mixed(self, names: Sequence[str], path: Path) -> Handed:
        """Of a simulation: a float16 model with the same nodes in float32."""
        if self.recipe.change != "float16_sim":
            return Handed(kind="model", title=say("handed_bfloat16"), note=say("handed_no_bfloat16"))
        return Handed(
            kind="model", title=say("handed_mixed"), path=str(path),
            mode="ort_opt", model=str(path), options=self._common, maker="ort_fp16",
            maker_options={"node_block_list": tuple(names), **self._common, "save_model": str(path)},
        )  # fmt: skip


_AS_GIVEN = say("handed_library")
_PLAIN = {"cpu": "ort_opt", "cuda": "ort_cuda_fp32", "tensorrt": "ort_tensorrt_fp16"}
