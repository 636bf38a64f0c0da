"""Build div_zero.onnx: a division by zero makes Inf, infinity times zero makes NaN, and later operators hide both.

The output is finite: Where and Clip take NaN and Inf out again. Only a look at every tensor finds them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 8


def build(size: int = SIZE) -> onnx.ModelProto:
    """Input x [1, size]; feed it values from 1 to 2."""
    weights = [
        numpy_helper.from_array(np.array(1.0, np.float32), "one"),
        numpy_helper.from_array(np.array(10.0, np.float32), "ten"),
        numpy_helper.from_array(np.array(0.0, np.float32), "nought"),
        numpy_helper.from_array(np.array(-5.0, np.float32), "low"),
        numpy_helper.from_array(np.array(5.0, np.float32), "high"),
    ]
    nodes = [
        helper.make_node("Add", ["x", "one"], ["more"], name="more"),
        helper.make_node("Sub", ["x", "ten"], ["below"], name="below"),  # at most -8: its Relu is 0
        helper.make_node("Relu", ["below"], ["zero"], name="zero"),
        helper.make_node("Div", ["more", "zero"], ["divided"], name="divide"),  # Inf
        helper.make_node("Mul", ["divided", "zero"], ["product"], name="multiply"),  # NaN
        helper.make_node("Clip", ["divided", "low", "high"], ["clipped"], name="clip"),
        helper.make_node("Equal", ["product", "product"], ["is_number"], name="is_number"),
        helper.make_node("Where", ["is_number", "product", "nought"], ["cleaned"], name="clean"),
        helper.make_node("Add", ["clipped", "cleaned"], ["y"], name="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "div_zero",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, size])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("div_zero.onnx"))
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), args.output)
    print(args.output)


if __name__ == "__main__":
    main()
