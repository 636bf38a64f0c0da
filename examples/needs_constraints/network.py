"""A network-builder script: the model itself is this script, and no ONNX file is read.

Add and Sub compute in FP16 and hand FP16 on, if --precision_constraints obey binds TensorRT to it:

precision_debug --model_file network.py --run_mode trt_fp16 --baseline_model needs_constraints.onnx \\
    --precision_constraints obey --val_range 1,2
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorrt as trt

SIZE = 256


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
        layer.precision = trt.float16
        layer.set_output_type(0, trt.float16)
        return name(layer, layer_name, output)

    x = network.add_input("x", trt.float32, (1, SIZE, SIZE))
    turned = product(x, "MatMul_0", "turned")
    added = elementwise(turned, trt.ElementWiseOperation.SUM, "Add", "added")
    subtracted = elementwise(added, trt.ElementWiseOperation.SUB, "Sub", "subtracted")
    network.mark_output(product(subtracted, "MatMul_1", "y"))
