"""Which operators stay in float32, and what a user takes away of that: an attribute of OpenVINO's, which its IR keeps.

``DisablePrecisionConversion`` (up to 2026.1 ``precise``) is what OpenVINO itself puts on operators that must not be
converted to FP16; the CPU obeys it for BF16 too. Only its IR reader lets one be set from outside, so the model is
written, marked and read again. A fused layer stays in float32 as a whole. What the marked operators came to is read
from the layers that really run.
"""

from __future__ import annotations

import difflib
import functools
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from precision_debug.errors import UsageError
from precision_debug.protocols import Handed
from precision_debug.reasons import say as core
from precision_debug.records import SessionSpec, TensorMeta

from .engine.graph import Graph, Key, read_graph
from .engine.layers import Layer
from .engine.marks import list_surviving
from .engine.quantise import format_overflow_fix, is_quantised, list_constant_lookups
from .failures import reading
from .model import read_model
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = ["ATTRIBUTES", "OpenVinoKeep", "find_excluded", "find_operators", "make_marked_model", "save_model"]

ATTRIBUTES: Sequence[Mapping[str, str]] = (
    {"name": "DisablePrecisionConversion", "version": "0", "value": "dynamic:f16,bf16"},
    {"name": "precise", "version": "0"},
)
"""As they stand in an IR; a reader passes over the one that it does not know."""

_TURNED, _BACK = "/turned", "/turned/back"


@dataclass(frozen=True, kw_only=True)
class OpenVinoKeep:
    """See protocols.Keep. In INT8 NNCF leaves the named operators out; elsewhere they stay in float32."""

    spec: SessionSpec
    recipe: Recipe
    unit: str = "operator"
    simulation: str = ""
    saves: tuple[str, ...] = ("save_ir",)

    @classmethod
    def of(cls, spec: SessionSpec, recipe: Recipe) -> OpenVinoKeep | None:
        """None where the mode has no lower precision, or the model brings its own quantisation. Raises ModelError."""
        if recipe.precision == "f32" and not recipe.quantise:
            return None
        found = cls(spec=spec, recipe=recipe)
        return None if recipe.quantise and found._model[1] else found

    def key_of(self, meta: TensorMeta) -> str:
        """Return the tensor's name, which both an ONNX baseline and OpenVINO have; an own step's by its operator."""
        graph = self._model[0]
        if meta.name in graph.named:
            return meta.name
        return meta.node if meta.node in graph.rank else ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        kept: tuple[str, ...] = setting(self.spec.options, self._name)
        return {self._name: tuple(dict.fromkeys((*kept, *keys)))}

    def hand_over(self, keys: Sequence[str], _tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        """Return the names for this tool, and an IR with the operators marked in it, which any OpenVINO program
        compiles."""
        names = self.options(keys)[self._name]
        listed = json.dumps(list(names), ensure_ascii=False)
        wanted = setting(self.spec.options, "save_ir")
        usual = folder / f"{Path(self.spec.model.model_file).stem}.{self.spec.mode.removeprefix('ov_')}.xml"
        path = Path(wanted) if wanted else usual
        common = {name: self.spec.options[name] for name in _COMMON if name in self.spec.options}
        config = {} if self.recipe.precision == "" else {"INFERENCE_PRECISION_HINT": self.recipe.precision}
        config |= setting(self.spec.options, "config")
        scope = []
        fix = str(setting(self.spec.options, "overflow_fix"))
        if self.recipe.quantise:
            scope = [
                Handed(
                    kind="config", title="nncf.IgnoredScope", note=say("handed_scope"),
                    text=_QUANTISES.format(
                        model=str(Path(self.spec.model.model_file).absolute()), made=str(path),
                        preset=str(setting(self.spec.options, "preset")).upper(),
                        more=f"\n    {format_overflow_fix(fix)}," if fix else "",
                        **self._name_for_nncf(names),
                    ),
                )
            ]  # fmt: skip
        return [
            Handed(
                kind="setting", title=core("named_for_this_tool", name=self._name),
                text=f"--run_mode {self.spec.mode} --option {shlex.quote(f'{self._name}={listed}')}",
                mode=self.spec.mode, options={self._name: names},
            ),
            Handed(
                kind="model", title=say("handed_ir"), path=str(path),
                mode=self.spec.mode, model=str(path), options=common, maker=self.spec.mode,
                maker_options={self._name: names, **common, "save_ir": str(path)},
            ),
            Handed(
                kind="wrapper", title=say("handed_api"),
                text=f"import openvino\n\ncompiled = openvino.Core().compile_model({str(path)!r}, 'CPU', {config!r})\n",
                note=say("handed_compiles"),
            ),
            *scope,
        ]  # fmt: skip

    def _name_for_nncf(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the operators to ignore, and what gives those a name that OpenVINO calls otherwise in each process
        (the MVN of a LayerNormalization is "MVN_218"): by the tensor that they are made for, and the way there."""
        model = read_model(self.spec)
        ops = model.get_ordered_ops()
        before = [str(op.get_friendly_name()) for op in ops]
        excluded = [*find_excluded(read_graph(model), names), *list_constant_lookups(model)]
        fresh = {str(op.get_friendly_name()): op for op, own in zip(ops, before, strict=True)
                 if own != op.get_friendly_name()}  # fmt: skip
        ways = [(name, *find_way(fresh[name])) for name in dict.fromkeys(excluded) if name in fresh]
        return {
            "names": repr(list(dict.fromkeys(excluded))),
            "renames": _RENAMES.format(ways="\n".join(f"    {way!r}," for way in ways)) if ways else "",
        }

    @property
    def _name(self) -> str:
        return "nodes_to_exclude" if self.recipe.quantise else "keep_fp32"

    @functools.cached_property
    def _model(self) -> tuple[Graph, bool]:
        model = read_model(self.spec)
        return read_graph(model), is_quantised(model)


_COMMON = ("inference_num_threads", "config")

_QUANTISES = """\
import nncf
import openvino

# feeds: the inputs to calibrate on, a list of dicts of arrays by input name
model = openvino.Core().read_model({model!r})
{renames}model = nncf.quantize(
    model, nncf.Dataset(feeds), preset=nncf.QuantizationPreset.{preset},
    subset_size=len(feeds), ignored_scope=nncf.IgnoredScope(names={names}),{more}
)
openvino.save_model(model, {made!r}, compress_to_fp16=False)
"""

_RENAMES = """\
# what OpenVINO makes of one of the model's operators it calls otherwise each time: (name, for which tensor, inputs)
made = {{name: port.get_node() for op in model.get_ops() for port in op.outputs() for name in port.get_names()}}
for name, tensor, inputs in [
{ways}
]:
    op = made[tensor]
    for place in inputs:
        op = op.input_value(place).get_node()
    op.set_friendly_name(name)
"""


def find_way(op: Any) -> tuple[str, tuple[int, ...]]:
    """Return the nearest tensor with the source model's name that an operator is computed for, and the inputs that lead
    from its producer back to the operator."""
    waiting: list[tuple[Any, tuple[int, ...]]] = [(op, ())]
    for one, inputs in waiting:
        if names := sorted(name for port in one.outputs() for name in port.get_names()):
            return names[0], inputs
        waiting += [(reader.get_node(), (reader.get_index(), *inputs))
                    for port in one.outputs() for reader in port.get_target_inputs()]  # fmt: skip
    return "", ()


def find_excluded(graph: Graph, names: Collection[str]) -> list[str]:
    """Return operators that make these tensors, or have these names, with what their importer made of each.

    Raises UsageError for a name that the model does not have.
    """
    found: dict[str, None] = {}
    for name in names:
        waiting = [graph.values[key].key for key in graph.values if key[0] == name]
        if name in graph.named:
            waiting.append(graph.named[name].key)
        if not waiting:
            raise UsageError(
                f"the model has no operator or tensor {name}",
                where="--option nodes_to_exclude",
                hint=_find_near(graph, name),
            )
        while waiting:
            value = graph.values[waiting.pop()]
            found[value.key[0]] = None
            waiting += [key for key in value.reads if graph.values[key].own and key[0] not in found]
    return list(found)


def _find_near(graph: Graph, name: str) -> str:
    near = difflib.get_close_matches(name, [*graph.rank, *graph.named], n=2)
    return f"did you mean {' or '.join(near)}?" if near else "give names of operators or of tensors"


def find_regions(graph: Graph, layers: Sequence[Layer]) -> Mapping[str, frozenset[str]]:
    """Return each operator of the main graph to those that are computed with it, in one layer: itself and what is
    inside."""
    ends = list_surviving(graph, layers)
    members: dict[Key, set[str]] = {}
    for key in (value.key for value in graph.computed()):
        if key not in ends:
            continue
        found, waiting = {key[0]}, list(graph.values[key].reads)
        while waiting:
            current = waiting.pop()
            value = graph.values.get(current)
            if value is None or current in ends or current[0] in found or value.op_type in {"Input", "Constant"}:
                continue
            found.add(current[0])
            waiting.extend(value.reads)
        members[key] = found
    region: dict[str, set[str]] = {}
    for found in members.values():
        for name in found:
            region.setdefault(name, set()).update(found)
    return {name: frozenset(found) for name, found in region.items()}


def find_operators(graph: Graph, layers: Sequence[Layer], names: Collection[str]) -> frozenset[str]:
    """Return the operators to mark so that these operators, or those that make these tensors, stay in float32.

    Raises UsageError for a name that the model does not have.
    """
    region = find_regions(graph, layers)
    found: set[str] = set()
    for name in names:
        op = graph.named[name].key[0] if name in graph.named else name if name in graph.rank else ""
        if not op:
            what = f"the model has no operator or tensor {name}"
            raise UsageError(what, where="--option keep_fp32", hint=_find_near(graph, name))
        found |= region.get(op, frozenset({op}))
    return frozenset(found)


def make_marked_model(core: Any, model: Any, ops: frozenset[str], folder: str) -> Any:
    """Return the model with these operators kept in float32, by way of files in ``folder``. Raises ModelError.

    A pass that makes a new operator of an old one drops the attribute: so the passes that fold batch norms and scales
    into weights run before, and a product with a weight is written so that it is not made a FullyConnected.
    """
    import openvino
    from openvino._offline_transformations import apply_moc_transformations

    clone = model.clone()
    _turn_products(clone, ops)
    before = {str(op.get_friendly_name()) for op in clone.get_ops()}
    apply_moc_transformations(clone, cf=True)
    marked = {*ops, *(f"{name}{part}" for name in ops for part in (_TURNED, _BACK))}
    for op in reversed(clone.get_ordered_ops()):  # what a pass made is kept with what reads it
        readers = {
            target.get_node().get_friendly_name() for port in op.outputs() for target in port.get_target_inputs()
        }
        if op.get_friendly_name() not in before and readers & marked:
            marked.add(str(op.get_friendly_name()))
    path = Path(folder, "kept.xml")
    with reading(str(path)):
        openvino.save_model(clone, path, compress_to_fp16=False)
        tree = ElementTree.parse(path)
        layers = tree.getroot().find("layers")
        for layer in layers if layers is not None else ():
            if layer.get("type") not in {"Const", "Parameter", "Result"} and layer.get("name") in marked:
                _mark(layer)
        tree.write(path)
        return core.read_model(path)


def _turn_products(model: Any, ops: frozenset[str]) -> None:
    """Write x @ w as (w' @ x')', which OpenVINO leaves a MatMul: it makes others with a weight FullyConnected
    layers."""
    import numpy as np
    from openvino import opset13

    for op in model.get_ordered_ops():
        rank = op.output(0).get_partial_shape().rank if op.get_output_size() else None
        if (
            op.get_type_name() != "MatMul" or op.get_friendly_name() not in ops or rank is None or rank.is_dynamic
            or rank.get_length() < 2 or not _is_weight(op.input_value(1)) or _is_weight(op.input_value(0))
        ):  # fmt: skip
            continue
        turned, name = op.get_attributes(), op.get_friendly_name()
        product = opset13.matmul(
            op.input_value(1), op.input_value(0), not turned["transpose_b"], not turned["transpose_a"],
            name=f"{name}{_TURNED}",
        )  # fmt: skip
        order = [*range(rank.get_length() - 2), rank.get_length() - 1, rank.get_length() - 2]
        back = opset13.transpose(product, opset13.constant(np.array(order, np.int64)), name=f"{name}{_BACK}")
        last = op.output(0).get_partial_shape()[rank.get_length() - 1]
        if last.is_static and _is_moved_before(op, ops):
            # a scale or a Relu that is kept, too, would be moved before the Transpose, and the one that is made anew
            # has no mark; nothing is moved before what has a number for each channel, and a slope of 1 changes none
            slopes = np.ones([1] * (rank.get_length() - 1) + [last.get_length()], np.float32)
            back = opset13.prelu(back, opset13.constant(slopes, op.output(0).get_element_type()), name=name)
        else:
            back.set_friendly_name(name)
        back.output(0).set_names(op.output(0).get_names())
        for reader in list(op.output(0).get_target_inputs()):
            reader.replace_source_output(back.output(0))


def _is_moved_before(op: Any, ops: frozenset[str]) -> bool:
    """Return whether OpenVINO would move what reads a product, one number or none beside it, before a Transpose of it;
    behind a bias, too. Only of what is kept itself: what is not rounds the product anyway."""
    import numpy as np

    while True:
        readers = [target.get_node() for target in op.output(0).get_target_inputs()]
        if len(readers) != 1 or readers[0].get_friendly_name() not in ops:
            return False
        beside = [port for port in readers[0].input_values() if port.get_node().get_type_name() == "Constant"]
        if readers[0].get_input_size() != 1 + len(beside):
            return False
        if all(np.prod(port.get_shape(), dtype=int) == 1 for port in beside):
            return True
        if readers[0].get_type_name() not in {"Add", "Subtract", "Multiply", "Divide"}:
            return False
        op = readers[0]


def _is_weight(port: Any) -> bool:
    node = port.get_node()
    while node.get_type_name() in {"Convert", "Reshape", "Transpose"} and node.get_input_size():
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant")


def save_model(model: Any, path: str) -> None:
    """Write a model as OpenVINO IR, weights as they are and marks with it: ``path`` ends in ".xml"."""
    import openvino

    with reading(path):
        openvino.save_model(model, path, compress_to_fp16=False)


def _mark(layer: ElementTree.Element) -> None:
    info = layer.find("rt_info")
    if info is None:
        info = ElementTree.Element("rt_info")
        layer.insert(1 if layer.find("data") is not None else 0, info)
    own = {attribute.get("name"): attribute for attribute in info}
    for attribute in ATTRIBUTES:
        if (before := own.get(attribute["name"])) is not None:  # OpenVINO's own, of some types only; none comes twice
            info.remove(before)
        ElementTree.SubElement(info, "attribute", dict(attribute))
