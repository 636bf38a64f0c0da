"""Makes the files of this folder again, with the real converters. Each line runs in an environment of its own:

    onnx2tf 2.6.9 (Python 3.12)     onnx2tf -i examples/digits/digits.onnx -o OUT -b 1
                                    digits_float32.tflite, digits_float16.tflite, and the tensors' correspondence
    ai-edge-quantizer 0.10.0        python tests/data/litert/make.py
                                    all others, calibrated on the test images at once

In the outlier file one channel of the second block is 200 times as large, and what reads it 200 times as small: in
float32 nothing changes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends")]

TIMES = 200.0
FILES = {
    "digits_int8": "static_wi8_ai8", "digits_int16": "static_wi8_ai16", "digits_hybrid": "dynamic_wi8_afp32",
    "digits_half_weights": "fp16", "digits_int4_weights": "weight_only_wi4_afp32",
}  # fmt: skip


def quantised(path: Path, how: str = "static_wi8_ai8") -> bytes:
    from ai_edge_quantizer import qtyping, quantizer, recipe

    images = np.load(ROOT / "examples/digits/test_images.npz")["image"].transpose(0, 2, 3, 1)
    work = quantizer.Quantizer(str(path))
    if how == "fp16":
        weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
        work.update_quantization_recipe(
            ".*", qtyping.TFLOperationName.ALL_SUPPORTED, algorithm_key="float_casting",
            op_config=qtyping.OpQuantizationConfig(
                weight_tensor_config=weights, compute_precision=qtyping.ComputePrecision.FLOAT
            ),
        )  # fmt: skip
    else:
        work.load_quantization_recipe(getattr(recipe, how)())
    if not how.startswith("static"):
        return bytes(work.quantize().quantized_model)
    sets = {"serving_default": [{"image": images}]}  # one by one, its calibration averages the ranges, and they cut off
    return bytes(work.quantize(work.calibrate(sets)).quantized_model)


def outlier(path: Path) -> bytes:
    from precision_debug_litert.engine.flat import Flat

    flat = Flat.read(str(path))

    def scale(name: str, place: tuple[Any, ...], factor: float) -> None:
        tensor = next(one for one in flat.main.tensors if one.name.decode() == name)
        value = flat.array(tensor).copy()
        value[place] *= factor
        flat.model.buffers[tensor.buffer].data = value.reshape(-1).view(np.uint8)

    names = [[flat.main.tensors[index].name.decode() for index in op.inputs] for op in flat.main.operators]
    second, third = [names[number] for number, one in enumerate(names) if len(one) == 3][1:3]
    scale(second[1], (3,), TIMES)
    scale(second[2], (3,), TIMES)
    scale(third[1], (..., 3), 1 / TIMES)
    return flat.packed()


if __name__ == "__main__":
    for name, how in FILES.items():
        (HERE / f"{name}.tflite").write_bytes(quantised(HERE / "digits_float32.tflite", how))
    large = HERE / "outlier_float32.tflite"
    large.write_bytes(outlier(HERE / "digits_float32.tflite"))
    (HERE / "outlier_int8.tflite").write_bytes(quantised(large))
    large.unlink()
