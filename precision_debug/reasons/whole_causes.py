"""Causes among whole numbers, truth values and choices: they wrap around, are divided in float32, or flip."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import Cause, Kind
from .reason import Wording

__all__ = ["WHOLE_CAUSES"]

_FIGURE, _COUNT, _TEXT = Kind.FIGURE, Kind.COUNT, Kind.TEXT

WHOLE_CAUSES: Mapping[str, Cause] = {
    "wrapped": Cause(
        en="whole numbers wrap around", zh="整数回绕",
        do="Keep these numbers in their own type, or within the narrower one.",
        do_zh="保留这些数原来的类型，或使其在较窄类型的范围内。",
        why=Wording(
            "{count} of its {elements} whole numbers, up to {largest}, are beyond {type} and wrap around",
            "其 {elements} 个整数中有 {count} 个（最大为 {largest}）超出 {type} 并回绕",
        ),
        instead={
            "cut": Wording(
                "its constant {constant}, {value}, is beyond {type} and held as {cut}: computed with that in {type},"
                " which wraps around, {count} of its {elements} whole numbers differ as they do in the target",
                "其常量 {constant}（{value}）超出 {type}，被存为 {cut}：以此在会回绕的 {type} 中计算，"
                "其 {elements} 个整数中有 {count} 个的差异与目标中一致",
            ),
            "end": Wording(
                "{count} of its {elements} whole numbers, up to {largest}, are beyond {type} and all become {end}",
                "其 {elements} 个整数中有 {count} 个（最大为 {largest}）超出 {type}，均变为 {end}",
            ),
        },
        evidence={
            "count": _COUNT, "elements": _COUNT, "largest": _COUNT, "type": _TEXT, "constant": _TEXT, "value": _COUNT,
            "cut": _COUNT, "end": _COUNT,
        },
    ),
    "whole_in_float32": Cause(
        en="whole numbers are divided in float32", zh="整数以 float32 相除",
        of_whole_numbers=True,
        do="Divide them where whole numbers stay whole, or keep them below 16,777,216.",
        do_zh="在以整数计算之处相除，或使其小于 16,777,216。",
        why=Wording(
            "{count} of its {elements} whole numbers differ exactly as float32 makes them of numbers up to {largest},"
            " of which it holds those up to 16,777,216",
            "其 {elements} 个整数中有 {count} 个与以 float32 计算（输入最大为 {largest}）所得完全相同，"
            "而 float32 只能准确保存到 16,777,216",
        ),
        instead={
            "type": Wording(
                "{count} of its {elements} whole numbers differ exactly as float32 makes them of numbers up to"
                " {largest} that wrap around in {type}",
                "其 {elements} 个整数中有 {count} 个与以 float32 计算"
                "（输入最大为 {largest}，在 {type} 中回绕）所得完全相同",
            ),
            "divides": Wording(
                "the whole numbers of `{divides}` are divided in float32: {count} of its {elements} numbers differ"
                " exactly as that makes them of numbers up to {largest}",
                "`{divides}` 的整数以 float32 相除："
                "其 {elements} 个数中有 {count} 个与由此（输入最大为 {largest}）所得完全相同",
            ),
        },
        evidence={"count": _COUNT, "elements": _COUNT, "largest": _COUNT, "type": _TEXT, "divides": _TEXT},
    ),
    "flips": Cause(
        en="decisions flip", zh="判定翻转",
        of_whole_numbers=True,
        do="Check what is decided here, and keep the operators that compute it in FP32.",
        do_zh="看此处作出的判定；将算出它的算子保留为 FP32。",
        why=Wording(
            "{count} of {elements} results, whole numbers or truth values, differ on the same inputs",
            "相同输入下 {elements} 个整数或布尔结果中有 {count} 个不同",
        ),
        instead={
            "margin": Wording(
                "ordinary rounding, behind which {count} of {elements} choices of {amplifier_type} `{amplifier}` flip:"
                " its scores there are {margin} apart at most in the baseline, and off by up to {off} in the target",
                "普通舍入误差，其后 {amplifier_type} `{amplifier}` 的 {elements} 个选择中有 {count} 个改变：这些选择的"
                "分数在基线中至多相差 {margin}，而在目标中偏差可达 {off}",
            ),
            "off": Wording(
                "ordinary rounding, behind which {count} of {elements} decisions of {amplifier_type} `{amplifier}`,"
                " whose inputs there are off by up to {off}, flip",
                "普通舍入误差，其后 {amplifier_type} `{amplifier}` 的 {elements} 个判定中有 {count} 个改变，"
                "其输入在这些位置的偏差可达 {off}",
            ),
            "amplifier": Wording(
                "ordinary rounding, behind which {count} of {elements} decisions of {amplifier_type} `{amplifier}`"
                " flip",
                "普通舍入误差，其后 {amplifier_type} `{amplifier}` 的 {elements} 个判定中有 {count} 个改变",
            ),
        },
        evidence={
            "count": _COUNT, "elements": _COUNT, "amplifier": _TEXT, "amplifier_type": _TEXT, "margin": _FIGURE,
            "off": _FIGURE,
        },
        unproven=True,
    ),
}  # fmt: skip
