"""Files of tests/data/litert, and faults that are planted into a quantised one as a calibration or a converter does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "litert"
DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def images(count: int = 360) -> Any:
    """Digits as the files want them: [count, 8, 8, 1], float32 from 0 to 1."""
    return np.ascontiguousarray(np.load(DIGITS / "test_images.npz")["image"][:count].transpose(0, 2, 3, 1))


def changed(target: Path, change: Callable[[Any], None], source: str = "digits_int8.tflite") -> Path:
    from precision_debug_litert.engine.flat import Flat

    flat = Flat.read(str(DATA / source))
    change(flat)
    target.write_bytes(flat.packed())
    return target


def tensor(flat: Any, name: str) -> Any:
    return next(one for one in flat.main.tensors if one.name.decode() == name)


def saturate(name: str, factor: float) -> Callable[[Any], None]:
    """The range of a tensor is so many times too small: what lies beyond is cut off."""

    def change(flat: Any) -> None:
        one = tensor(flat, name)
        one.quantization.scale = np.asarray(one.quantization.scale, np.float32) / factor
        index = flat.main.tensors.index(one)
        for op in flat.main.operators:  # a bias is held in the product of both scales
            if len(op.inputs) == 3 and op.inputs[0] == index:
                bias = flat.main.tensors[op.inputs[2]]
                value = np.round(flat.array(bias) * factor).astype(np.int32)
                flat.model.buffers[bias.buffer].data = value.view(np.uint8)
                bias.quantization.scale = np.asarray(bias.quantization.scale, np.float32) / factor

    return change


def zero_point(name: str, shift: int) -> Callable[[Any], None]:
    """A wrong zero point: the top of the range is cut off, and as much below is never used."""

    def change(flat: Any) -> None:
        told = tensor(flat, name).quantization
        told.zeroPoint = np.asarray(told.zeroPoint) + shift

    return change
