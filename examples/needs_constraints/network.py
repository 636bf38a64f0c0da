"""A network-builder script: the model itself is this script, and no ONNX file is read.

precision_debug --model_file network.py --run_mode trt_fp16 --baseline trt_fp32 …
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorrt as trt

SIZE = 256
KEEP_FP32 = os.environ.get("KEEP_FP32") == "1"


def load_network(_builder: Any, network: Any) -> None:
    """Fill the empty network that TensorRT's builder gave."""
    turn = np.ascontiguousarray(np.fliplr(np.eye(SIZE, dtype=np.float32)))[None]
    largest = np.full((1, 1, 1), 65504.0, np.float32)

    def name(layer: Any, layer_name: str, output: str) -> Any:
        layer.name = layer_name
        layer.get_output(0).name = output
        return layer.get_output(0)

    def constant(value: np.ndarray, layer_name: str) -> Any:
        return name(network.add_constant(value.shape, value), layer_name, f"{layer_name}_value")

    def product(left: Any, layer_name: str, output: str) -> Any:
        none = trt.MatrixOperation.NONE
        right = constant(turn, f"{layer_name}_turn")
        return name(network.add_matrix_multiply(left, none, right, none), layer_name, output)

    def elementwise(left: Any, operation: Any, layer_name: str, output: str) -> Any:
        layer = network.add_elementwise(left, constant(largest, f"{layer_name}_largest"), operation)
        if KEEP_FP32:
            layer.precision = trt.float32
            layer.set_output_type(0, trt.float32)
        return name(layer, layer_name, output)

    x = network.add_input("x", trt.float32, (1, SIZE, SIZE))
    turned = product(x, "MatMul_0", "turned")
    added = elementwise(turned, trt.ElementWiseOperation.SUM, "Add", "added")
    subtracted = elementwise(added, trt.ElementWiseOperation.SUB, "Sub", "subtracted")
    network.mark_output(product(subtracted, "MatMul_1", "y"))
