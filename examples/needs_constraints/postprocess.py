"""A network script: TensorRT's network comes in after parsing, and its layers' precisions are set in Python.

precision_debug … --network_script postprocess.py --precision_constraints obey
"""

from __future__ import annotations

from typing import Any

import tensorrt as trt


def postprocess(network: Any) -> None:
    """Add and Sub compute in FP16 and hand FP16 on."""
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        if layer.name in {"Add", "Sub"}:
            layer.precision = trt.float16
            layer.set_output_type(0, trt.float16)
