"""The types that tensors are held in: how engines call them, their digits and their range, in one table.

A new type is one entry here. IEEE 754 (float16, float32, float64), bfloat16, NVIDIA's TF32, the 8-bit formats of OCP
and of ONNX (``fnuz``: no negative zero, no infinity), ONNX's ``TensorProto.DataType`` for the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["NUMBER_TYPES", "NumberType", "number_type"]


@dataclass(frozen=True, kw_only=True)
class NumberType:
    """One type of numbers.

    name: as numpy and ml_dtypes write it. short: as engines write it. bits: of a float's significand, the hidden one
    included; 0 of integers. largest: the largest finite number. exponent: the smallest normal float is 2**exponent.
    onnx: its number in TensorProto.DataType; 0 where it has none.
    """

    name: str
    short: str
    bits: int
    largest: float
    exponent: int
    onnx: int

    @property
    def rounding(self) -> float:
        """The largest relative error of rounding once to nearest; 0 of integers, whose scale decides."""
        return 2.0**-self.bits if self.bits else 0.0

    @property
    def smallest_normal(self) -> float:
        """The smallest positive float that has all of its digits; 0 of integers."""
        return 2.0**self.exponent if self.bits else 0.0

    @property
    def smallest(self) -> float:
        """The smallest positive float, a subnormal one; 0 of integers."""
        return math.ldexp(1.0, self.exponent - self.bits + 1) if self.bits else 0.0

    @property
    def steps(self) -> int:
        """Steps from the least to the largest integer; 0 of floats."""
        if self.bits:
            return 0
        return int(self.largest) if self.short.startswith("UINT") else 2 * int(self.largest) + 1


def _float(name: str, short: str, bits: int, largest: float, exponent: int, onnx: int) -> NumberType:
    return NumberType(name=name, short=short, bits=bits, largest=largest, exponent=exponent, onnx=onnx)


def _integer(name: str, largest: int, onnx: int) -> NumberType:
    return NumberType(name=name, short=name.upper(), bits=0, largest=largest, exponent=0, onnx=onnx)


NUMBER_TYPES: Mapping[str, NumberType] = {
    one.name: one
    for one in (
        _float("float64", "FP64", 53, (2 - 2.0**-52) * 2.0**1023, -1022, 11),
        _float("float32", "FP32", 24, (2 - 2.0**-23) * 2.0**127, -126, 1),
        _float("tf32", "TF32", 11, (2 - 2.0**-10) * 2.0**127, -126, 0),
        _float("float16", "FP16", 11, 65504.0, -14, 10),
        _float("bfloat16", "BF16", 8, (2 - 2.0**-7) * 2.0**127, -126, 16),
        _float("float8_e4m3fn", "FP8", 4, 448.0, -6, 17),
        _float("float8_e4m3fnuz", "FP8", 4, 240.0, -7, 18),
        _float("float8_e5m2", "FP8", 3, 57344.0, -14, 19),
        _float("float8_e5m2fnuz", "FP8", 3, 57344.0, -15, 20),
        _integer("uint4", 15, 21),
        _integer("int4", 7, 22),
        _integer("uint8", 255, 2),
        _integer("int8", 127, 3),
        _integer("uint16", 65535, 4),
        _integer("int16", 32767, 5),
        _integer("uint32", 2**32 - 1, 12),
        _integer("int32", 2**31 - 1, 6),
        _integer("uint64", 2**64 - 1, 13),
        _integer("int64", 2**63 - 1, 7),
    )
}


def number_type(name: str) -> NumberType | None:
    """The entry of a type in numpy's words; None of one that is not in the table."""
    return NUMBER_TYPES.get(name)
