"""What a run mode may promise to compute in: the words of ``RunMode.precision``, and what each one means.

Whoever has to know a mode's precision asks here with that word. The letters of a mode's name decide nothing: they are
for people, and another backend may call float16 "half".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .number_types import NUMBER_TYPES

__all__ = [
    "BEFORE_ROUNDING", "BEHIND_FLOAT32", "CONVERTS", "FEW_BITS", "MIXED", "MODEL", "PRECISIONS", "QUANTISED",
    "QUANTISED_WEIGHT", "Precision",
    "is_narrow", "promised",
]  # fmt: skip

BEFORE_ROUNDING = "before rounding"
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


def _of_type(name: str, *shown_by: str, narrow: bool = True) -> Precision:
    held = NUMBER_TYPES[name]
    return Precision(short=held.short, rounding=held.rounding, shown_by=shown_by, computes=name, narrow=narrow)


PRECISIONS: Mapping[str, Precision] = {
    "float64": _of_type("float64", "float64", narrow=False),
    "float32": _of_type("float32", "float32", narrow=False),
    "tf32": _of_type("tf32"),
    "float16": _of_type("float16", "float16"),
    "bfloat16": _of_type("bfloat16", "bfloat16"),
    "float8_e4m3fn": _of_type("float8_e4m3fn", "float8"),
    "float8_e5m2": _of_type("float8_e5m2", "float8"),
    "int8": Precision(short="INT8", rounding=2.0**-8, shown_by=("int8", "uint8"), computes="int8"),
    "int4": Precision(short="INT4", rounding=0.0, shown_by=("int4", "uint4"), computes="int4"),
    MIXED: Precision(short="mixed", rounding=0.0, shown_by=(), computes="float16"),
    MODEL: Precision(short="", rounding=0.0, shown_by=(), computes="", narrow=False),
}

_UNTOLD = Precision(short="", rounding=0.0, shown_by=(), computes="", narrow=False)
"""Of a recording, or of a backend, that does not say."""


def promised(precision: str) -> Precision:
    """What a mode's word means; a word that nobody knows promises nothing."""
    return PRECISIONS.get(precision, _UNTOLD)


def is_narrow(precision: str) -> bool:
    """Whether less than float32 is promised."""
    return promised(precision).narrow
