"""What an ONNX file holds, as lines to read in both languages: inputs and outputs, operators, attributes, weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ...errors import ModelError
from ...onnx.graph import initializers_of, iterate_scopes
from ...onnx.model import Model, read_model, read_tensor_shape
from ...onnx.types import dtype_name
from ...reasons import Text, same, say

__all__ = ["PARTS", "describe_file"]

PARTS = ("layers", "attributes", "weights")
"""What can be asked for beyond the summary."""

_LONG = 80


def describe_file(path: str, parts: Collection[str] = ()) -> Iterator[Text]:
    """Describe an ONNX file, one line a thing.

    Layers come in the file's order, those of bodies indented. Raises ModelError."""
    model = read_model(path)
    graph = model.proto.graph
    constants = initializers_of(graph)
    opsets = ", ".join(f"{one.domain or 'ai.onnx'} {one.version}" for one in model.proto.opset_import)
    made = model.proto.producer_name
    yield Text(f"{path}: IR {model.proto.ir_version}, opset {opsets}, {made or 'unknown producer'}",
               f"{path}：IR {model.proto.ir_version}，opset {opsets}，{made or '导出工具未知'}")  # fmt: skip
    for item in graph.input:
        if item.name not in constants:
            yield Text(f"input   {item.name}  {_format_type(item).en}", f"输入  {item.name}  {_format_type(item).zh}")
    for item in graph.output:
        yield Text(f"output  {item.name}  {_format_type(item).en}", f"输出  {item.name}  {_format_type(item).zh}")
    found = list(iterate_scopes(graph))
    counts = Counter(node.op_type for scope in found for node in scope.graph.node)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    yield Text(f"{counts.total()} operators: {listed}", f"{counts.total()} 个算子：{listed}")
    weights = [weight for scope in found for weight in scope.graph.initializer]
    elements = sum(_count_elements(weight) for weight in weights)
    types = Counter(dtype_name(weight.data_type) for weight in weights)
    listed = ", ".join(f"{n} {name}" for name, n in types.most_common())
    yield Text(f"{len(weights)} weights, {elements} elements: {listed}",
               f"{len(weights)} 个权重，共 {elements} 个元素：{listed}")  # fmt: skip
    if "layers" in parts or "attributes" in parts:
        for scope in found:
            depth = len(scope.key)
            if scope.parent is not None:
                yield Text(f"{'  ' * depth}in {scope.path}:", f"{'  ' * depth}{scope.path} 内：")
            for node in scope.graph.node:
                begin, read, made_of = f"{'  ' * depth}{node.op_type:18s} {node.name}", node.input, node.output
                yield Text(f"{begin}: {_format_names(read).en} -> {_format_names(made_of).en}",
                           f"{begin}：{_format_names(read).zh} -> {_format_names(made_of).zh}")  # fmt: skip
                for attribute in node.attribute if "attributes" in parts else ():
                    begin, value = f"{'  ' * depth}    {attribute.name} = ", _format_value(attribute)
                    yield Text(f"{begin}{value.en}", f"{begin}{value.zh}")
    if "weights" in parts:
        for weight in weights:
            shape = f"{dtype_name(weight.data_type)} {list(weight.dims)}"
            span = _format_range(weight, model)
            yield Text(f"{weight.name}  {shape}{span.en}", f"{weight.name}  {shape}{span.zh}")


def _format_type(item: Any) -> Text:
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        return same(str(kind).removesuffix("_type")) if kind else Text("unknown type", "类型未知")
    shape, dtype = read_tensor_shape(item.type.tensor_type), dtype_name(item.type.tensor_type.elem_type)
    if shape is None:
        return Text(f"{dtype} shape unknown", f"{dtype} 形状未知")
    return same(f"{dtype} [{', '.join(map(str, shape))}]")


def _format_names(names: Any) -> Text:
    found = ", ".join(name or "-" for name in names)
    return same(found) if found else Text("nothing", "无")


def _count_elements(weight: Any) -> int:
    count = 1
    for dim in weight.dims:
        count *= dim
    return count


def _format_range(weight: Any, model: Model) -> Text:
    """Return the smallest and largest value, and what is not finite. Raises ModelError."""
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(weight, base_dir=str(model.folder))
    except (ValueError, TypeError, KeyError, OSError, MemoryError) as error:
        said = say("weight_unreadable", name=weight.name, error=str(error) or type(error).__name__)
        raise ModelError(said, where=model.path, hint=say("export_again")) from error
    if array.dtype.kind not in "fiub" and array.dtype.isbuiltin != 2:
        return same("")
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    low, high = (f"{finite.min():.6g}", f"{finite.max():.6g}") if finite.size else ("", "")
    en, zh = (f"  {low} to {high}", f"  {low} 至 {high}") if finite.size else ("", "")
    if broken := wide.size - finite.size:
        en, zh = f"{en}, {broken} not finite", f"{zh}，{broken} 个非有限值"
    return Text(en, zh)


def _format_value(attribute: Any) -> Text:
    from onnx import helper

    if attribute.HasField("g") or attribute.graphs:
        size = len(attribute.g.node)
        whole = Text(f"a graph of {size} operators", f"含 {size} 个算子的子图")
        return whole if attribute.HasField("g") else Text("graphs", "若干子图")
    if attribute.HasField("t"):
        return same(f"{dtype_name(attribute.t.data_type)} {list(attribute.t.dims)}")
    value = helper.get_attribute_value(attribute)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return same(text if len(text) <= _LONG else f"{text[:_LONG]}…")
