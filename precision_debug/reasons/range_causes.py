"""Causes that lie in a type's range: numbers above its largest or below its smallest."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import Cause, Kind
from .reason import Wording

__all__ = ["RANGE_CAUSES"]

_FIGURE, _COUNT, _SHARE, _TEXT, _ANY = Kind.FIGURE, Kind.COUNT, Kind.SHARE, Kind.TEXT, Kind.ANY

RANGE_CAUSES: Mapping[str, Cause] = {
    "overflow": Cause(
        undone=Wording(
            "with a wider exponent for the results beyond the type's range",
            "若对超出该类型范围的结果使用更宽的指数",
        ),
        gradient="above",
        en="overflow", zh="上溢",
        do="Keep the operator in FP32 or BF16, or scale its inputs down.",
        do_zh="将该算子保留为 FP32 或 BF16，或缩小其输入。",
        why=Wording(
            "overflow, its results reach {largest}, above the type's maximum of {limit}"
            " ({count} {count:element|elements})",
            "上溢，结果达到 {largest}，而该类型最大为 {limit}（{count} 个元素）",
        ),
        instead={
            "cut": Wording(
                "`{source}` is cut off where it is cast to {cast}: {count} {count:element|elements}, up to"
                " {largest}, {count:is|are} above that"
                " type's maximum of {limit} and become it",
                "`{source}` 转为 {cast} 时被截断：{count} 个元素（最大 {largest}）超过该类型的最大值"
                " {limit}，变为该最大值",
            ),
            "cast": Wording(
                "overflow where `{source}` is cast to {cast}: {count} {count:element|elements}, up to {largest},"
                " {count:is|are} above that type's"
                " maximum of {limit}",
                "`{source}` 转为 {cast} 时上溢：{count} 个元素（最大 {largest}）超过该类型的最大值 {limit}",
            ),
            "inner": Wording(
                "the operators that the engine runs as one overflow inside: `{inner}` reaches {largest} in the"
                " baseline's run, above the type's maximum of {limit} ({count} {count:element|elements})",
                "引擎合并运行的算子在内部上溢：在基线的运行中 `{inner}` 达到 {largest}，"
                "而该类型最大为 {limit}（{count} 个元素）",
            ),
        },
        evidence={
            "largest": _FIGURE, "limit": _FIGURE, "count": _COUNT, "cast": _TEXT, "source": _TEXT, "cut": _ANY,
            "inner": _TEXT,
        },
        out_of_range="above",
    ),
    "weight_overflow": Cause(
        undone=Wording(
            "with the large numbers of that constant as the model has them",
            "若该常量的大数值与模型一致",
        ),
        en="a constant overflows", zh="常量上溢",
        do="Keep the readers of the constant in FP32 or BF16, or scale it.",
        do_zh="将读取该常量的算子保留为 FP32 或 BF16，或缩放该常量。",
        why=Wording(
            "its constant {weight} reaches {largest}, above the type's maximum of {limit}",
            "其常量 {weight} 达到 {largest}，而该类型最大为 {limit}",
        ),
        evidence={"weight": _TEXT, "largest": _FIGURE, "limit": _FIGURE},
        out_of_range="above",
    ),
    "range_inside": Cause(
        undone=Wording(
            "with those results as they are without an infinity on the way",
            "若这些结果的计算途中不出现无穷大",
        ),
        gradient="above",
        en="overflow inside the operator", zh="算子内部上溢",
        do="Keep the operator in FP32, or scale its inputs down first.",
        do_zh="将该算子保留为 FP32，或先缩小其输入。",
        instead={
            "gone": Wording(
                "overflow inside the operator: {gone} results that the type can hold became 0, whole rows at once,"
                " because their divisor exceeds {limit}",
                "算子内部上溢：有 {gone} 个该类型可以表示的结果整行变为 0，因其除数超过 {limit}",
            ),
            "read": Wording(
                "overflow of what it reads: its inputs reach {read}, above the type's maximum of {limit}, and are"
                " {become} in it",
                "输入上溢：其输入达到 {read}，超过该类型的最大值 {limit}，在该类型中为 {become}",
            ),
        },
        why=Wording(
            "overflow inside the operator: inputs up to {largest} exceed {limit} when squared, summed or exponentiated",
            "算子内部上溢：输入达到 {largest}，平方、求和或取指数后超过 {limit}",
        ),
        evidence={"largest": _FIGURE, "limit": _FIGURE, "gone": _COUNT, "read": _FIGURE, "become": _TEXT},
        out_of_range="above",
    ),
    "underflow": Cause(
        undone=Wording(
            "with the results below the type's normal range restored",
            "若恢复低于该类型正规范围的结果",
        ),
        gradient="below",
        en="underflow", zh="下溢",
        do="Keep the operator in FP32 or BF16, or scale its inputs up.",
        do_zh="将该算子保留为 FP32 或 BF16，或放大其输入。",
        why=Wording(
            "underflow, {lost} {lost:result|results} below the type's smallest value became 0 ({share} of the tensor)",
            "下溢，{lost} 个结果小于该类型最小值而变为 0（占张量的 {share}）",
        ),
        instead={
            "digits": Wording(
                "underflow, {digits} {digits:result|results} below the type's smallest normal number, {smallest}, lose"
                " digits ({share} of the tensor)",
                "下溢，{digits} 个结果小于该类型的最小正规数 {smallest}，因而丢失有效位（占张量的 {share}）",
            ),
            "cast": Wording(
                "underflow where `{source}` is cast to {cast}: {share} of it becomes 0 ({lost}"
                " {lost:element|elements}), because that"
                " type's smallest number is {smallest}",
                "`{source}` 转为 {cast} 时下溢：其中 {share}（{lost} 个元素）变为 0，因为该类型的最小值为 {smallest}",
            )
        },
        evidence={
            "lost": _COUNT, "digits": _COUNT, "share": _SHARE, "smallest": _FIGURE, "cast": _TEXT, "source": _TEXT,
        },
        out_of_range="below",
    ),
    "weight_underflow": Cause(
        undone=Wording(
            "with the tiny numbers of that constant as the model has them",
            "若该常量的微小数值与模型一致",
        ),
        en="a constant underflows", zh="常量下溢",
        do="Use a larger epsilon, or keep the operator that reads it in FP32.",
        do_zh="用更大的 epsilon，或将读取它的算子保留为 FP32。",
        why=Wording(
            "its constant {weight} (an epsilon?), {value}, is below the type's smallest value, {smallest}",
            "其常量 {weight}（epsilon？）为 {value}，小于该类型可表示的最小值 {smallest}",
        ),
        instead={
            "elements": Wording(
                "{count} of the {elements} numbers of its constant {weight}, around {value},"
                " {count:is|are} below the type's smallest value, {smallest}",
                "其常量 {weight} 的 {elements} 个数中有 {count} 个（约 {value}）小于该类型可表示的最小值 {smallest}",
            ),
            "off": Wording(
                "its constant {weight}, around {value}, is below the type's smallest normal number, {smallest}, and"
                " loses digits there: it is off by {off} (Rel L2)",
                "其常量 {weight}（约 {value}）小于该类型的最小正规数 {smallest}，因而丢失有效位：相对 L2 误差 {off}",
            )
        },
        evidence={
            "weight": _TEXT, "value": _FIGURE, "smallest": _FIGURE, "off": _FIGURE, "count": _COUNT, "elements": _COUNT,
        },
        out_of_range="below",
    ),
}  # fmt: skip
