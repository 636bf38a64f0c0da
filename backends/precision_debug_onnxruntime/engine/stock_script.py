"""A kept set as a script of the stock tools, which needs nothing of this project: it runs as it is pasted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "FLOAT8", "METHODS", "PER_CHANNEL", "TYPES", "float16_script", "int4_script", "int8_script",
    "later_opset", "method_of", "prepared_script",
]  # fmt: skip

PER_CHANNEL = 13
"""The opset from which weights have a scale for each channel, where nobody asks for another way."""

METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile", "distribution": "Distribution"}
TYPES = {
    "int8": "QInt8",
    "uint8": "QUInt8",
    "int16": "QInt16",
    "uint16": "QUInt16",
    "int4": "QInt4",
    "uint4": "QUInt4",
    "float8": "QFLOAT8E4M3FN",
}
FLOAT8 = "float8"
"""E4M3FN, which the quantiser takes for activations and weights alike."""

_FLOAT16 = """\
import onnx
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

model = onnx.load({model!r})
kept = {nodes!r}
# a constant that only kept nodes read stays as it is, where it is a node of its own too
others = {{name for node in model.graph.node if node.name not in kept for name in node.input}}
for node in model.graph.node:
    if node.op_type == "Constant" and node.output[0] not in others:
        node.name = node.output[0]
        kept.append(node.name)
own = {{node.name for node in model.graph.node}}
model = convert_float_to_float16(model, keep_io_types=True, op_block_list={types}, node_block_list=kept)
# between two kept nodes it casts to float16 and back: the second reads what the first one gave
casts = {{node.output[0]: node for node in model.graph.node if node.op_type == "Cast" and node.name not in own}}
for node in model.graph.node:
    for place, name in enumerate(node.input):
        back = casts.get(name)
        down = casts.get(back.input[0]) if back is not None and back.attribute[0].i == onnx.TensorProto.FLOAT else None
        if down is not None and down.attribute[0].i == onnx.TensorProto.FLOAT16 and node.output[0] not in casts:
            node.input[place] = down.input[0]
onnx.save(model, {made!r})
"""

_LATER = """\
import onnx
from onnx import version_converter

onnx.save(version_converter.convert_version(onnx.load({model!r}), {opset}), {made!r})
"""

_STATIC = """\
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static


class Feeds(CalibrationDataReader):
    def __init__(self, feeds):
        self.left = iter(feeds)

    def get_next(self):
        return next(self.left, None)


# feeds: the inputs to calibrate on, a list of dicts of arrays by input name
quantize_static(
    {model!r}, {made!r}, Feeds(feeds), quant_format=QuantFormat.QDQ, activation_type=QuantType.{activation},
    weight_type=QuantType.{weight}, calibrate_method=CalibrationMethod.{method}, per_channel={per_channel},
    reduce_range={reduce_range}, op_types_to_quantize={types!r}, nodes_to_exclude={nodes!r},
)
"""

_PREPARED = """\
from onnxruntime.quantization.shape_inference import quant_pre_process

quant_pre_process({model!r}, {made!r})
"""

_DYNAMIC = """\
from onnxruntime.quantization import QuantType, quantize_dynamic

quantize_dynamic(
    {model!r}, {made!r}, weight_type=QuantType.{weight}, per_channel={per_channel}, reduce_range={reduce_range},
    op_types_to_quantize={types!r}, nodes_to_exclude={nodes!r},
)
"""


_FOUR_BITS = """\
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

made = MatMulNBitsQuantizer(
    onnx.load({model!r}), bits=4, block_size={block_size}, is_symmetric={symmetric}, accuracy_level={level},
    nodes_to_exclude={nodes!r},
)
made.process()
made.model.save_model_to_file({made!r}, use_external_data_format=True)
"""


def int4_script(model: str, nodes: Sequence[str], *, block_size: int, symmetric: bool, accuracy_level: int) -> str:
    """nodes: what stays in float."""
    return _FOUR_BITS.format(
        model=model, made=f"{Path(model).stem}.int4.onnx", nodes=list(nodes), block_size=block_size,
        symmetric=symmetric, level=accuracy_level or None,
    )  # fmt: skip


def method_of(activation: str, calibration: str) -> str:
    """Return how ranges are found: the quantiser has one way for float8."""
    return "distribution" if activation == FLOAT8 else calibration


def float16_script(model: str, types: Sequence[str], nodes: Sequence[str]) -> str:
    """types, nodes: what stays in float32."""
    made = f"{Path(model).stem}.mixed.onnx"
    blocked = f"[*DEFAULT_OP_BLOCK_LIST, *{list(types)!r}]" if types else "DEFAULT_OP_BLOCK_LIST"
    return _FLOAT16.format(model=model, made=made, types=blocked, nodes=list(nodes))


def int8_script(
    model: str, nodes: Sequence[str], only: Sequence[str], *, static: bool, activation: str, weight: str, method: str,
    per_channel: bool, reduce_range: bool,
) -> str:  # fmt: skip
    """nodes: what stays in float. only: operator types that are quantised, none: all. activation, weight, method: as
    onnxruntime.quantization names them."""
    parts = [f"{name}{part}" for name in nodes for part in ("", "_MatMul", "_Add")]  # what it makes of a Gemm first
    return (_STATIC if static else _DYNAMIC).format(
        model=model, made=f"{Path(model).stem}.int8.onnx", nodes=parts, types=list(only) or None, weight=weight,
        activation=activation, method=method, per_channel=per_channel, reduce_range=reduce_range,
    )  # fmt: skip


def prepared_script(model: str) -> tuple[str, str]:
    """Return lines that fold a model's constants, by ONNX Runtime's own guide, and the file that they write."""
    made = f"{model.removesuffix('.onnx')}.prepared.onnx"
    return _PREPARED.format(model=model, made=made), made


def later_opset(model: str, opset: int) -> tuple[str, str]:
    """Return lines that write a model at a later opset, by onnx's own converter, and the file that they write."""
    made = f"{model.removesuffix('.onnx')}.opset{opset}.onnx"
    return _LATER.format(model=model, opset=opset, made=made), made
