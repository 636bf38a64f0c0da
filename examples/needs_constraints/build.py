"""Build needs_constraints.onnx: a matrix product, + 65504, - 65504, another product.

In FP32 the two additions cancel. In FP16 numbers near 65504 lie 32 apart, so that Add rounds x away and Sub gives 0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 256


def build(size: int = SIZE) -> onnx.ModelProto:
    """Input x [1, size, size], feed it values from 1 to 2. The matrices are anti-diagonal: they only turn rows."""
    turn = np.fliplr(np.eye(size, dtype=np.float32))
    weights = [
        numpy_helper.from_array(turn, "turn_1"),
        numpy_helper.from_array(np.ascontiguousarray(turn), "turn_2"),
        numpy_helper.from_array(np.array([65504.0], np.float32), "largest_1"),
        numpy_helper.from_array(np.array([65504.0], np.float32), "largest_2"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "turn_1"], ["turned"], name="MatMul_0"),
        helper.make_node("Add", ["turned", "largest_1"], ["added"], name="Add"),
        helper.make_node("Sub", ["added", "largest_2"], ["subtracted"], name="Sub"),
        helper.make_node("MatMul", ["subtracted", "turn_2"], ["y"], name="MatMul_1"),
    ]
    shape = [1, size, size]
    graph = helper.make_graph(
        nodes,
        "needs_constraints",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("needs_constraints.onnx"))
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), args.output)
    print(args.output)


if __name__ == "__main__":
    main()
