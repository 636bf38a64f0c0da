"""What mends a known cause in the mode at hand: another calibration, a scale for each channel, a constant that the
type can hold. Each is tried before it is offered, see ``protocols.Remedies``."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import UsageError
from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.onnx.graph import iterate_graphs, order_nodes
from precision_debug.onnx.model import read_model
from precision_debug.protocols import Remedy
from precision_debug.reasons import suggest_nearest
from precision_debug.records import Culprit

from ..settings import setting
from .stock_script import METHODS, PER_CHANNEL, later_opset

__all__ = [
    "EXACT_SUMS", "PRODUCTS", "SUMMED", "adds_in_16_bits", "count_quantised", "raise_constants", "remedies_of",
]  # fmt: skip

PRODUCTS = ("Conv", "Gemm", "MatMul")
"""What gains most of INT8: the usual advice is to leave everything else in float."""

SUMMED: Mapping[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "MatMulInteger": (2, ((1, 3),)),
    "QLinearMatMul": (2, ((3, 5),)),
    "QLinearConv": (2, ((3, 5),)),
    "QGemm": (2, ((3, 5),)),
    "MatMulIntegerToFloat": (4, ((1, 5),)),
    "DynamicQuantizeMatMul": (-1, ((1, 3),)),
    "DynamicQuantizeLSTM": (-1, ((1, 9), (2, 11))),
    "QAttention": (6, ((1, 7),)),
}
"""Operators whose kernels add 8-bit products: which input is the activations' zero point (-1: quantised to uint8 as it
runs), then for each weight which input it is, and which its zero point (the operators of ONNX and com.microsoft)."""

_WEIGHED = frozenset({*PRODUCTS, "ConvTranspose"})
_FOLDED = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})
"""What ONNX Runtime moves into the weights or the bias of a product before it, where its other input is a constant."""

_RANGES = frozenset({"coarse", "mask_range", "outlier_channel", "saturation", "coarse_scale"})
"""Causes that another range of an activation may mend."""

_OF_RANGES = ("percentile", "entropy", "minmax")
"""Calibrations, in the order in which they are tried; "distribution" is for float8."""

_RAISE = """\
import numpy, onnx
from onnx import numpy_helper

model = onnx.load({model!r})
held = {{tensor.name: tensor for tensor in model.graph.initializer}}
held |= {{node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}}
for name, least in {least!r}.items():
    value = numpy_helper.to_array(held[name])
    raised = numpy.where((value != 0) & (abs(value) < least), numpy.copysign(least, value), value).astype(value.dtype)
    held[name].CopyFrom(numpy_helper.from_array(raised, name))
onnx.save(model, {made!r})  # then convert it to FP16 as before"""


def remedies_of(change: str, options: Mapping[str, Any], model: str, culprits: Sequence[Culprit]) -> Iterator[Remedy]:
    """change: what the mode does to the model, see ``modes.Recipe``. model: the file."""
    wide = {one.evidence.get("from", "") for one in culprits if one.cause == "outlier_channel"}
    own = wide & {tensor.name for tensor in read_model(model).proto.graph.initializer} if wide else wide
    # a channel of a weight is no matter of what is calibrated
    causes = frozenset("constant_scale" if one.evidence.get("from", "") in own else one.cause for one in culprits)
    types = frozenset(kind for one in culprits for kind in one.op_types)
    adds = not types.isdisjoint({*PRODUCTS, *SUMMED})
    if change in {"", "float16"} and adds and count_quantised(read_model(model).proto):
        yield from _exact_sums(options)
    if change.startswith("int8"):
        yield from _scales_apart(change, options, model, culprits)
        yield from _of_int8(change, options, model, causes, types)
        if change == "int8" and not types.isdisjoint(PRODUCTS):
            yield from _of_a_later_opset(options, model)
    elif change:
        narrow = NUMBER_TYPES["bfloat16" if change.startswith("bfloat16") else "float16"]
        tiny = [str(one.evidence["weight"]) for one in culprits if one.cause == "weight_underflow"]
        for least in (narrow.smallest, narrow.smallest_normal) if tiny else ():
            given = {**setting(options, "raise_constants"), **dict.fromkeys(tiny, f"{least:.4g}")}
            lines = _RAISE.format(
                model=model, least={name: float(value) for name, value in given.items()},
                made=f"{model.removesuffix('.onnx')}.raised.onnx",
            )  # fmt: skip
            yield Remedy(settings={"raise_constants": given}, text=lines)


_BEHIND = 24
"""Nodes between a join and the outputs, at most, that are left in float with it."""


def _scales_apart(
    change: str, options: Mapping[str, Any], model: str, culprits: Sequence[Culprit]
) -> Iterator[Remedy]:
    """Yield what packs unlike quantities left unquantised, so that each of them keeps a scale of its own: alone, and
    with all that comes after it, where another operator would give the whole one scale again."""
    joins = list(dict.fromkeys(one.node for one in culprits if one.cause == "packed" and one.node))
    if not joins or change != "int8":
        return
    graph = read_model(model).proto.graph
    reached = {name for node in graph.node if node.name in joins for name in node.output}
    behind = list(joins)
    for node in order_nodes(graph):
        if node.name not in joins and not reached.isdisjoint(node.input):
            reached.update(node.output)
            behind.append(node.name)
    kept = list(setting(options, "nodes_to_exclude"))
    for nodes in (joins, behind) if len(joins) < len(behind) <= _BEHIND else (joins,):
        names = tuple(dict.fromkeys([*kept, *nodes]))
        yield Remedy(settings={"nodes_to_exclude": names}, text=f"quantize_static(…, nodes_to_exclude={list(names)!r})")


def _of_int8(
    change: str, options: Mapping[str, Any], model: str, causes: frozenset[str], types: frozenset[str]
) -> Iterator[Remedy]:
    """causes, types: of the culprits; none of an error of many operators."""
    channels = setting(options, "per_channel")
    called = "quantize_static" if change == "int8" else "quantize_dynamic"
    weights = "constant_scale" in causes or not types.isdisjoint({*PRODUCTS, *SUMMED}) or not types
    if weights:
        yield from _exact_sums(options)
    if weights and not channels:
        yield Remedy(settings={"per_channel": True}, text=f"{called}(…, per_channel=True)")
    if change != "int8":
        return
    if not _RANGES.isdisjoint(causes) or not causes:
        chosen = setting(options, "calibration")
        for name in _OF_RANGES:
            if name != chosen:
                how = f"calibrate_method=CalibrationMethod.{METHODS[name]}"
                yield Remedy(settings={"calibration": name}, text=f"{called}(…, {how})")
    if weights and not setting(options, "pre_process") and _does_fold(read_model(model).proto.graph):
        text = f"quant_pre_process({model!r}, …), then quantize_static on what it writes"
        yield Remedy(settings={"pre_process": True}, text=text)
        if not channels:
            yield Remedy(settings={"pre_process": True, "per_channel": True}, text=f"{text}, with per_channel=True")
    if not setting(options, "op_types") and types and types.isdisjoint(PRODUCTS):
        text = f"{called}(…, op_types_to_quantize={list(PRODUCTS)!r})"
        yield Remedy(settings={"op_types": PRODUCTS}, text=text, keeps=True)


EXACT_SUMS = "session.x64quantprecision"
"""With it ONNX Runtime makes signed 8-bit weights unsigned, whose kernels do not saturate."""


def _exact_sums(options: Mapping[str, Any]) -> Iterator[Remedy]:
    config = setting(options, "config")
    if EXACT_SUMS not in config and adds_in_16_bits():
        yield Remedy(
            settings={"config": {**config, EXACT_SUMS: "1"}}, cause="saturating_sums",
            text=f'session_options.add_session_config_entry("{EXACT_SUMS}", "1")',
        )  # fmt: skip


_QUANTISED = re.compile(r"Quantize|^QLinear|^Q(Gemm|Attention)$|Integer|NBits")


def count_quantised(proto: Any) -> Counter[str]:
    """Return how many operators of each type make or read quantised tensors."""
    kinds = Counter(node.op_type for graph in iterate_graphs(proto.graph) for node in graph.node)
    return Counter({kind: number for kind, number in kinds.items() if _QUANTISED.search(kind)})


@functools.cache
def adds_in_16_bits() -> bool:
    """Return whether this processor's kernel of unsigned and signed 8-bit numbers adds two products in 16 bits, where
    they saturate: one of 64 terms of 255 x 127 is run. x86-64 without VNNI does (its vpmaddubsw)."""
    import onnxruntime
    from onnx import TensorProto, helper

    terms, a, b = 64, np.uint8(255), np.int8(127)
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.UINT8, (1, terms)),
        helper.make_tensor_value_info("b", TensorProto.INT8, (terms, 16)),
    ]
    output = helper.make_tensor_value_info("c", TensorProto.INT32, (1, 16))
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["c"])], "sum", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"a": np.full((1, terms), a), "b": np.full((terms, 16), b)}
    return bool((session.run(None, feeds)[0] != terms * int(a) * int(b)).any())


def _does_fold(graph: Any) -> bool:
    """Return whether ONNX Runtime's basic passes would move something into a product's weights, or work out a constant
    that a product reads."""
    held, maker, worked_out = {tensor.name for tensor in graph.initializer}, dict[str, str](), set[str]()
    for node in order_nodes(graph):
        constant = [name in held for name in node.input if name]
        if all(constant) and not any(attribute.HasField("g") for attribute in node.attribute):
            held.update(node.output)
            worked_out.update(node.output if constant else ())
            continue
        if node.op_type in _WEIGHED and not worked_out.isdisjoint(node.input):
            return True
        moved = node.op_type in _FOLDED and any(constant)
        if moved and not _WEIGHED.isdisjoint(maker.get(name, "") for name in node.input):
            return True
        maker.update(dict.fromkeys(node.output, node.op_type))
    return False


def _of_a_later_opset(options: Mapping[str, Any], model: str) -> Iterator[Remedy]:
    """Yield the opset from which weights have a scale for each channel, of a model before it."""
    read = read_model(model)
    have = max((one.version for one in read.proto.opset_import if one.domain in {"", "ai.onnx"}), default=0)
    if 0 < have < PER_CHANNEL and not setting(options, "raise_opset"):
        text, _ = later_opset(model, PER_CHANNEL)
        yield Remedy(
            settings={"raise_opset": PER_CHANNEL, "per_channel": True},
            text=f"{text}# then quantise that file as before, with per_channel=True",
        )


def raise_constants(proto: Any, least: Mapping[str, str]) -> None:
    """Raise the numbers of some constants that are nearer to 0 than that, and not 0, to it, in place.

    Raises UsageError for a constant that the model does not have, or whose numbers lie outside of its file.
    """
    from onnx import numpy_helper

    if not least:
        return
    held = {tensor.name: tensor for graph in iterate_graphs(proto.graph) for tensor in graph.initializer}
    for graph in iterate_graphs(proto.graph):
        for node in graph.node:
            for one in node.attribute if node.op_type == "Constant" else ():
                if one.name == "value":
                    held[node.output[0]] = one.t
    for name, text in least.items():
        if name not in held:
            hint = suggest_nearest(name, sorted(held))
            raise UsageError(f"the model has no constant {name}", where="--option raise_constants", hint=hint)
        tensor, floor = held[name], _number(text)
        if tensor.data_type != 1 or tensor.external_data:
            raise UsageError(f"{name} has no float32 numbers in the file itself", where="--option raise_constants")
        value = numpy_helper.to_array(tensor)
        small = (value != 0) & (np.abs(value) < floor)
        raised = np.where(small, np.copysign(np.float32(floor), value), value).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(raised, tensor.name))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"expects NAME=NUMBER, got '{text}'", where="--option raise_constants") from None
