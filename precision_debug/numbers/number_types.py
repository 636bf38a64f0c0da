"""List the types that tensors are held in, and what a run mode may promise to compute in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..reasons.ways import way

__all__ = [
    "BEFORE_ROUNDING",
    "BEHIND_FLOAT32",
    "CONVERTS",
    "FEW_BITS",
    "MIXED",
    "MODEL",
    "NUMBER_TYPES",
    "PRECISIONS",
    "QUANTISED",
    "QUANTISED_WEIGHT",
    "NumberType",
    "Precision",
    "find_promise",
    "is_narrow",
    "number_type",
]  # fmt: skip


# The types that tensors are held in: how engines call them, their digits and their range, in one table.
#
# A new type is one entry here. IEEE 754 (float16, float32, float64), bfloat16, NVIDIA's TF32, the 8-bit formats of OCP
# and of ONNX (``fnuz``: no negative zero, no infinity), ONNX's ``TensorProto.DataType`` for the numbers.

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


def _float_type(name: str, short: str, bits: int, largest: float, exponent: int, onnx: int) -> NumberType:
    return NumberType(name=name, short=short, bits=bits, largest=largest, exponent=exponent, onnx=onnx)


def _integer_type(name: str, largest: int, onnx: int) -> NumberType:
    return NumberType(name=name, short=name.upper(), bits=0, largest=largest, exponent=0, onnx=onnx)


NUMBER_TYPES: Mapping[str, NumberType] = {
    one.name: one
    for one in (
        _float_type("float64", "FP64", 53, (2 - 2.0**-52) * 2.0**1023, -1022, 11),
        _float_type("float32", "FP32", 24, (2 - 2.0**-23) * 2.0**127, -126, 1),
        _float_type("tf32", "TF32", 11, (2 - 2.0**-10) * 2.0**127, -126, 0),
        _float_type("float16", "FP16", 11, 65504.0, -14, 10),
        _float_type("bfloat16", "BF16", 8, (2 - 2.0**-7) * 2.0**127, -126, 16),
        _float_type("float8_e4m3fn", "FP8", 4, 448.0, -6, 17),
        _float_type("float8_e4m3fnuz", "FP8", 4, 240.0, -7, 18),
        _float_type("float8_e5m2", "FP8", 3, 57344.0, -14, 19),
        _float_type("float8_e5m2fnuz", "FP8", 3, 57344.0, -15, 20),
        _integer_type("uint4", 15, 21),
        _integer_type("int4", 7, 22),
        _integer_type("uint8", 255, 2),
        _integer_type("int8", 127, 3),
        _integer_type("uint16", 65535, 4),
        _integer_type("int16", 32767, 5),
        _integer_type("uint32", 2**32 - 1, 12),
        _integer_type("int32", 2**31 - 1, 6),
        _integer_type("uint64", 2**64 - 1, 13),
        _integer_type("int64", 2**63 - 1, 7),
    )
}


def number_type(name: str) -> NumberType | None:
    """Return the entry of a type in numpy's words; None of one that is not in the table."""
    return NUMBER_TYPES.get(name)


# What a run mode may promise to compute in: the words of ``RunMode.precision``, and what each one means.
#
# Whoever has to know a mode's precision asks here with that word. The letters of a mode's name decide nothing: they are
# for people, and another backend may call float16 "half".

BEFORE_ROUNDING = way("before rounding")
"""The view of an operator's result in float32, where another tensor is the same, rounded to a narrow type."""

BEHIND_FLOAT32 = " behind float32"
"""How the view of a tensor ends that is held in a narrow type, and whose operator computed in float32."""

QUANTISED = re.compile(r"quanti[sz]|^qlinear|^q(gemm|attention|moe)$|integer|nbits|int_mm", re.IGNORECASE)
"""Types of operators that make or read quantised tensors, in any of the frameworks."""

FEW_BITS = re.compile(r"nbits|blockquantized", re.IGNORECASE)
"""Of them, those whose weights alone are integers, unless they say that they round what they read, too."""

QUANTISED_WEIGHT = " quantised"
"""How the type of an operator ends that is the baseline's with a weight of few bits, and everything else as it was."""

CONVERTS = re.compile(r"(dynamic|fake)?_?(de)?quanti[sz]e(_?linear)?(_v\d)?", re.IGNORECASE)
"""Types of those that turn numbers to integers and back, and compute nothing in either."""

MODEL = "model"
"""The types are the model's own: a mode that only optimises."""

MIXED = "mixed"
"""The engine chooses, or was built already, and nobody here knows among what."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """short: as engines write it. rounding: relative error of rounding to nearest once (of integers half a step over
    the tensor's largest value); 0 where it is not known. shown_by: beginnings of the types of tensors that prove it.
    computes: the type whose arithmetic is to be expected, in numpy's words; "" where the model says it. narrow: less
    than float32.
    """

    short: str
    rounding: float
    shown_by: tuple[str, ...]
    computes: str
    narrow: bool = True


def _precision_of_type(name: str, *shown_by: str, narrow: bool = True) -> Precision:
    held = NUMBER_TYPES[name]
    return Precision(short=held.short, rounding=held.rounding, shown_by=shown_by, computes=name, narrow=narrow)


PRECISIONS: Mapping[str, Precision] = {
    "float64": _precision_of_type("float64", "float64", narrow=False),
    "float32": _precision_of_type("float32", "float32", narrow=False),
    "tf32": _precision_of_type("tf32"),
    "float16": _precision_of_type("float16", "float16"),
    "bfloat16": _precision_of_type("bfloat16", "bfloat16"),
    "float8_e4m3fn": _precision_of_type("float8_e4m3fn", "float8"),
    "float8_e5m2": _precision_of_type("float8_e5m2", "float8"),
    "int8": Precision(short="INT8", rounding=2.0**-8, shown_by=("int8", "uint8"), computes="int8"),
    "int4": Precision(short="INT4", rounding=0.0, shown_by=("int4", "uint4"), computes="int4"),
    MIXED: Precision(short="mixed", rounding=0.0, shown_by=(), computes="float16"),
    MODEL: Precision(short="", rounding=0.0, shown_by=(), computes="", narrow=False),
}

_UNTOLD = Precision(short="", rounding=0.0, shown_by=(), computes="", narrow=False)
"""Of a recording, or of a backend, that does not say."""


def find_promise(precision: str) -> Precision:
    """Return what a mode's word means; a word that nobody knows promises nothing."""
    return PRECISIONS.get(precision, _UNTOLD)


def is_narrow(precision: str) -> bool:
    """Return whether less than float32 is promised."""
    return find_promise(precision).narrow
